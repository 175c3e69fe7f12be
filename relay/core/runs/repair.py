"""Repairs a run whose ledger holds several histories, or less than this machine has seen of it.

A person chooses the history that the run continues. The choice is one new entry; nothing is changed or deleted, and the
checkpoints of the other histories are kept for `fork`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from relay.core.checkpoint.local import LocalCheckpoint, LocalFolder
from relay.core.checkpoint.passedover import keeping
from relay.core.clock import Runtime
from relay.core.errors import BadData, UsageError, store_errors
from relay.core.lease.blockers import Held, HeldBy, blocked_by
from relay.core.lease.host import HostLocks
from relay.core.ledger import changes
from relay.core.ledger.atrest import refuse_deleted
from relay.core.ledger.changes import MAX_OTHERS, By, Choose, Other
from relay.core.ledger.entry import Entry
from relay.core.ledger.fields import Kept, Passed
from relay.core.ledger.frozen import MAX_DIGESTS, MAX_KEPT
from relay.core.ledger.histories import Walked, walk
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.passing import SlotsDiffer
from relay.core.ledger.reader import Point, Reader, SlotEmpty
from relay.core.ledger.rules import highest_epoch
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.ledger.verified import MarkDiffers, RolledBack, VerifiedUpTo
from relay.core.runs.histories import Conflict, Part, chosen, conflict, parted
from storage.base import Store
from storage.wording import counted

STORE = "store"
"""The choice if the ledger holds one history, but less than this machine has seen of it."""
Report = Callable[[str], None]


class NoSuchChoice(UsageError):
    """No history has that name."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(f"There is no choice {name!r}.")
        self.name, self.names = name, tuple(names)


class NothingLoads(BadData):
    """No session could continue from the chosen history."""

    def __init__(self, history: str) -> None:
        super().__init__(f"No checkpoint of history {history} can be loaded, so no session could continue it.")
        self.history = history


class ImpossibleEpoch(BadData):
    """A stored file's name has an epoch that no session can have started."""

    def __init__(self, file: str, epoch: int) -> None:
        super().__init__(f"{file} has epoch {epoch}, which no session can have started.")
        self.file, self.epoch = file, epoch


@dataclass(frozen=True)
class CheckedHistory:
    """One history with its checkpoints checked."""

    part: Part
    loading: tuple[Checkpoint, ...]
    """Retained checkpoints that can be loaded, oldest first."""
    broken: tuple[Checkpoint, ...]
    """Retained checkpoints that cannot be loaded."""
    clash: Conflict | None = None
    """Its conflict with the run's own history; None for that history itself."""
    decided: bool = False
    """Whether a person has decided that the run continues without it."""

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint from which the run would continue."""
        return self.loading[-1] if self.loading else None


@dataclass(frozen=True)
class Beyond:
    """Evidence that the store once held more of the run than it does now."""

    mark: VerifiedUpTo | None = None
    """The newest entry that this machine has read; None if the store still has it."""
    local: tuple[LocalCheckpoint, ...] = ()
    """This machine's intact checkpoints that the ledger has named, or that are of a later epoch than it knows."""
    epoch: int = 0
    """The epoch of a stored file, if it is later than every history's; otherwise 0."""
    file: str = ""
    """Name of that file."""
    hint: int | None = None
    """A slot beyond the newest one that the log's hint names."""

    def __bool__(self) -> bool:
        return bool(self.mark or self.local or self.epoch or self.hint is not None)


