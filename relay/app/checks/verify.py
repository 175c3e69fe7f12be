"""Re-reads every entry and every retained file of a run, and its store's registry; writes and decides nothing (P1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from relay.app.checks import verdict
from relay.app.checks.story import registry_story, story
from relay.app.checks.verdict import NOTHING, Verdict
from relay.app.checks.verification import REGISTRY, Checked, Incidental, Verification
from relay.app.messages.errors import paragraph
from relay.app.messages.histories import row
from relay.core.checkpoint.manifest import FileEntry
from relay.core.checkpoint.passedover import checkpoint_of
from relay.core.checkpoint.restore import Damaged, own_ref, read_manifest, retained
from relay.core.clock import Runtime
from relay.core.errors import BadData, store_errors
from relay.core.ledger.chain import Chain
from relay.core.ledger.entry import NewerFormat
from relay.core.ledger.histories import Walked, walk
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.reader import Damage, Point, S, Slot
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.names import Names
from relay.core.runs.histories import Part, chosen, parted
from relay.core.runs.salvage import can_fork, salvage
from storage.base import Missing, Ref, Store, fresh
from storage.evidence import Arrived, settled
from storage.slots import listed
from storage.transfer import hashed

Deep = Callable[[Checkpoint, RunState], None]
"""Loads a checkpoint whose files are intact. Raises Damaged if they hold another state, BadData if nobody can tell."""

STRAYS = 16
"""Files beyond a gap that are looked at: more are no accident."""


def verify(
    ledger: RunLedger, store: Store, tell: Callable[[str], None] = lambda _: None, deep: Deep | None = None
) -> Verification:
    """Read everything, and load each checkpoint with `deep`.

    Damage is reported, not raised; raises BadConfig for an unknown run, StorageUnreachable (69), and what `deep` does.
    """
    found, trouble = Verification(), ""
    state: RunState | None = None
    parts: list[Part] = []
    tail = -1
    try:
        view = ledger.read()
        state, tail = view.state, view.seq
        tell(f"reading {tail + 1:,} entries")
        walked = _slots(ledger.chain, tail, found, "entry")
        state, parts = walked.point.state or state, parted(walked)
        _check_epochs(ledger, store, parts)
    except BadData as error:
        trouble, salvaged = paragraph(error), salvage(ledger)
        if salvaged:
            state, tail = salvaged.state, salvaged.seq
    if state:
        found.incidents[:0] = [Incidental(i.cause, i.text, i.step, i.epoch, i.at) for i in state.incidents]
        _history(ledger, state, found)
        _checkpoints(ledger, state, store, found, tell, deep)
        found.checkpoints = judged(state, found.checkpoints)
        _kept(ledger, state, store, found)
        _histories(ledger, parts, store, found, tell)
    if trouble:
        intact = found.intact if can_fork(ledger) else []
        found.incidents += lost(ledger.chain, trouble, tail, partial(verdict.hole, ledger.names.run, intact))
    _registry(ledger.store, ledger.chain.runtime, found)
    return found


def _check_epochs(ledger: RunLedger, store: Store, parts: Sequence[Part]) -> None:
    """Raises BadData if a file is of an epoch that none of the run's histories began."""
    ledger.judge()
    try:
        ledger.check_epochs(store)
    except BadData:
        if ledger.newest_epoch(store)[0] > max((part.state.epoch for part in parts), default=0):
            raise


def _registry(store: Store, runtime: Runtime, found: Verification) -> None:
    """The log that lists the store's runs and accounts, if it has begun."""
    chain, tail = Registry(store, runtime, session="").chain, -1
    try:
        view = chain.read()
        tail = view.seq if view else -1
        walked = _slots(chain, tail, found, REGISTRY)
        found.incidents += [registry_story(other) for other in walked.others]
    except BadData as error:
        newest = max(listed(store, chain.log.prefix), default=-1)
        found.incidents += lost(chain, paragraph(error), newest, verdict.registry_hole, REGISTRY)


