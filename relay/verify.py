"""Re-reads every entry and every retained file of a run and says what is wrong; writes and decides nothing (P1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from relay import verdict
from relay.errors import BadData
from relay.ledger import Point, RunLedger
from relay.manifest import FileEntry
from relay.names import Names
from relay.paragraphs import paragraph
from relay.restore import Damaged, own_ref, read_manifest, retained
from relay.salvage import salvage
from relay.state import Checkpoint, RunState
from relay.trouble import speaking
from relay.verdict import NOTHING, Verdict
from relay.wording import iso, sum_up
from storage.base import Missing, Store
from storage.transfer import digest


@dataclass(frozen=True)
class Checked:
    """One retained checkpoint, read in full."""

    step: int
    epoch: int
    ok: bool
    reason: str
    known: bool = False
    """Marked as damaged by an earlier rewind: listed, but not held against the run."""
    files: tuple[str, ...] = ()
    """Names in the store of the files that are missing or not as they were written."""
    by: str = ""
    """Whose session committed it."""
    verdict: Verdict = NOTHING


@dataclass(frozen=True)
class Incidental:
    """Something a person should know: a recorded incident, or a slot of the log that is not as it was written."""

    cause: str
    text: str
    step: int | None = None
    epoch: int | None = None
    at: str | None = None
    against: bool = False
    """Whether the run is not whole because of it."""
    slot: int | None = None
    file: str = ""
    by: str = ""
    verdict: Verdict = NOTHING


@dataclass
class Verification:
    """What verify found."""

    entries: int = 0
    checkpoints: list[Checked] = field(default_factory=list)
    incidents: list[Incidental] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every entry and every checkpoint in use is as it was written."""
        return all(c.ok or c.known for c in self.checkpoints) and not any(i.against for i in self.incidents)

    @property
    def intact(self) -> list[int]:
        """Steps that can be loaded."""
        return [c.step for c in self.checkpoints if c.ok and not c.known]

    def document(self) -> dict[str, Any]:
        """relay.verify/1."""
        return {
            "schema": "relay.verify/1",
            "ok": self.ok,
            "entries": self.entries,
            "checkpoints": [_row(c) for c in self.checkpoints],
            "incidents": [_line(i) for i in self.incidents],
        }


def verify(ledger: RunLedger, store: Store, tell: Callable[[str], None] = lambda _: None) -> Verification:
    """Read everything. Damage is reported, not raised; raises BadConfig for an unknown run, StorageUnreachable (69)."""
    found, trouble = Verification(), ""
    state: RunState | None = None
    tail = -1
    try:
        view = ledger.read()
        state, tail = view.state, view.seq
        tell(f"reading {tail + 1:,} entries")
        _entries(ledger, tail, found)
        ledger.check_epochs(store)
    except BadData as error:
        trouble, salvaged = str(error), salvage(ledger)
        if salvaged:
            state, tail = salvaged.state, salvaged.seq
    if state:
        found.incidents[:0] = [Incidental(i.cause, i.text, i.step, i.epoch, iso(i.at)) for i in state.incidents]
        _history(ledger, state, found)
        _checkpoints(ledger, state, store, found, tell)
        found.checkpoints = judged(state, found.checkpoints)
    if trouble:
        found.incidents += lost(ledger, trouble, tail, found.intact)
    return found


def text_of(found: Verification, width: int | None = None) -> str:
    """For people, folded to `width` columns if there is one."""
    lines = [f"{found.entries:,} ledger entries read."] if found.entries else []
    lines += [_told(c, width) for c in found.checkpoints]
    lines += [_explained(i, width) for i in found.incidents if i.against]
    noted = [i for i in found.incidents if not i.against]
    lines += [paragraph("noted", f"{i.at + ' ' if i.at else ''}{i.cause}: {i.text}", width, 9) for i in noted]
    return "\n".join([*lines, sum_up(found.ok, sum(c.known for c in found.checkpoints))])


def _told(c: Checked, width: int | None) -> str:
    name = f"step {c.step:,} (epoch {c.epoch}{', ' + c.by if c.by else ''})"
    if c.ok:
        return paragraph("ok", f"{name}: intact", width, 9)
    lines = [paragraph("DAMAGED", name + (", known and not in use" if c.known else ""), width, 9)]
    return "\n".join([*lines, *_details("", c.reason, "", c.verdict, width)])


def _explained(i: Incidental, width: int | None) -> str:
    name = i.cause if i.slot is None else f"ledger slot {i.slot}"
    return "\n".join(
        [paragraph("DAMAGED", name, width, 9), *_details(i.file, i.text, i.by, i.verdict, width)],
    )


def _details(file: str, what: str, by: str, judged: Verdict, width: int | None) -> list[str]:
    rows = {"file": file, "what": what, "by": by, "means": judged.meaning, "to do": judged.advice}
    return [paragraph(f"  {label}", text, width, 9) for label, text in rows.items() if text]


