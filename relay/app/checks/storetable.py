"""Shows the measurements of each store as one table, or as plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.app.checks.reach import RACERS, Reach
from relay.app.machine.skew import MOST_S
from relay.app.messages.wording import duration, printable, size
from relay.app.terminal.cells import Column, table

MANY = 10_000
UNKNOWN = "unknown"


def document(found: Reach) -> dict[str, Any]:
    """One item of relay.doctor/1's `stores`; in seconds, bytes and bytes a second; null if unknown."""
    return {
        "address": found.address,
        "used_for": found.used_for,
        "reachable": found.answer_s is not None,
        "answer_s": found.answer_s,
        "credentials": found.credentials or None,
        "clock_skew_s": found.skew_s,
        "put_if_absent": found.exclusive,
        "upload_bytes_s": _whole(found.upload),
        "download_bytes_s": _whole(found.download),
        "free_bytes": found.free,
        "sessions_until_full": found.sessions,
    }


def stores_text(stores: Sequence[Reach], width: int | None, utf8: bool) -> str:
    """One column a store, folded to `width`; one line a fact without a width (no terminal)."""
    if width is None:
        return "\n".join(line for found in stores for line in _lines(found))
    names = Column("store", ["address", *(label for label, _ in _facts(stores[0]))], whole=True)
    facts = [Column(one.used_for, [one.address, *(text for _, text in _facts(one))]) for one in stores]
    return table([names, *facts], width, utf8)


def _lines(found: Reach) -> list[str]:
    return [f"store {found.address} ({found.used_for})", *(f"  {label}: {text}" for label, text in _facts(found))]


def _facts(found: Reach) -> list[tuple[str, str]]:
    """(label, value) of every fact, always all of them in this order."""
    return [
        ("reachable", _reachable(found)),
        ("credentials", "none needed" if found.credentials == "" else printable(found.credentials or UNKNOWN)),
        ("clock", _clock(found)),
        ("put-if-absent", _exclusive(found)),
        ("upload", _speed(found.upload)),
        ("download", _speed(found.download)),
        ("free", UNKNOWN if found.free is None else size(found.free)),
        ("sessions until full", _sessions(found)),
    ]


def _reachable(found: Reach) -> str:
    if found.answer_s is None:
        return "NO"
    if not found.there:
        return "not created yet; its disk is reachable"
    return f"yes, {found.answer_s * 1000:.0f} ms a request" if found.answer_s >= 0.001 else "yes, below 1 ms a request"


def _clock(found: Reach) -> str:
    if found.answer_s is None or found.upload is None:
        return UNKNOWN
    if found.skew_s is None:
        return "this machine's own"
    if abs(found.skew_s) <= MOST_S:
        return f"within {MOST_S:.0f} s of ours"
    return f"{duration(abs(found.skew_s))} {'behind' if found.skew_s > 0 else 'ahead of'} ours"


def _exclusive(found: Reach) -> str:
    if found.exclusive is None:
        return UNKNOWN
    return f"works: 2 clients, {RACERS} at once, 1 won" if found.exclusive else "BROKEN"


def _speed(bytes_s: float | None) -> str:
    return UNKNOWN if bytes_s is None else f"{size(bytes_s)}/s"


def _sessions(found: Reach) -> str:
    if found.sessions is None:
        return f"{UNKNOWN}: {found.why_unknown}" if found.why_unknown else UNKNOWN
    if found.sessions == 0:
        return "0: no room for one more"
    return f"over {MANY:,}" if found.sessions > MANY else f"about {found.sessions:,}"


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
