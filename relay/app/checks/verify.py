"""Reads every entry and every retained file of a run, and its store's registry; writes nothing (P1)."""

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
from relay.app.messages.wording import counted
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
"""Loads a checkpoint whose files are intact. Raises Damaged if its state differs, BadData if that cannot be tested."""

STRAYS = 16
"""Files beyond a gap that are read; more of them are not an accident."""


def verify(
    ledger: RunLedger, store: Store, report: Callable[[str], None] = lambda _: None, deep: Deep | None = None
) -> Verification:
    """Read all entries and files, and load each checkpoint with `deep`. `report` gets progress lines.

    Damage is returned, not raised. Raises BadConfig for an unknown run, StorageUnreachable (69), and errors of `deep`.
    """
    found, trouble = Verification(), ""
    state: RunState | None = None
    parts: list[Part] = []
    tail = -1
    try:
        view = ledger.read()
        state, tail = view.state, view.seq
        report(f"reading {counted(tail + 1, 'entry', 'entries')}")
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
        _checkpoints(ledger, state, store, found, report, deep)
        found.checkpoints = _with_verdicts(state, found.checkpoints)
        _kept(ledger, state, store, found)
        _histories(ledger, parts, store, found, report)
    if trouble:
        intact = found.intact if can_fork(ledger) else []
        found.incidents += lost(ledger.chain, trouble, tail, partial(verdict.hole, ledger.names.run, intact))
    _registry(ledger.store, ledger.chain.runtime, found)
    return found


def _check_epochs(ledger: RunLedger, store: Store, parts: Sequence[Part]) -> None:
    """Raises BadData if a file belongs to an epoch that no history of the run began."""
    ledger.validate()
    try:
        ledger.check_epochs(store)
    except BadData:
        if ledger.newest_epoch(store)[0] > max((part.state.next_epoch - 1 for part in parts), default=0):
            raise


def _registry(store: Store, runtime: Runtime, found: Verification) -> None:
    """Checks the store's registry of runs and accounts, if it exists."""
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
    """The damage of a slot, and the session that could write it."""

    damage: Damage
    by: str
    unreadable: bool


def _slots(chain: Chain[S], tail: int, found: Verification, cause: str) -> Walked[S]:
    """Walk a log and report its invalid slots.

    A slot that a later entry has recorded is known. A slot of another history is reported with that history. Any other
    makes `verify` fail.
    """
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
            means = _verdict(one, recorded.get(number), was.get(number, ""))
            against, file = number not in recorded, chain.log.name(number)
            incident = Incidental(cause, one.damage.text, slot=number, file=file, by=one.by, verdict=means)
            found.incidents.append(replace(incident, against=against))
    return walked


def _verdict(one: _Wrong, recorded: bool | None, was: str) -> Verdict:
    """`recorded`: whether a later entry that passed over the slot names it (format 5 on); None: no such entry."""
    if one.damage.healed:
        return verdict.healed()
    if recorded is not None:
        return verdict.passed_over(recorded)
    return verdict.rotted_entry(was) if one.damage.rotted else verdict.invalid_entry(one.unreadable)


def _kept(ledger: RunLedger, state: RunState, store: Store, found: Verification) -> None:
    """Checkpoints that the run keeps although another history committed them. None is in use."""
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
    ledger: RunLedger, parts: Sequence[Part], store: Store, found: Verification, report: Callable[[str], None]
) -> None:
    """The other histories of the run, and their checkpoints that can still be loaded."""
    own = parts[0] if parts else None
    for other in parts[1:]:
        assert own is not None
        loading = loadable(ledger, other, own, store, report)
        found.incidents.append(story(ledger.names.run, own, other, loading, chosen(own, other)))
    found.histories = [row(part) for part in parts]


def _in_charge(point: Point[Any]) -> str:
    """The session that could write the next slot; "" for a registry, where it is unknown."""
    if not isinstance(point.state, RunState):
        return ""
    holder = point.state.holder
    if holder is None:
        return "written while no session held the lease"
    return f"written while the session of {holder.account} (epoch {holder.epoch}) held the lease"


def _history(ledger: RunLedger, state: RunState, found: Verification) -> None:
    """Checks the oldest sessions, which are stored outside the log; damage there does not affect training."""
    try:
        ledger.archived_links(state)
    except BadData as error:
        found.incidents.append(Incidental("history", paragraph(error), against=True, verdict=verdict.history()))


def _acknowledged(point: Point[Any]) -> dict[int, bool]:
    """Slots that this entry passes over, and whether its format names them."""
    entry = point.entry
    return dict.fromkeys(entry.passed_slots, entry.passed is not None) if entry and entry.seq == point.seq else {}