@dataclass(frozen=True)
class _Wrong:
    """What is wrong with a slot, and who could write it."""

    damage: Damage
    by: str
    unreadable: bool


def _slots(chain: Chain[S], tail: int, found: Verification, cause: str) -> Walked[S]:
    """Walk a log. A void slot that a later entry has recorded is known, and one of another history is reported with
    that history; any other counts against the run."""
    wrong: dict[int, _Wrong] = {}
    recorded: dict[int, bool] = {}
    was: dict[int, str] = {}
    before = ""

    def each(slot: Slot, point: Point[S]) -> None:
        nonlocal before
        found.entries += cause != REGISTRY
        for d in point.damage:
            earlier = wrong.get(d.slot)
            by = earlier.by if earlier else before
            wrong[d.slot] = _Wrong(d, by, earlier.unreadable if earlier else slot.entry is None)
        if slot.entry is not None:
            was[slot.seq - 1] = slot.entry.parent
        recorded.update(_acknowledged(point))
        before = _in_charge(point)

    walked = walk(chain, tail, each)
    elsewhere = {seq for other in walked.others for seq in other.seqs} | {slot.seq for slot in walked.own}
    for number, one in sorted(wrong.items()):
        if number not in elsewhere:
            means = _means(one, recorded.get(number), was.get(number, ""))
            against, file = number not in recorded, chain.log.name(number)
            incident = Incidental(cause, one.damage.text, slot=number, file=file, by=one.by, verdict=means)
            found.incidents.append(replace(incident, against=against))
    return walked


def _means(one: _Wrong, says: bool | None, was: str) -> Verdict:
    """`says`: whether the entry that passed over the slot is of a format that says so; None if none has."""
    if one.damage.healed:
        return verdict.healed()
    if says is not None:
        return verdict.passed_over(says)
    return verdict.rotted_entry(was) if one.damage.rotted else verdict.void_entry(one.unreadable)


def _kept(ledger: RunLedger, state: RunState, store: Store, found: Verification) -> None:
    """Checkpoints that the run keeps though its own history did not commit them: none of them is in use."""
    intact = intact_by(ledger, store)
    for one in state.kept:
        why = ""
        with store_errors(store, f"Step {one.step} could not be read, which proves no damage"):
            try:
                checkpoint = checkpoint_of(one, state, store)
                whole = intact(checkpoint, state)
            except Damaged as error:
                whole, why = False, f" ({error})"
        text = f"step {one.step:,} (epoch {one.epoch}) is kept for `fork`; it {'can' if whole else 'cannot'} be loaded"
        found.incidents.append(Incidental("kept", f"{text}{why}", one.step, one.epoch))


def _histories(
    ledger: RunLedger, parts: Sequence[Part], store: Store, found: Verification, tell: Callable[[str], None]
) -> None:
    """The histories beside the run's own, and which of their checkpoints can still be loaded."""
    own = parts[0] if parts else None
    for other in parts[1:]:
        assert own is not None
        loading = loadable(ledger, other, own, store, tell)
        found.incidents.append(story(ledger.names.run, own, other, loading, chosen(own, other)))
    found.histories = [row(part) for part in parts]


def _in_charge(point: Point[Any]) -> str:
    """Who could write the next slot; of a registry nobody can tell."""
    if not isinstance(point.state, RunState):
        return ""
    holder = point.state.holder
    if holder is None:
        return "written while nobody held the lease"
    return f"written while the session of {holder.account} (epoch {holder.epoch}) held the lease"


def _history(ledger: RunLedger, state: RunState, found: Verification) -> None:
    """The oldest sessions, which lie beside the log; damage there hides who trained, and costs nothing else."""
    try:
        ledger.archived_links(state)
    except BadData as error:
        found.incidents.append(Incidental("history", paragraph(error), against=True, verdict=verdict.history()))


def _acknowledged(point: Point[Any]) -> dict[int, bool]:
    """Slots that this entry passes over, and whether its format says so."""
    entry = point.entry
    return dict.fromkeys(entry.voids, entry.passed is not None) if entry and entry.seq == point.seq else {}


