"""A numbered append-only log on a store (PROTOCOL P2); knows nothing of what an entry says."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from storage.base import (
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
    check_name,
)

ENTRY_LIMIT = 256_000
"""Bytes of the largest entry."""
_HINT_LIMIT = 4096
_LAST_SEQ = 2**53
_DIGEST = re.compile(r"[0-9a-f]{64}")
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
class Hint:
    """Advice where the tail was once; may be old, absent or a lie."""

    seq: int
    ref: Ref
    digest: str


class Log:
    """Slots 0, 1, 2, … named `<prefix><20 digits>.json`, each written once, never changed or deleted.

    Needs a store with unique names. `sleep` is how the log waits between attempts.
    """

    def __init__(self, store: Store, prefix: str, *, sleep: Callable[[float], None]) -> None:
        if not prefix.endswith("/"):
            raise ValueError(f"a log's prefix ends in '/': {prefix!r}")
        self.store = store
        self.prefix = prefix
        self._hint_name = check_name(prefix.removesuffix("/") + ".hint")
        self._sleep = sleep

    def name(self, seq: int) -> str:
        """The name of a slot."""
        if not 0 <= seq < _LAST_SEQ:
            raise ValueError(f"no log has a slot {seq}")
        return f"{self.prefix}{seq:020d}.json"

    def append(
        self, seq: int, data: bytes, *, attempts: int = 8, give_up: Callable[[], bool] = lambda: False
    ) -> Won | Lost:
        """Write `data` to slot `seq` unless somebody else has; the bytes must be unique to this intent (a nonce).

        "Exists" or no answer proves nothing: the slot is read. Ours: won. Another's: lost. Empty: the same bytes are
        sent again, up to `attempts` times (8: about a minute of waiting) and until `give_up()` is true. Never tries
        another slot. Raises OutcomeUnknown if a send may have landed or may still land; a plain refusal of the
        first send (Denied, QuotaExceeded, BadAddress) is raised as it is.
        """
        if len(data) > ENTRY_LIMIT:
            raise ValueError(f"an entry of {len(data)} bytes is longer than {ENTRY_LIMIT}")
        name, maybe_sent = self.name(seq), False
        for attempt in range(1, attempts + 1):
            try:
                return Won(self.store.put_if_absent(name, data))
            except StoreError as error:
                refusal = trouble = error
            uncertain = isinstance(refusal, Exists | Unavailable)
            maybe_sent = maybe_sent or uncertain
            try:
                return self._settle(name, data)
            except Missing:
                pass  # empty, or landing later: the same bytes again
            except StoreError as error:
                trouble, uncertain = error, uncertain and isinstance(error, Unavailable)
            if not uncertain or attempt == attempts or give_up():
                break
            self._sleep(trouble.retry_after if isinstance(trouble, Throttled) else _wait(attempt))
        if not maybe_sent:
            raise trouble
        raise OutcomeUnknown(
            f"{self.store.address}: {name} was sent {attempt} times; nobody can tell whether it arrived ({trouble}). "
            "Run again once the storage answers: the slot is read first, and nothing is written twice."
        ) from trouble

    def read(self, seq: int, limit: int = ENTRY_LIMIT) -> bytes:
        """The bytes of a slot. Raises Missing if it is empty, TooLong past `limit` bytes."""
        return self.store.get(self.ref(seq), limit=limit)

    def tail(self, hint_seq: int | None = None) -> int:
        """The newest slot's number, -1 if the log is empty: probes from the hint in doubling steps, then bisects.

        Under 30 point reads for 10,000 entries without a hint, two with a fresh one.
        Raises LostEntry if the hinted slot is empty: a hint is published only after its entry.
        """
        low = -1
        if hint_seq is not None and hint_seq >= 0:
            if not self._taken(hint_seq):
                lost = self.tail() + 1
                raise LostEntry(self._lost(lost, f"a hint names entry {hint_seq}"), lost)
            low = hint_seq
        step = 1
        while self._taken(low + step):
            low, step = low + step, 2 * step
        return self._bisect(low, low + step)

    def publish_hint(self, seq: int, digest: str) -> None:
        """Leave advice for the next reader. Losing it, or racing with another, does no harm."""
        hint = {"seq": seq, "ref": self.ref(seq), "digest": digest}
        self.store.put(self._hint_name, json.dumps(hint, sort_keys=True).encode())

    def hint(self) -> Hint | None:
        """The published advice; None if there is none or it makes no sense: a damaged number is no proof of a slot."""
        try:
            hint = _parse_hint(self.store.get(self.store.ref(self._hint_name), limit=_HINT_LIMIT))
        except (Missing, TooLong):
            return None
        return hint if hint and hint.ref == self.ref(hint.seq) else None

    def gaps(self, tail: int, *, confirm: int = 16) -> list[int]:
        """Empty slots below the newest one known, by a listing and then a point read each; at most `confirm` of them.

        Each is a lost entry. Reads the whole listing; a slot the listing only hides costs one point read.
        """
        listed = set(self._listed())
        newest = max(listed, default=-1)
        unlisted = (seq for seq in range(max(tail, newest) + 1) if seq not in listed)
        return [seq for seq in itertools.islice(unlisted, confirm) if not self._taken(seq)]

    def check_end(self, tail: int) -> None:
        """Raises LostEntry if the slot after `tail` is empty though a listing shows later ones. One request, mostly.

        Asked before that slot is written by somebody who read the log long ago.
        """
        later = any(seq > tail + 1 for seq in self._listed(after=tail))
        if later and not self._taken(tail + 1):
            raise LostEntry(self._lost(tail + 1, "the listing shows later ones"), tail + 1)

    def ref(self, seq: int) -> Ref:
        """The Ref of a slot."""
        return self.store.ref(self.name(seq))

    def _settle(self, name: str, data: bytes) -> Won | Lost:
        """Who has the slot; Missing if nobody."""
        ref = self.store.ref(name)
        found = self.store.read_range(ref, 0, ENTRY_LIMIT + 1)
        return Won(ref) if found == data else Lost(found)

    def _taken(self, seq: int) -> bool:
        """Whether the slot is taken, by a point read. Only Missing means no: every other refusal is raised."""
        if seq >= _LAST_SEQ:
            return False  # no name for it, whatever an outsider put into the slots before
        try:
            self.store.stat(self.ref(seq))
        except Missing:
            return False
        return True

    def _bisect(self, low: int, high: int) -> int:
        """The last taken slot, where `low` is taken (or -1) and `high` is empty."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._taken(middle):
                low = middle
            else:
                high = middle
        return low

    def _listed(self, after: int = -1) -> Iterator[int]:
        """Slot numbers beyond `after` that a listing shows, ascending; other names are not ours."""
        slot = re.compile(re.escape(self.prefix) + r"([0-9]{20})\.json")
        for stat in self.store.list(self.prefix, after=self.name(after) if after >= 0 else None):
            if (match := slot.fullmatch(stat.name)) and int(match[1]) < _LAST_SEQ:
                yield int(match[1])

    def _lost(self, seq: int, evidence: str) -> str:
        return (
            f"{self.store.address}: the log entry {self.name(seq)} is missing, but {evidence}: an entry has been lost. "
            "Write and delete nothing; restore that file from a backup of the storage, or fork from a good checkpoint."
        )


def _wait(attempt: int) -> float:
    """Seconds to wait after the given failed attempt (1, 2, …)."""
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (attempt - 1))


def _parse_hint(data: bytes) -> Hint | None:
    """A hint from anybody's bytes; None unless every field is what it should be."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or set(fields) != {"seq", "ref", "digest"}:
        return None
    seq, ref, digest = fields["seq"], fields["ref"], fields["digest"]
    if type(seq) is not int or not 0 <= seq < _LAST_SEQ or type(ref) is not str or type(digest) is not str:
        return None
    return Hint(seq, Ref(ref), digest) if _DIGEST.fullmatch(digest) else None
