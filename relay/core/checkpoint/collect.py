"""Retires checkpoints and deletes the files that retention allows, for the holder of the lease."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from relay.core.checkpoint import retention
from relay.core.checkpoint.manifest import Manifest
from relay.core.checkpoint.restore import Damaged, read_manifest
from relay.core.checkpoint.retention import GRACE_S, ROOM, FileVerdict, Keep, going, to_retire
from relay.core.errors import RelayError
from relay.core.events import SessionEvent, Trouble
from relay.core.lease.lease import Lease
from relay.core.ledger.changes import Key, Retire
from relay.core.ledger.state import RunState
from relay.core.names import Names
from storage.base import Stat, Store, StoreError
from storage.capabilities import give_up, unfinished

EVERY_S = 600.0
"""Seconds between two listings of the store."""


@dataclass(frozen=True)
class Survey:
    """A listing of the store, with the decision for each file by one view."""

    decided: list[FileVerdict]
    now: float
    """Store time, or a little less."""


@dataclass
class Surveyor:
    """Lists the checkpoints of a run and decides about each file; remembers verified manifests."""

    store: Store
    """Holds the checkpoints."""
    ledger_store: Store
    names: Names
    _manifests: dict[Key, Manifest] = field(default_factory=dict)

    def __call__(self, state: RunState, short_of_space: bool) -> Survey:
        """List every checkpoint file in the store. Raises StoreError."""
        self._manifests = verified_manifests(state, self.store, self.names, self._manifests)
        listed = list(self.store.list(self.names.checkpoints))
        now = _known_time(state, listed) if short_of_space else self._now()
        decided = retention.decide_files(state, self.names, listed, self._manifests, now, short_of_space=short_of_space)
        return Survey(decided, now)

    def _now(self) -> float:
        """Store time. With two stores the earlier one: one dates the files, the other the entries."""
        stores = [self.store] if self.ledger_store is self.store else [self.store, self.ledger_store]
        return min(store.now() for store in stores)


@dataclass
class Housekeeper:
    """Called after each commit, on the committing thread. It reports errors, and tries again after a later commit."""

    monotonic: Callable[[], float]
    store: Store
    """Holds the checkpoints."""
    ledger_store: Store
    names: Names
    lease: Lease
    keep: Keep
    still_ours: Callable[[], bool]
    """Whether the lease is still ours, read again after a silence (P5); called before each delete."""
    event: Callable[[SessionEvent], None]
    over: bool = False
    """The session is ending: delete nothing more."""
    _collected: set[Key] = field(default_factory=set)
    _last: float | None = None

    def __post_init__(self) -> None:
        self._survey = Surveyor(self.store, self.ledger_store, self.names)

    def __call__(self, short_of_space: bool = False) -> None:
        """Retire, then delete: at most every ten minutes, or at once and without the grace period if space is short.

        If space is short, deletion also comes first: the store may refuse the entry of `retire` too.
        """
        if self.over:
            return
        try:
            if short_of_space:
                self._collect(short_of_space)
            self._retire()
            now = self.monotonic()
            if short_of_space or self._last is None or now - self._last >= EVERY_S:
                self._last = now
                self._collect(short_of_space)
                sweep_signs(self.ledger_store, self.names, self.lease.epoch)
                sweep_parts(self.store, self.names, self.lease.epoch)
        except (StoreError, RelayError) as error:
            self.event(Trouble("cleaning", error))

    def make_room(self) -> None:
        """Before a commit, which a full list of retained checkpoints would refuse. Raises as `Lease.append` does."""
        if len(self.lease.state.retained) >= ROOM:
            self._retire()

    def _retire(self) -> None:
        going = to_retire(self.lease.state, self.keep)
        if not going:
            return
        gone = tuple(sorted(self._collected))

        def build(state: RunState) -> Retire:
            known = {r.key for r in state.retired}
            return Retire(retire=to_retire(state, self.keep), collected=tuple(key for key in gone if key in known))

        self.lease.append("retire", build)
        self._collected -= set(gone)

    def _collect(self, short_of_space: bool) -> None:
        state = self.lease.refresh()
        found = self._survey(state, short_of_space)
        gone = delete(going(found.decided), self.store, self.names, self._may_delete)
        self._collected |= gone & {r.key for r in state.retired}  # another folder of a retained key may go before it
        shown = {place[:2] for file in found.decided if (place := self.names.parse_checkpoint(file.stat.name))}
        self._collected |= {r.key for r in state.retired if r.key not in shown and found.now - r.at >= GRACE_S}

    def _may_delete(self) -> bool:
        return not self.over and self.still_ours()


def _known_time(state: RunState, listed: list[Stat]) -> float:
    """Store time, or a little less, without a write to the store."""
    return max([*(stat.modified for stat in listed), *(retired.at for retired in state.retired)], default=0.0)


def sweep_signs(store: Store, names: Names, epoch: int) -> None:
    """Delete heartbeats and stop requests of epochs below `epoch`. They are not needed; one that stays is harmless."""
    with suppress(StoreError):
        for prefix in names.signs:
            for stat in store.list(prefix):
                number = names.parse_sign(stat.name)
                if number is not None and number < epoch:
                    store.delete(stat.ref)


def sweep_parts(store: Store, names: Names, epoch: int) -> None:
    """Abort unfinished multipart uploads of killed sessions of epochs below `epoch` (P8)."""
    with suppress(StoreError):
        for name in unfinished(store, names.checkpoints):
            place = names.parse_checkpoint(name)
            if place and place[1] < epoch:
                give_up(store, name)


def verified_manifests(
    state: RunState, store: Store, names: Names, known: dict[Key, Manifest] | None = None
) -> dict[Key, Manifest]:
    """Verified manifests of retained checkpoints by key. Raises StoreError."""
    found = {}
    for checkpoint in state.retained:
        manifest = (known or {}).get(checkpoint.key)
        if manifest is None:
            try:
                manifest = read_manifest(checkpoint, state, store, names)
            except Damaged:
                continue
        found[checkpoint.key] = manifest
    return found


def delete(
    going: list[Stat],
    store: Store,
    names: Names,
    may: Callable[[], bool],
    gone: Callable[[Stat], None] = lambda _: None,
) -> set[Key]:
    """Delete in the given order (manifests last). If a file cannot be deleted, its folder keeps its manifest.

    `may` is called before each delete; `gone` is called with each deleted file. Returns the keys whose listed files are
    all gone.
    """
    keys, stuck = set(), set()
    for stat in going:
        place = names.parse_checkpoint(stat.name)
        if place is None or place[:2] in stuck:
            continue
        keys.add(place[:2])
        if not may():
            return set()
        try:
            store.delete(stat.ref)
        except StoreError:
            stuck.add(place[:2])
        else:
            gone(stat)
    return keys - stuck