def _checkpoints(
    ledger: RunLedger,
    state: RunState,
    store: Store,
    found: Verification,
    tell: Callable[[str], None],
    deep: Deep | None,
) -> None:
    check = _once(_file)
    for checkpoint in state.retained:
        tell(f"reading step {checkpoint.step:,} ({checkpoint.bytes / 1e6:.1f} MB)")
        checked = _checkpoint(checkpoint, state, store, ledger.names, check)
        if checked.ok and deep:
            tell(f"loading step {checkpoint.step:,}")
            checked = _loaded(checked, checkpoint, state, store, deep)
        if checked.ok or retained(ledger, checkpoint):
            found.checkpoints.append(checked)


def loadable(
    ledger: RunLedger, other: Part, own: Part, store: Store, tell: Callable[[str], None] = lambda _: None
) -> list[Checkpoint]:
    """Checkpoints that another history retains and the run's own does not, whose files are all intact."""
    held = {(c.key, c.sha256) for c in own.state.retained}
    intact, found = intact_by(ledger, store), []
    for checkpoint in other.state.undamaged:
        if (checkpoint.key, checkpoint.sha256) not in held:
            tell(f"reading step {checkpoint.step:,} of history {other.name} ({checkpoint.bytes / 1e6:.1f} MB)")
            if intact(checkpoint, other.state):
                found.append(checkpoint)
    return found


def intact_by(ledger: RunLedger, store: Store) -> Callable[[Checkpoint, RunState], bool]:
    """Tells of a checkpoint that a state of the run retains whether every byte of its files is as it was written."""
    check = _once(_file)
    return lambda checkpoint, state: _checkpoint(checkpoint, state, store, ledger.names, check).ok


def quick_look(ledger: RunLedger, state: RunState, store: Store) -> list[Checked]:
    """Every retained checkpoint by its manifest and the sizes of its files only. Raises StorageUnreachable (69)."""
    check = _once(_size)
    looked = [(c, _checkpoint(c, state, store, ledger.names, check)) for c in state.retained]
    return judged(state, [checked for c, checked in looked if checked.ok or retained(ledger, c)])


def _checkpoint(
    checkpoint: Checkpoint,
    state: RunState,
    store: Store,
    names: Names,
    check: Callable[[Store, FileEntry], None],
) -> Checked:
    """Every file, so that all that must be restored is named."""
    wrong: dict[str, str] = {}
    with store_errors(store, f"Step {checkpoint.step} could not be read, which proves no damage"):
        try:
            files = read_manifest(checkpoint, state, store, names).files
        except Damaged as error:
            wrong[checkpoint.manifest], files = str(error), ()
        for file in files:
            try:
                check(store, file)
            except Damaged as error:
                wrong[file.key] = str(error)
    made = state.link_of(checkpoint.epoch)
    return Checked(
        checkpoint.step,
        checkpoint.epoch,
        not wrong,
        "; ".join(wrong.values()),
        known=checkpoint.damaged and bool(wrong),
        files=tuple(wrong),
        by=made.account if made else "",
    )


def _loaded(checked: Checked, checkpoint: Checkpoint, state: RunState, store: Store, deep: Deep) -> Checked:
    """Whether the files hold the state that the ledger names."""
    try:
        with store_errors(store, f"Step {checkpoint.step} could not be read, which proves no damage"):
            deep(checkpoint, state)
    except Damaged as error:
        return replace(checked, ok=False, reason=str(error), known=checkpoint.damaged)
    return replace(checked, loaded=True)


def _once(check: Callable[[Store, FileEntry], None]) -> Callable[[Store, FileEntry], None]:
    """The same check, which remembers what it found of a file: several checkpoints may share it."""
    found: dict[FileEntry, str] = {}

    def remembering(store: Store, file: FileEntry) -> None:
        if file not in found:
            try:
                check(store, file)
                found[file] = ""
            except Damaged as error:
                found[file] = str(error)
        if found[file]:
            raise Damaged(found[file])

    return remembering