@dataclass(frozen=True)
class Situation:
    """A run's histories and evidence, before a person chooses."""

    walked: Walked[RunState]
    histories: tuple[CheckedHistory, ...]
    """The run's own first."""
    beyond: Beyond

    @property
    def tail(self) -> int:
        """The newest slot."""
        return self.walked.point.seq

    @property
    def own(self) -> CheckedHistory:
        return self.histories[0]

    @property
    def others(self) -> tuple[CheckedHistory, ...]:
        return self.histories[1:]

    @property
    def open(self) -> bool:
        """Whether a person should decide."""
        return bool(self.beyond) or any(one.clash and not one.decided for one in self.others)

    def can_be_chosen(self, one: CheckedHistory) -> bool:
        """Whether a session could continue it, or none of them could be continued."""
        return one.head is not None or not one.broken or not any(other.head for other in self.histories)

    def named(self, name: str) -> CheckedHistory:
        """The history of that name. Raises NoSuchChoice (2)."""
        names = [one.part.name for one in self.histories] if self.others else [STORE]
        if name.lower() == STORE and not self.others:
            return self.own
        for one in self.histories if self.others else ():
            if one.part.name == name.upper():
                return one
        raise NoSuchChoice(name, names)


def look(
    ledger: RunLedger,
    checkpoints: Store,
    local_folder: LocalFolder,
    mark: VerifiedUpTo | None,
    intact: Callable[[Checkpoint, RunState], bool],
    report: Report = lambda _: None,
) -> Situation:
    """Read the whole ledger, every checkpoint of its histories, and this machine's records of the run.

    Raises BadData (65) for a ledger with a hole, StorageUnreachable (69).
    """
    chain = ledger.chain
    with store_errors(ledger.store):
        tail = chain.log.tail()
        if lost := chain.log.gaps(tail):
            raise SlotEmpty(chain.log, lost[0])
        hint = chain.log.hint()
    report(f"reading {counted(tail + 1, 'entry', 'entries')}")
    walked = walk(chain, tail)
    state = walked.point.state
    if state is None:
        raise BadData(f"{ledger.store.address}: no entry under {ledger.names.ledger} can be read.")
    parts = parted(walked) or [_only(walked, state)]
    seen: dict[tuple[tuple[int, int], str], bool] = {}

    def loads(checkpoint: Checkpoint, of: RunState) -> bool:
        which = (checkpoint.key, checkpoint.sha256)
        if which not in seen:
            report(f"reading step {checkpoint.step:,} (epoch {checkpoint.epoch}, {checkpoint.bytes / 1e6:.1f} MB)")
            seen[which] = intact(checkpoint, of)
        return seen[which]

    found = Situation(walked, tuple(_history(part, parts[0], loads) for part in parts), Beyond())
    return replace(found, beyond=_beyond(ledger, checkpoints, local_folder, mark, hint.seq if hint else None, found))


def rolled_back(
    ledger: RunLedger, view: View, local_folder: LocalFolder, mark: VerifiedUpTo | None
) -> RolledBack | None:
    """The evidence on this machine that the store lost entries, from one reading; None if there is none."""
    try:
        local_folder.refuse_rolled_back(local_folder.all(), view.state)
    except RolledBack as found:
        return found
    with store_errors(ledger.store):
        if mark is None or not _is_lost(mark, view.seq, ledger.chain.reader):
            return None
    return MarkDiffers(view.state.run, mark, view.seq, view.state.step)


def choose(
    situation: Situation,
    wanted: CheckedHistory,
    ledger: RunLedger,
    checkpoints: Store,
    local_folder: LocalFolder,
    locks: HostLocks,
    *,
    session: str,
    account: str,
    notice: Callable[[Held], None] = lambda held: None,
) -> View:
    """Append that the run continues from `wanted`. Returns the view at that entry.

    Raises LeaseHeld (73) while a session trains in any of the histories, PolicyRefused (77) for a deleted run, Refused
    (65) if another process wrote since `look`, StorageUnreachable (69), Unsettled (74).
    """
    refuse_deleted(situation.own.part.state)
    refuse_deleted(wanted.part.state)
    if not situation.can_be_chosen(wanted):
        raise NothingLoads(wanted.part.name)
    gone = {one.part.name: _gone(one.part.state, ledger, locks, notice) for one in situation.histories}
    _read_again(ledger, situation)
    epoch = _highest_epoch(situation, wanted, local_folder)
    without = [one for one in situation.histories if one is not wanted]
    kept = _kept(wanted, without, situation, ledger, checkpoints, epoch)
    change = Choose(
        epoch=epoch,
        others=tuple(_others(without, situation))[-MAX_OTHERS:],
        kept=tuple(kept[-MAX_KEPT:]),
        unkept=len(kept[:-MAX_KEPT]),
        took_over=gone[wanted.part.name],
        why=_why(wanted, without, situation, account),
    )
    with store_errors(ledger.store):
        now = ledger.store.now()
    point = Point(situation.tail, situation.walked.digests[-1], wanted.part.state, _end(wanted, situation))
    digests = situation.walked.digests[point.base + 1 :][-MAX_DIGESTS:]
    passed = Passed(digests=digests) if digests else None
    view = ledger.chain.append_at(point, "choose", change, By(session, None, epoch, now), passed)
    if situation.beyond.hint is not None:
        with store_errors(ledger.store, "The choice is recorded, but the ledger's hint could not be replaced"):
            ledger.chain.log.publish_hint(view.seq, view.digest)
    for packed in situation.beyond.local:
        local_folder.set_aside(packed)
    return view


