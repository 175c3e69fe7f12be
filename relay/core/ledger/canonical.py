"""Canonical JSON: one byte string for each value, and its digest. Parses bytes from strangers strictly."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

from relay.core.ledger.frozen import MAX_DEPTH, MAX_DIGITS

ZEROS = "0" * 64
"""The digest of nothing: the parent of a log's first entry."""


class NotCanonical(ValueError):
    """Bytes that are not acceptable JSON, or a value that JSON cannot hold; `str(e)` is one line."""


def dumps(value: Any) -> bytes:
    """Sorted keys, no spaces, ASCII only. Raises NotCanonical for NaN, infinities and values that JSON cannot hold."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotCanonical(f"not a plain value: {error}") from error
    return text.encode("ascii")


def loads(data: bytes, limit: int) -> Any:
    """Parse JSON from a stranger. Raises NotCanonical if it is longer than `limit` bytes or could mean two things.

    Refused: duplicate keys, NaN and infinities, integers over 20 digits, nesting over 32, lone surrogates.
    """
    if len(data) > limit:
        raise NotCanonical(f"{len(data)} bytes where at most {limit} are allowed")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refuse_constant,
        )
    except NotCanonical:
        raise
    except (ValueError, RecursionError) as error:
        raise NotCanonical(f"not JSON: {type(error).__name__}") from error
    _check_depth(value)
    if b"\\u" in data:  # UTF-8 itself cannot hold half a pair
        _check_texts(value)
    return value


def digest(data: bytes) -> str:
    """SHA-256 in 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotCanonical("an object names a key twice")
    return found


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise NotCanonical(f"an integer of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotCanonical("a number too large for a double")
    return value


def _refuse_constant(text: str) -> None:
    raise NotCanonical(f"{text} is not a number JSON knows")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise NotCanonical(f"nested deeper than {MAX_DEPTH}")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_texts(value: Any) -> None:
    """Refuse lone surrogates in keys and values. The value is not nested deeper than `MAX_DEPTH`."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotCanonical("half a surrogate pair in a text") from error
