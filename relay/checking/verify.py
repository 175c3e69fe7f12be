"""Re-reads every entry and every retained file of a run, and its store's registry; writes and decides nothing (P1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relay.checking import verdict
from relay.checking.verdict import NOTHING, Verdict
from relay.checking.verification import REGISTRY, Checked, Incidental, Verification
from relay.checkpoints.manifest import FileEntry
from relay.checkpoints.restore import Damaged, own_ref, read_manifest, retained
from relay.clock import Runtime
from relay.errors import BadData
from relay.ledger import RunLedger
from relay.log.chain import Chain
from relay.log.reader import Point
from relay.log.state import Checkpoint, RunState
from relay.names import Names
from relay.registry import Registry
from relay.runs.salvage import can_fork, salvage
from relay.text.trouble import speaking
from storage.base import Missing, Ref, Store, fresh
from storage.evidence import Arrived, settled
from storage.log import Log
from storage.slots import listed
from storage.transfer import hashed

Deep = Callable[[Checkpoint, RunState], None]
"""Loads a checkpoint whose files are intact. Raises Damaged if they hold another state, BadData if nobody can tell."""


def verify(
    ledger: RunLedger, store: Store, tell: Callable[[str], None] = lambda _: None, deep: Deep | None = None
) -> Verification:
    """Read everything, and load each checkpoint with `deep`.

    Damage is reported, not raised; raises BadConfig for an unknown run, StorageUnreachable (69), and what `deep` does.
    """
    found, trouble = Verification(), ""
    state: RunState | None = None
    tail = -1
    try:
        view = ledger.read()
        state, tail = view.state, view.seq
        tell(f"reading {tail + 1:,} entries")
        _slots(ledger.chain, tail, found, "entry")
        ledger.check_epochs(store)
    except BadData as error:
        trouble, salvaged = str(error), salvage(ledger)
        if salvaged:
            state, tail = salvaged.state, salvaged.seq
    if state:
        found.incidents[:0] = [Incidental(i.cause, i.text, i.step, i.epoch, i.at) for i in state.incidents]
        _history(ledger, state, found)
        _checkpoints(ledger, state, store, found, tell, deep)
        found.checkpoints = judged(state, found.checkpoints)
    if trouble:
        intact = found.intact if can_fork(ledger) else []
        found.incidents += lost(ledger.chain.log, trouble, tail, verdict.hole(ledger.names.run, intact))
    _registry(ledger.store, ledger.chain.runtime, found)
    return found


def _registry(store: Store, runtime: Runtime, found: Verification) -> None:
    """The log that lists the store's runs and accounts, if it has begun."""
    chain, tail = Registry(store, runtime, session="").chain, -1
    try:
        view = chain.read()
        tail = view.seq if view else -1
        _slots(chain, tail, found, REGISTRY)
    except BadData as error:
        newest = max(listed(store, chain.log.prefix), default=-1)
        found.incidents += lost(chain.log, str(error), newest, verdict.registry_hole(), REGISTRY)


def _slots(chain: Chain[Any], tail: int, found: Verification, cause: str) -> None:
    """Walk a log; a void slot that a later entry has recorded is known, anything else counts against the run."""
    damage: dict[int, Incidental] = {}
    recorded: set[int] = set()
    before = ""
    for point in chain.walk(tail):
        found.entries += cause != REGISTRY
        for d in point.damage:
            rotted = d.slot < point.seq
            by = damage[d.slot].by if d.slot in damage else before
            means = verdict.rotted_entry() if rotted else verdict.void_entry(False)
            damage[d.slot] = Incidental(cause, d.text, slot=d.slot, file=chain.log.name(d.slot), by=by, verdict=means)
        recorded.update(_acknowledged(point))
        before = _in_charge(point)
    for slot, incident in sorted(damage.items()):
        means = verdict.void_entry(True) if slot in recorded else incident.verdict
        found.incidents.append(replace(incident, against=slot not in recorded, verdict=means))


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
        found.incidents.append(Incidental("history", str(error), against=True, verdict=verdict.history()))


def _acknowledged(point: Point[Any]) -> range:
    return point.entry.voids if point.entry and point.entry.seq == point.seq else range(0)


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
    with speaking(store, f"Step {checkpoint.step} could not be read, which proves no damage"):
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
        with speaking(store, f"Step {checkpoint.step} could not be read, which proves no damage"):
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


def lost(log: Log, text: str, tail: int, judged: Verdict, cause: str = "ledger") -> list[Incidental]:
    """Every empty slot below `tail` by its number; else `text`, which the reading said. Raises StorageUnreachable."""
    with speaking(log.store):
        slots = log.gaps(tail)
    if not slots:
        return [Incidental(cause, text, against=True, verdict=judged)]
    what = "slot {} is empty, but later slots are not: an entry has been lost"
    told = {slot: what.format(slot) + (f". {verdict.oldest_lost()}" if slot == 0 else "") for slot in slots}
    return [
        Incidental(cause, text, against=True, slot=slot, file=log.name(slot), verdict=judged)
        for slot, text in told.items()
    ]