def _only(walked: Walked[RunState], state: RunState) -> Part:
    """The only history of a ledger."""
    return Part("A", walked.point.seq, (), state, state.step)


def _history(part: Part, own: Part, loads: Callable[[Checkpoint, RunState], bool]) -> CheckedHistory:
    good: list[Checkpoint] = []
    bad: list[Checkpoint] = []
    for checkpoint in part.state.undamaged:
        (good if loads(checkpoint, part.state) else bad).append(checkpoint)
    if part is own:
        return CheckedHistory(part, tuple(good), tuple(bad))
    return CheckedHistory(part, tuple(good), tuple(bad), conflict(own, part), chosen(own, part))


def _is_lost(mark: VerifiedUpTo, tail: int, reader: Reader[RunState]) -> bool:
    """Whether the entry that this machine has read is gone: its slot is missing or holds another entry.

    An unreadable slot may still hold it.
    """
    if not mark.sure or mark.seq > tail:
        return mark.sure
    slot = reader.slot(mark.seq)
    return slot.entry is not None and slot.digest != mark.digest


def _beyond(
    ledger: RunLedger,
    checkpoints: Store,
    local_folder: LocalFolder,
    mark: VerifiedUpTo | None,
    hint: int | None,
    found: Situation,
) -> Beyond:
    """Evidence that the store held more of the run than any of its histories does now."""
    states = [one.part.state for one in found.histories]
    epoch, file = ledger.newest_epoch(checkpoints)
    known = max(state.next_epoch - 1 for state in states)
    later = epoch > known
    return Beyond(
        mark if mark and _is_lost(mark, found.tail, ledger.chain.reader) else None,
        tuple(_local(local_folder, states)),
        epoch if later else 0,
        file if later else "",
        hint if hint is not None and hint > found.tail else None,
    )


def _local(local_folder: LocalFolder, states: Sequence[RunState]) -> Iterable[LocalCheckpoint]:
    """This machine's intact checkpoints that the run should hold but that none of its histories does."""
    own, held = states[0], {key for state in states for key in _held(state)}
    later = max(state.next_epoch for state in states)
    for packed in local_folder.all():
        missing = packed.run_id == own.run_id and packed.key not in held
        proves = packed.epoch >= later or (packed.committed and packed.step > own.step)
        if missing and proves and local_folder.intact(packed):
            yield packed


def _held(state: RunState) -> Iterable[tuple[int, int]]:
    yield from (c.key for c in state.retained)
    yield from (r.key for r in state.retired)
    yield from (k.key for k in state.kept)


def _gone(
    state: RunState, ledger: RunLedger, locks: HostLocks, notice: Callable[[Held], None]
) -> changes.TookOver | None:
    """How the session that holds a history's lease was found to be gone; None without one. Raises LeaseHeld (73)."""
    runtime: Runtime = ledger.chain.runtime
    free = blocked_by(ledger, runtime, locks)
    while isinstance(found := free(state), Held):
        if not found.confirming:
            raise HeldBy(state, found)
        notice(found)
        runtime.sleep(max(0.05, min(found.left_s, found.holder.ttl_s / 6)))
    return found