def _row(c: Checked) -> dict[str, Any]:
    words = {"meaning": c.verdict.meaning or None, "advice": c.verdict.advice or None}
    row = {"step": c.step, "epoch": c.epoch, "ok": c.ok, "reason": c.reason, "known": c.known, "account": c.by or None}
    return {**row, "files": list(c.files), **words}


def _line(i: Incidental) -> dict[str, Any]:
    words = {"meaning": i.verdict.meaning or None, "advice": i.verdict.advice or None}
    line = {"cause": i.cause, "text": i.text, "step": i.step, "epoch": i.epoch, "at": i.at, "slot": i.slot}
    return {**line, "file": i.file or None, "by": i.by or None, **words}


def _entries(ledger: RunLedger, tail: int, found: Verification) -> None:
    """Walk the log; a void slot that a later entry has recorded is known, anything else counts against the run."""
    damage: dict[int, Incidental] = {}
    recorded: set[int] = set()
    before = ""
    for point in ledger.walk(tail):
        found.entries += 1
        for d in point.damage:
            rotted = d.slot < point.seq
            by = damage[d.slot].by if d.slot in damage else before
            means = verdict.rotted_entry() if rotted else verdict.void_entry(False)
            damage[d.slot] = Incidental(
                "entry", d.text, slot=d.slot, file=ledger.chain.log.name(d.slot), by=by, verdict=means
            )
        recorded.update(_acknowledged(point))
        before = _in_charge(point)
    for slot, incident in sorted(damage.items()):
        means = verdict.void_entry(True) if slot in recorded else incident.verdict
        found.incidents.append(replace(incident, against=slot not in recorded, verdict=means))


def _in_charge(point: Point[RunState]) -> str:
    """Who could write the next slot."""
    holder = point.state.holder if point.state else None
    if holder is None:
        return "written while nobody held the lease"
    return f"written while the session of {holder.account} (epoch {holder.epoch}) held the lease"


def _history(ledger: RunLedger, state: RunState, found: Verification) -> None:
    """The oldest sessions, which lie beside the log; damage there hides who trained, and costs nothing else."""
    try:
        ledger.archived_links(state)
    except BadData as error:
        found.incidents.append(Incidental("history", str(error), against=True, verdict=verdict.history()))


def _acknowledged(point: Point[RunState]) -> range:
    return point.entry.voids if point.entry and point.entry.seq == point.seq else range(0)


def _checkpoints(
    ledger: RunLedger, state: RunState, store: Store, found: Verification, tell: Callable[[str], None]
) -> None:
    for checkpoint in state.retained:
        tell(f"reading step {checkpoint.step:,} ({checkpoint.bytes / 1e6:.1f} MB)")
        checked = _checkpoint(checkpoint, state, store, ledger.names, _file)
        if checked.ok or retained(ledger, checkpoint):
            found.checkpoints.append(checked)


def quick_look(state: RunState, store: Store, names: Names) -> list[Checked]:
    """Every retained checkpoint by its manifest and the sizes of its files only. Raises StorageUnreachable (69)."""
    return judged(state, [_checkpoint(c, state, store, names, _size) for c in state.retained])


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
    return Checked(
        checkpoint.step,
        checkpoint.epoch,
        not wrong,
        "; ".join(wrong.values()),
        known=checkpoint.damaged and bool(wrong),
        files=tuple(wrong),
        by=next((link.account for link in state.links if link.epoch == checkpoint.epoch), ""),
    )


def _file(store: Store, file: FileEntry) -> None:
    """Raises Damaged if two full reads find other bytes than the manifest names, or the file is not there."""
    for _ in range(2):
        try:
            size, sha256 = digest(store, own_ref(store, file.key, file.ref), most=file.size + 1)
        except Missing:
            raise Damaged(f"{file.key} is missing") from None
        if (size, sha256) == (file.size, file.sha256):
            return
    if size == file.size:
        raise Damaged(f"{file.key}, read twice, has SHA-256 {sha256[:16]}… and not {file.sha256[:16]}…")
    raise _other_size(file, size)


def _size(store: Store, file: FileEntry) -> None:
    """Raises Damaged if the store says that the file is not there or has another size."""
    try:
        size = store.stat(own_ref(store, file.key, file.ref)).size
    except Missing:
        raise Damaged(f"{file.key} is missing") from None
    if size != file.size:
        raise _other_size(file, size)


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


def lost(ledger: RunLedger, text: str, tail: int, intact: list[int]) -> list[Incidental]:
    """Every empty slot below `tail` by its number; else `text`, which the reading said. Raises StorageUnreachable."""
    log, judged = ledger.chain.log, verdict.hole(ledger.names.run, intact)
    with speaking(ledger.store):
        slots = log.gaps(tail)
    if not slots:
        return [Incidental("ledger", text, against=True, verdict=judged)]
    what = "slot {} is empty, but later slots are not: an entry has been lost"
    told = {slot: what.format(slot) + (f". {verdict.oldest_lost()}" if slot == 0 else "") for slot in slots}
    return [
        Incidental("ledger", text, against=True, slot=slot, file=log.name(slot), verdict=judged)
        for slot, text in told.items()
    ]
