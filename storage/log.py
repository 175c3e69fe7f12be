"""A numbered append-only log on a store (PROTOCOL P2); does not interpret entries."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from storage.capabilities import doubt
from storage.contract import (
    Exists,
    LostEntry,
    Missing,
    OutcomeUnknown,
    Ref,
    Store,
    StoreError,
    Throttled,
    TooLong,
    Unavailable,
)
from storage.slots import LAST_SEQ, hint_name, listed, listed_sizes, slot_name, slots_of
from storage.wrapper import fresh

ENTRY_LIMIT = 256_000
"""Limit of an entry, bytes."""
_HINT_LIMIT = 4096
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DAMAGED = 16
"""Bytes that may differ in a damaged copy of an entry. Two random digests of 64 digits differ in some 60."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


@dataclass(frozen=True)
class Won:
    """The slot holds our bytes."""

    ref: Ref


@dataclass(frozen=True)
class Lost:
    """The slot holds other bytes: `data`, cut off one byte past ENTRY_LIMIT if it is longer than an entry may be."""

    data: bytes


@dataclass(frozen=True)
class _Unsettled:
    """The slot was empty after a send, or its state is unknown."""

    trouble: StoreError
    maybe_sent: bool
    """Whether the bytes may have landed or may still land."""
    again: bool
    """Whether the same bytes may be sent once more."""


@dataclass(frozen=True)
class Hint:
    """Advice: where the tail was once. It may be old, missing or false."""

    seq: int
    ref: Ref
    digest: str


