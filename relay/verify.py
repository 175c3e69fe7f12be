"""Re-reads every entry and every retained file of a run and says what is wrong; writes and decides nothing (P1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relay.advice import command
from relay.errors import BadData
from relay.ledger import Point, RunLedger
from relay.manifest import FileEntry
from relay.names import Names
from relay.restore import Damaged, own_ref, read_manifest, retained
from relay.state import Checkpoint, RunState
from relay.trouble import speaking
from relay.wording import iso
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

    def document(self) -> dict[str, Any]:
        """relay.verify/1."""
        return {
            "schema": "relay.verify/1",
            "ok": self.ok,
            "entries": self.entries,
            "checkpoints": [
                {"step": c.step, "epoch": c.epoch, "ok": c.ok, "reason": c.reason} for c in self.checkpoints
            ],
            "incidents": [
                {"cause": i.cause, "text": i.text, "step": i.step, "epoch": i.epoch, "at": i.at} for i in self.incidents
            ],
        }


def verify(ledger: RunLedger, store: Store, tell: Callable[[str], None] = lambda _: None) -> Verification:
    """Read everything. Damage is reported, not raised; raises BadConfig for an unknown run, StorageUnreachable (69)."""
    found = Verification()
    try:
        view = ledger.read()
        tell(f"reading {view.seq + 1:,} entries")
        found.incidents += [
            Incidental(i.cause, i.text, i.step, i.epoch, iso(i.at)) for i in view.state.incidents
        ]  # fmt: skip
        _entries(ledger, view.seq, found)
        _history(ledger, view.state, found)
        for checkpoint in view.state.retained:
            tell(f"reading step {checkpoint.step:,} ({checkpoint.bytes / 1e6:.1f} MB)")
            checked = _checkpoint(checkpoint, view.state, store, ledger.names)
            if checked.ok or retained(ledger, checkpoint):
                found.checkpoints.append(checked)
    except BadData as error:
        found.incidents.append(Incidental("ledger", str(error), against=True))
    return found


def text_of(found: Verification) -> str:
    """For people."""
    lines = [f"{found.entries:,} ledger entries read."]
    for c in found.checkpoints:
        verdict = "intact" if c.ok else f"DAMAGED{' (known, not in use)' if c.known else ''}: {c.reason}"
        lines.append(f"step {c.step:,} (epoch {c.epoch}): {verdict}")
    lines += [f"incident{' at ' + i.at if i.at else ''}: {i.cause}: {i.text}" for i in found.incidents]
    if found.ok:
        lines.append("Everything is as it was written.")
    else:
        lines.append(
            "Something is not as it was written. The next session goes back to the newest intact checkpoint by itself; "
            f"`{command('doctor')}` says what you can do."
        )
    return "\n".join(lines)


def _entries(ledger: RunLedger, tail: int, found: Verification) -> None:
    """Walk the log; a void slot that a later entry has recorded is known, anything else counts against the run."""
    damage: dict[int, str] = {}
    recorded: set[int] = set()
    for point in ledger.walk(tail):
        found.entries += 1
        damage.update({d.slot: d.text for d in point.damage})
        recorded.update(_acknowledged(point))
    for slot, text in sorted(damage.items()):
        found.incidents.append(Incidental("entry", text, against=slot not in recorded))


def _history(ledger: RunLedger, state: RunState, found: Verification) -> None:
    """The oldest sessions, which lie beside the log; damage there hides who trained, and costs nothing else."""
    try:
        ledger.archived_links(state)
    except BadData as error:
        found.incidents.append(Incidental("history", str(error), against=True))


def _acknowledged(point: Point[RunState]) -> range:
    return point.entry.voids if point.entry and point.entry.seq == point.seq else range(0)


def _checkpoint(checkpoint: Checkpoint, state: RunState, store: Store, names: Names) -> Checked:
    with speaking(store, f"Step {checkpoint.step} could not be read, which proves no damage"):
        try:
            for file in read_manifest(checkpoint, state, store, names).files:
                _file(store, file)
        except Damaged as error:
            return Checked(checkpoint.step, checkpoint.epoch, False, str(error), known=checkpoint.damaged)
    return Checked(checkpoint.step, checkpoint.epoch, True, "")


def _file(store: Store, file: FileEntry) -> None:
    """Raises Damaged if two full reads find other bytes than the manifest names, or the file is not there."""
    for _ in range(2):
        try:
            size, sha256 = digest(store, own_ref(store, file.key, file.ref), most=file.size + 1)
        except Missing:
            raise Damaged(f"{file.key} is missing") from None
        if (size, sha256) == (file.size, file.sha256):
            return
    raise Damaged(f"{file.key} read twice has {size} bytes with SHA-256 {sha256}, not {file.size} with {file.sha256}")
