"""Encodes and decodes one slot of a log: a body and its SHA-256, strict both ways."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import ZEROS, NotCanonical, digest, dumps, loads
from relay.core.ledger.fields import Digest, Epoch, Id, Passed, Sparing, Time
from relay.core.ledger.frozen import ADDED, MAX_DIGESTS, MAX_ENTRY_BYTES, PASSING, USUAL
from relay.core.names import Name
from relay.core.workload import Step

FORMAT = PASSING
"""The newest format; all older ones are read as well."""
Kind = Annotated[str, Field(pattern=r"^[a-z][a-z-]{0,31}$")]


class NewerFormat(BadConfig):
    """An intact entry or object that a later version wrote; it never counts as invalid (P4)."""


class NotAnEntry(ValueError):
    """Bytes that fail their own check; `str(e)` is one line."""


class Entry(Sparing):
    """The body of one slot (P4)."""

    added: ClassVar[tuple[str, ...]] = ADDED["Entry"]

    format: Annotated[int, Field(ge=1, le=FORMAT)] = USUAL
    seq: Step
    base: Annotated[int, Field(ge=-1, lt=2**53)]
    """Slot of the last valid entry it builds on: seq-1, unless invalid entries lie between; -1 for the genesis."""
    parent: Digest
    """Of the raw bytes in slot seq-1, valid or not; zeros for slot 0."""
    nonce: Id
    """Identifies the intent; it stays the same when the entry is rebuilt on a new parent."""
    kind: Kind
    session: Id
    account: Name | None
    epoch: Epoch
    at: Time
    """The store's clock when the entry was sent, unix seconds."""
    change: dict[str, Any]
    state: dict[str, Any]
    """The state after `change`; readers compute it again and compare."""
    passed: Passed | None = None
    """The slots that this entry passes over; from format 5 on present exactly if the base is not the slot before it."""

    @property
    def passed_slots(self) -> range:
        """Slots between the base and this entry, in which its writer could not read valid entries."""
        return range(self.base + 1, self.seq)

    def check_passing(self) -> None:
        """Raises NotAnEntry unless `passed` is present exactly if the format requires it, and fits the slots."""
        if (self.passed is not None) != (self.format >= PASSING and bool(self.passed_slots)):
            raise NotAnEntry("it does not say what it passes over, or passes over nothing")
        if self.passed is None:
            return
        if self.base < 0:
            raise NotAnEntry("a genesis passes over nothing")
        digests = self.passed.digests
        if len(digests) != min(len(self.passed_slots), MAX_DIGESTS) or digests[-1] != self.parent:
            raise NotAnEntry("the digests of what it passes over do not fit its slots")


def encode(entry: Entry) -> bytes:
    """The stored bytes: {"body":…,"sha256":"…"}, JSON with sorted keys, ASCII and no spaces; the digest is the body's.

    Fields that were added later are left out while they are empty. Raises NotAnEntry above MAX_ENTRY_BYTES.
    """
    data = _wrapped(dumps(entry.model_dump(mode="json")))
    if len(data) > MAX_ENTRY_BYTES:
        raise NotAnEntry(f"an entry of {len(data)} bytes; at most {MAX_ENTRY_BYTES} are allowed")
    return data


def decode(data: bytes, kinds: Collection[str], seq: int) -> Entry:
    """The entry in slot `seq`. Raises NotAnEntry if it fails its own check, NewerFormat if it is intact but newer."""
    body, written = _checked_body(data)
    _check_format(body, kinds, seq)
    try:
        entry = Entry.model_validate_json(written)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise NotAnEntry(f"{'.'.join(str(p) for p in problem['loc'])}: {problem['msg']}") from error
    if entry.seq != seq:
        raise NotAnEntry(f"it was written for slot {entry.seq}")
    if entry.base >= seq or (seq == 0 and entry.parent != ZEROS):
        raise NotAnEntry("it builds on nothing that can be before it")
    entry.check_passing()
    return entry


def _wrapped(body: bytes) -> bytes:
    """Canonical bytes of an entry, from those of its body."""
    return b'{"body":%b,"sha256":"%b"}' % (body, digest(body).encode())


def _checked_body(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The body and its canonical bytes."""
    try:
        whole = loads(data, MAX_ENTRY_BYTES)
        if not isinstance(whole, dict) or set(whole) != {"body", "sha256"} or not isinstance(whole["body"], dict):
            raise NotAnEntry("it is not a body and its SHA-256")
        written = dumps(whole["body"])
        if digest(written) != whole["sha256"]:
            raise NotAnEntry("its SHA-256 does not fit its body")
        if _wrapped(written) != data:
            raise NotAnEntry("it is not written canonically")
    except NotCanonical as error:
        raise NotAnEntry(str(error)) from error
    return whole["body"], written


def is_newer(number: object, known: int = 1) -> bool:
    """Whether an object's format is a later version's."""
    return isinstance(number, int) and number > known


def _check_format(body: dict[str, Any], kinds: Collection[str], seq: int) -> None:
    """Raises NewerFormat: an intact body of an unknown format or kind comes from a later version, and is not damage."""
    number, kind = body.get("format"), body.get("kind")
    if not isinstance(number, int):
        raise NotAnEntry("its format is not a number")
    newer = is_newer(number, FORMAT)
    unknown = isinstance(kind, str) and kind not in kinds
    if newer or unknown:
        content = f"format {number}" if newer else f"an entry of kind {str(kind)[:40]!r}"
        raise NewerFormat(
            f"Slot {seq} of the log holds {content}, which a newer version of trm-relay wrote and this one cannot read."
        )