def _file(store: Store, file: FileEntry) -> None:
    """Raises Damaged if the store holds other bytes than the manifest names, or the file is not there."""
    ref = own_ref(store, file.key, file.ref)

    def read(source: Store, block: int | None) -> Arrived:
        return hashed(source, ref, most=file.size + 1, block=block)

    def right(found: Arrived) -> bool:
        return (found.size, found.sha256) == (file.size, file.sha256)

    try:
        found = settled(store, ref, read, right, file.size)
    except Missing:
        raise Damaged(f"{file.key} is missing") from None
    if right(found):
        return
    if found.size == file.size:
        raise Damaged(f"{file.key}, read twice, has SHA-256 {found.sha256[:16]}… and not {file.sha256[:16]}…")
    raise _other_size(file, found.size)


def _size(store: Store, file: FileEntry) -> None:
    """Raises Damaged if the store says, on two connections, that the file is not there or has another size."""
    ref = own_ref(store, file.key, file.ref)
    if _stored_size(store, ref) == file.size or (size := _stored_size(fresh(store), ref)) == file.size:
        return
    raise Damaged(f"{file.key} is missing") if size is None else _other_size(file, size)


def _stored_size(store: Store, ref: Ref) -> int | None:
    """None if it is not there."""
    try:
        return store.stat(ref).size
    except Missing:
        return None


def _other_size(file: FileEntry, size: int) -> Damaged:
    return Damaged(
        f"{file.key} has {f'more than {file.size:,}' if size > file.size else f'{size:,}'} bytes, not {file.size:,}"
    )


def judged(state: RunState, checked: list[Checked]) -> list[Checked]:
    """With what each damage means, now that it is known what else is intact."""
    intact = [c.step for c in checked if c.ok and not c.known]

    def of(c: Checked) -> Verdict:
        if c.ok:
            return NOTHING
        return verdict.known_damage() if c.known else verdict.damaged_checkpoint(state, c.step, intact)

    return [replace(c, verdict=of(c)) for c in checked]


def lost(
    chain: Chain[Any], text: str, tail: int, hole: Callable[[str], Verdict], cause: str = "ledger"
) -> list[Incidental]:
    """Every empty slot below `tail` by its number; else `text`, which the reading said. Raises StorageUnreachable.

    `hole`: what an empty slot means, by the SHA-256 that its file had.
    """
    log = chain.log
    with store_errors(log.store):
        slots = log.gaps(tail)
        beyond = [seq for seq in listed(log.store, log.prefix) if slots and seq > slots[0]]
        if beyond and len(beyond) <= STRAYS and not any(_is_entry(chain, seq) for seq in beyond):
            files = ", ".join(log.name(seq) for seq in beyond)
            text = f"slot {beyond[0]} is taken, but the slots from {slots[0]} on are empty"
            means = verdict.stray(files, slots[0] - 1)
            return [Incidental(cause, text, against=True, slot=beyond[0], file=log.name(beyond[0]), verdict=means)]
        was = {slot: _parent(chain, slot + 1) for slot in slots if slot + 1 in beyond}
    if not slots:
        means = hole("") if cause == REGISTRY else verdict.beyond(log.prefix.split("/")[2])
        return [Incidental(cause, text, against=True, verdict=means)]
    what = "slot {} is empty, but later slots are not: an entry has been lost"
    told = {slot: what.format(slot) + (f". {verdict.oldest_lost()}" if slot == 0 else "") for slot in slots}
    return [
        Incidental(cause, text, against=True, slot=slot, file=log.name(slot), verdict=hole(was.get(slot, "")))
        for slot, text in told.items()
    ]


def _is_entry(chain: Chain[Any], seq: int) -> bool:
    """Whether a slot holds an entry, of whatever version."""
    try:
        return chain.reader.slot(seq).entry is not None
    except NewerFormat:
        return True


def _parent(chain: Chain[Any], seq: int) -> str:
    """The SHA-256 that the slot before had, as the entry in this one names it; empty if there is none."""
    entry = chain.reader.slot(seq).entry
    return entry.parent if entry else ""