def _read_again(ledger: RunLedger, situation: Situation) -> None:
    """Raises SlotsDiffer (69) if the relevant slots read differently on new connections: a choice needs good reads."""
    first = min((one.part.after for one in situation.others), default=situation.tail - 1)
    reader = Reader(ledger.chain.log.again(), ledger.chain.machine)
    for seq in range(first + 1, situation.tail + 1):
        with store_errors(ledger.store):
            digest = reader.read(seq).digest
        if digest != situation.walked.digests[seq]:
            raise SlotsDiffer(ledger.chain.log, range(seq, seq + 1))


def _highest_epoch(situation: Situation, wanted: CheckedHistory, local_folder: LocalFolder) -> int:
    """The highest epoch that the run is known to have used, limited to what a choice may set.

    Raises ImpossibleEpoch (65) if a file has an epoch that no session can have started.
    """
    beyond, limit = situation.beyond, highest_epoch(wanted.part.state)
    for epoch, file in (
        (beyond.epoch, beyond.file),
        *((one.epoch, local_folder.folder(one.key)) for one in beyond.local),
    ):
        if epoch > limit:
            raise ImpossibleEpoch(str(file), epoch)
    begun = [one.part.state.next_epoch - 1 for one in situation.histories]
    begun += [beyond.mark.epoch] if beyond.mark else []
    return max(beyond.epoch, *(one.epoch for one in beyond.local), min(limit, max(begun)))


def _end(one: CheckedHistory, situation: Situation) -> Entry:
    """The newest entry of a history."""
    entry = one.part.entries[-1] if one.part.slots else situation.walked.point.entry
    assert entry is not None
    return entry


def _others(without: Iterable[CheckedHistory], situation: Situation) -> Iterable[Other]:
    beyond = situation.beyond
    for one in without:
        seq, state = _end(one, situation).seq, one.part.state
        yield Other(seq=seq, digest=situation.walked.digests[seq], step=state.step, epoch=state.epoch)
    if beyond.mark:
        mark = beyond.mark
        yield Other(seq=mark.seq, digest=mark.digest, step=mark.step, epoch=mark.epoch)


def _kept(
    wanted: CheckedHistory,
    without: Iterable[CheckedHistory],
    situation: Situation,
    ledger: RunLedger,
    checkpoints: Store,
    epoch: int,
) -> list[Kept]:
    """Checkpoints that no history names, and loadable ones of other histories: clean-up in the new epoch would delete
    them."""
    held = {(c.key, c.sha256) for c in wanted.part.state.retained}
    named: dict[tuple[tuple[int, int], str], Kept] = {}
    for one in without:
        slots = {(c.checkpoint.key, c.checkpoint.sha256): c.slot for c in one.part.commits}
        for c in one.loading:
            which = (c.key, c.sha256)
            if which not in held:
                named[which] = Kept(
                    slot=slots.get(which, situation.tail),
                    step=c.step,
                    epoch=c.epoch,
                    manifest=c.manifest,
                    ref=c.ref,
                    sha256=c.sha256,
                    base=c.base if c.borrows else None,
                )
    retained = tuple(c for one in situation.histories for c in one.part.state.retained)
    state = wanted.part.state.model_copy(update={"epoch": epoch, "retained": retained})
    unknown = keeping(ledger, checkpoints)(state, range(situation.tail + 1))
    return [*unknown, *sorted(named.values(), key=lambda k: k.key)]


def _why(wanted: CheckedHistory, without: list[CheckedHistory], situation: Situation, account: str) -> str:
    end = _end(wanted, situation).seq
    text = f"{account} chose the history that ends in slot {end} (step {wanted.part.state.step})"
    if without:
        others = ", ".join(f"slot {_end(one, situation).seq} (step {one.part.state.step})" for one in without)
        text += f" over those that end in {others}"
    if mark := situation.beyond.mark:
        text += f"; this machine had read slot {mark.seq} (step {mark.step})"
    return f"{text}."