class Log:
    """Slots 0, 1, 2, … named `<prefix><20 digits>.json`, each written once, never changed or deleted.

    `slots` finds the Ref of a slot on the store. `sleep` waits between attempts.
    """

    def __init__(self, store: Store, prefix: str, *, sleep: Callable[[float], None]) -> None:
        if not prefix.endswith("/"):
            raise ValueError(f"a log's prefix ends in '/': {prefix!r}")
        self.store = store
        self.prefix = prefix
        hint_name(prefix)  # raises ValueError for a prefix that no name can have
        self.slots = slots_of(store, prefix)
        self._sleep = sleep

    def name(self, seq: int) -> str:
        """The name of a slot."""
        return slot_name(self.prefix, seq)

    def append(
        self, seq: int, data: bytes, *, attempts: int = 8, give_up: Callable[[], bool] = lambda: False
    ) -> Won | Lost:
        """Write `data` to slot `seq` unless it is taken; the bytes must be unique to this intent (a nonce).

        An answer of "exists", or none, proves nothing, so the slot is read. Ours: won. Another's: lost. Empty: the same
        bytes are sent again, up to `attempts` times (8: about a minute of waiting) and until `give_up()` is true. Never
        tries another slot. Raises OutcomeUnknown if a send may have landed or may still land. A plain refusal of the
        first send (Denied, QuotaExceeded, BadAddress) is raised as it is.
        """
        if len(data) > ENTRY_LIMIT:
            raise ValueError(f"an entry of {len(data)} bytes is longer than {ENTRY_LIMIT}")
        maybe_sent = False
        for attempt in range(1, attempts + 1):
            found = self._attempt(seq, data)
            if not isinstance(found, _Unsettled):
                return found
            maybe_sent |= found.maybe_sent
            trouble = found.trouble
            if not found.again or attempt == attempts or give_up():
                break
            self._sleep(trouble.retry_after if isinstance(trouble, Throttled) else _wait(attempt))
        if not maybe_sent:
            raise trouble
        raise OutcomeUnknown(
            f"{self.store.address}: {self.name(seq)} was sent {attempt} times, but may not have arrived "
            f"({trouble}). Run again when the storage answers: the slot is read first, and nothing is written twice."
        ) from trouble

    def read(self, seq: int, limit: int = ENTRY_LIMIT) -> bytes:
        """The bytes of a slot. Raises Missing if it is empty, TooLong past `limit` bytes."""
        data = self.slots.read(seq, limit + 1)
        if len(data) > limit:
            raise TooLong(f"{self.store.address}: {self.name(seq)} has more than the {limit} bytes allowed here.")
        return data

    def peek(self, seq: int) -> bytes:
        """The bytes of a slot, cut off one byte past ENTRY_LIMIT. Raises Missing if it is empty."""
        return self.slots.read(seq, ENTRY_LIMIT + 1)

    def tail(self, hint_seq: int | None = None) -> int:
        """The newest slot's number, -1 if the log is empty. Probes from the hint in doubling steps, then bisects.

        Under 30 point reads for 10,000 entries without a hint, two with a fresh one.
        Raises LostEntry if the hinted slot is empty: a hint is published only after its entry.
        """
        low = -1
        if hint_seq is not None and hint_seq >= 0:
            if not self.slots.taken(hint_seq):
                lost = self.tail() + 1
                raise LostEntry(self._lost(lost, f"a hint names entry {hint_seq}"), lost)
            low = hint_seq
        return self.slots.tail(low)

    def publish_hint(self, seq: int, digest: str) -> None:
        """Publish advice for the next reader. Losing it, or a race with another writer, does no harm."""
        hint = {"seq": seq, "ref": self.ref(seq), "digest": digest}
        self.slots.put_advice(json.dumps(hint, sort_keys=True).encode())

    def hint(self) -> Hint | None:
        """The published advice; None if there is none or it is invalid: a damaged number does not prove a slot."""
        try:
            hint = _parse_hint(self.slots.advice(_HINT_LIMIT))
        except (Missing, TooLong):
            return None
        try:
            return hint if hint and hint.ref == self.ref(hint.seq) else None
        except Missing:
            return hint  # no slot leads that far: `tail` decides

    def gaps(self, tail: int, *, confirm: int = 16) -> list[int]:
        """Empty slots below the newest known one, by a listing and then a point read each; at most `confirm` of them.

        Each is a lost entry. Reads the whole listing; a slot that only the listing hides costs one point read.
        """
        shown = set(listed(self.store, self.prefix))
        newest = max(shown, default=-1)
        hidden = (seq for seq in range(max(tail, newest) + 1) if seq not in shown)
        return [seq for seq in itertools.islice(hidden, confirm) if not self.slots.taken(seq)]

    def sizes(self, after: int) -> list[tuple[int, int]]:
        """(slot, bytes) of the slots after `after` that a listing shows, ascending; a listing may hide some."""
        return list(listed_sizes(self.store, self.prefix, after))

    def again(self) -> Log:
        """The same log on new connections, so that no earlier answer influences its reads."""
        return Log(fresh(self.store), self.prefix, sleep=self._sleep)

    def check_end(self, tail: int) -> None:
        """Raises LostEntry if the slot after `tail` is empty though a listing shows later ones. One request, mostly.

        Called before a session that read the log long ago writes that slot.
        """
        if self.slots.later(tail) and not self.slots.taken(tail + 1):
            raise LostEntry(self._lost(tail + 1, "the store shows later ones"), tail + 1)

    def ref(self, seq: int) -> Ref:
        """The Ref of a slot."""
        return self.slots.ref(seq)

    def _attempt(self, seq: int, data: bytes) -> Won | Lost | _Unsettled:
        """Send once. After any answer but success the slot is read, because only its bytes show who has it.

        After a success too on a server that is not known to let only one win: the read may show another winner.
        """
        refusal: StoreError
        try:
            won = Won(self.slots.create(seq, data))
            if not doubt(self.store).unknown:
                return won
            refusal = Unavailable(f"{self.store.address}: {self.name(seq)} was stored and is missing")
        except StoreError as error:
            refusal = error
        uncertain = isinstance(refusal, Exists | Unavailable)
        try:
            found = self.peek(seq)
            if found != data and _resembles(found, data):
                found = self._second_look(seq, found, data)
            return Won(self.ref(seq)) if found == data else Lost(found)
        except Missing:  # empty, or landing later
            return _Unsettled(refusal, uncertain, uncertain)
        except StoreError as error:
            return _Unsettled(error, uncertain, uncertain and isinstance(error, Unavailable))

    def _second_look(self, seq: int, found: bytes, data: bytes) -> bytes:
        """The slot's bytes after a read of bytes so like ours that they may be ours, damaged or cut on the way.

        Raises Unavailable if a second read does not show them whole, ours or another's.
        """
        again = self.peek(seq)
        if again != data and (again != found or _resembles(again, data)):
            raise Unavailable(f"{self.store.address}: {self.name(seq)} arrives damaged. Is a proxy in the way?")
        return again

    def _lost(self, seq: int, evidence: str) -> str:
        return (
            f"{self.store.address}: the log entry {self.name(seq)} is missing, but {evidence}: an entry has been lost. "
            "Write and delete nothing; restore that file from a backup of the storage, or fork from a good checkpoint."
        )


def _resembles(found: bytes, data: bytes) -> bool:
    """Whether bytes are the beginning of ours, or differ in a few; another's entry has another digest and nonce."""
    if len(found) != len(data):
        return data.startswith(found)
    return sum(a != b for a, b in zip(found, data, strict=True)) <= min(_DAMAGED, len(data) // _DAMAGED)


def _wait(attempt: int) -> float:
    """Seconds to wait after the given failed attempt (1, 2, …)."""
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (attempt - 1))


def _parse_hint(data: bytes) -> Hint | None:
    """A hint from untrusted bytes; None unless every field is valid."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or set(fields) != {"seq", "ref", "digest"}:
        return None
    seq, ref, digest = fields["seq"], fields["ref"], fields["digest"]
    if type(seq) is not int or not 0 <= seq < LAST_SEQ or type(ref) is not str or type(digest) is not str:
        return None
    return Hint(seq, Ref(ref), digest) if _DIGEST.fullmatch(digest) else None