def _checkpoints(
    ledger: RunLedger,
    state: RunState,
    store: Store,
    found: Verification,
    report: Callable[[str], None],
    deep: Deep | None,
) -> None:
    check = _once(_file)
    for checkpoint in state.retained:
        report(f"reading step {checkpoint.step:,} ({checkpoint.bytes / 1e6:.1f} MB)")
        checked = _checkpoint(checkpoint, state, store, ledger.names, check)
        if checked.ok and deep:
            report(f"loading step {checkpoint.step:,}")
            checked = _loaded(checked, checkpoint, state, store, deep)
        if checked.ok or retained(ledger, checkpoint):
            found.checkpoints.append(checked)


def loadable(
    ledger: RunLedger, other: Part, own: Part, store: Store, report: Callable[[str], None] = lambda _: None
) -> list[Checkpoint]:
    """Intact checkpoints that another history retains and the run's own does not."""
    held = {(c.key, c.sha256) for c in own.state.retained}
    intact, found = intact_by(ledger, store), []
    for checkpoint in other.state.undamaged:
        if (checkpoint.key, checkpoint.sha256) not in held:
            report(f"reading step {checkpoint.step:,} of history {other.name} ({checkpoint.bytes / 1e6:.1f} MB)")
            if intact(checkpoint, other.state):
                found.append(checkpoint)
    return found


def intact_by(ledger: RunLedger, store: Store) -> Callable[[Checkpoint, RunState], bool]:
    """A function that reports whether every byte of a retained checkpoint's files is intact."""
    check = _once(_file)
    return lambda checkpoint, state: _checkpoint(checkpoint, state, store, ledger.names, check).ok


def quick_look(ledger: RunLedger, state: RunState, store: Store) -> list[Checked]:
    """Check manifests and file sizes of all retained checkpoints. Raises StorageUnreachable (69)."""
    check = _once(_size)
    looked = [(c, _checkpoint(c, state, store, ledger.names, check)) for c in state.retained]
    return _with_verdicts(state, [checked for c, checked in looked if checked.ok or retained(ledger, c)])


def _checkpoint(
    checkpoint: Checkpoint,
    state: RunState,
    store: Store,
    names: Names,
    check: Callable[[Store, FileEntry], None],
) -> Checked:
    """Checks every file, so that the result names all files to restore."""
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
    """Checks that the files hold the state whose hash the ledger names."""
    try:
        with store_errors(store, f"Step {checkpoint.step} could not be read, which proves no damage"):
            deep(checkpoint, state)
    except Damaged as error:
        return replace(checked, ok=False, reason=str(error), known=checkpoint.damaged)
    return replace(checked, loaded=True)


def _once(check: Callable[[Store, FileEntry], None]) -> Callable[[Store, FileEntry], None]:
    """Caches a check by file, because checkpoints can share files."""
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
    """Raises Damaged if the file is missing or its bytes do not match the manifest."""
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
    """Raises Damaged if the file is missing or has another size, on two connections."""
    ref = own_ref(store, file.key, file.ref)
    if _stored_size(store, ref) == file.size or (size := _stored_size(fresh(store), ref)) == file.size:
        return
    raise Damaged(f"{file.key} is missing") if size is None else _other_size(file, size)


def _stored_size(store: Store, ref: Ref) -> int | None:
    """None if the file is missing."""
    try:
        return store.stat(ref).size
    except Missing:
        return None


def _other_size(file: FileEntry, size: int) -> Damaged:
    return Damaged(
        f"{file.key} has {f'more than {file.size:,}' if size > file.size else f'{size:,}'} bytes, not {file.size:,}"
    )


def _with_verdicts(state: RunState, checked: list[Checked]) -> list[Checked]:
    """Adds the meaning of each damage, which depends on the other checkpoints."""
    intact = [c.step for c in checked if c.ok and not c.known]

    def of(c: Checked) -> Verdict:
        if c.ok:
            return NOTHING
        return verdict.known_damage() if c.known else verdict.damaged_checkpoint(state, c.step, intact)

    return [replace(c, verdict=of(c)) for c in checked]


def lost(
    chain: Chain[Any], text: str, tail: int, hole: Callable[[str], Verdict], cause: str = "ledger"
) -> list[Incidental]:
    """Every empty slot below `tail`; without any, `text` of the read error. Raises StorageUnreachable.

    `hole`: the verdict of an empty slot, from the SHA-256 that its file had.
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
    oldest = f". {verdict.oldest_lost()}"
    return [
        Incidental(
            cause,
            f"slot {slot} is empty, but later slots are not: an entry is lost{oldest if slot == 0 else ''}",
            against=True,
            slot=slot,
            file=log.name(slot),
            verdict=hole(was.get(slot, "")),
        )
        for slot in slots
    ]


def _is_entry(chain: Chain[Any], seq: int) -> bool:
    """Whether a slot holds an entry of any version."""
    try:
        return chain.reader.slot(seq).entry is not None
    except NewerFormat:
        return True


def _parent(chain: Chain[Any], seq: int) -> str:
    """The parent SHA-256 that this slot's entry names; "" without an entry."""
    entry = chain.reader.slot(seq).entry
    return entry.parent if entry else ""
