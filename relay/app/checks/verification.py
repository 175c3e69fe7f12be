"""The result of `verify`: values, JSON document and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relay.app.checks.verdict import NOTHING, Verdict
from relay.app.messages.wording import counted, iso
from relay.app.terminal.paragraphs import paragraph
from relay.people.zones import local

REGISTRY = "registry"
"""Cause of damage in the log that lists a store's runs and accounts."""
HISTORY = "history"
"""Cause of an incident that names another history of the log."""


@dataclass(frozen=True)
class Checked:
    """One retained checkpoint, read in full."""

    step: int
    epoch: int
    ok: bool
    reason: str
    known: bool = False
    """Marked as damaged by an earlier rewind: listed, but `ok` ignores it."""
    files: tuple[str, ...] = ()
    """Names in the store of missing or changed files."""
    by: str = ""
    """The account whose session committed it."""
    verdict: Verdict = NOTHING
    loaded: bool = False
    """Whether the loaded state has the hash in the ledger; only with --deep."""


@dataclass(frozen=True)
class Incidental:
    """A recorded incident, or a damaged slot of the log."""

    cause: str
    text: str
    step: int | None = None
    epoch: int | None = None
    at: float | None = None
    against: bool = False
    """Whether it makes `verify` fail."""
    slot: int | None = None
    file: str = ""
    by: str = ""
    verdict: Verdict = NOTHING


@dataclass
class Verification:
    """Everything that `verify` found."""

    entries: int = 0
    checkpoints: list[Checked] = field(default_factory=list)
    incidents: list[Incidental] = field(default_factory=list)
    histories: list[dict[str, Any]] = field(default_factory=list)
    """JSON rows, the run's own history first; empty if there is no other."""

    @property
    def ok(self) -> bool:
        """Whether every entry and every checkpoint in use is intact."""
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
            "histories": self.histories,
        }


def text_of(found: Verification, width: int | None = None) -> str:
    """For people, folded to `width` columns if there is one."""
    lines = [f"{found.entries:,} ledger entries read."] if found.entries else []
    lines += [_checkpoint(c, width) for c in found.checkpoints]
    lines += [_incident(i, width) for i in found.incidents if i.against]
    noted = [i for i in found.incidents if not i.against]
    lines += [paragraph("noted", f"{local(i.at)} {i.cause}: {i.text}".lstrip(), width, 9) for i in noted]
    return "\n".join([*lines, _summary(found)])


def _summary(found: Verification) -> str:
    if not found.ok:
        return "Damage found: see above."
    known = sum(c.known for c in found.checkpoints)
    if not known:
        return "Everything is intact."
    are = "is" if known == 1 else "are"
    return f"{counted(known, 'damaged checkpoint')} {are} known and not in use; everything else is intact."


def _checkpoint(c: Checked, width: int | None) -> str:
    name = f"step {c.step:,} (epoch {c.epoch}{', ' + c.by if c.by else ''})"
    if c.ok:
        return paragraph(
            "ok", f"{name}: intact{', and its loaded state has the hash in the ledger' if c.loaded else ''}", width, 9
        )
    lines = [paragraph("DAMAGED", name + (", known and not in use" if c.known else ""), width, 9)]
    return "\n".join([*lines, *_details("", c.reason, "", c.verdict, width)])


def _incident(i: Incidental, width: int | None) -> str:
    where = {REGISTRY: "registry", HISTORY: "another history from"}.get(i.cause, "ledger")
    name = i.cause if i.slot is None else f"{where} slot {i.slot}"
    return "\n".join(
        [paragraph("DAMAGED", name, width, 9), *_details(i.file, i.text, i.by, i.verdict, width)],
    )


def _details(file: str, what: str, by: str, verdict: Verdict, width: int | None) -> list[str]:
    rows = {"file": file, "what": what, "by": by, "means": verdict.meaning, "to do": verdict.advice}
    return [paragraph(f"  {label}", text, width, 9) for label, text in rows.items() if text]


def _row(c: Checked) -> dict[str, Any]:
    words = {"meaning": c.verdict.meaning or None, "advice": c.verdict.advice or None}
    row = {"step": c.step, "epoch": c.epoch, "ok": c.ok, "reason": c.reason, "known": c.known, "account": c.by or None}
    return {**row, "files": list(c.files), "loaded": c.loaded, **words}


def _line(i: Incidental) -> dict[str, Any]:
    words = {"meaning": i.verdict.meaning or None, "advice": i.verdict.advice or None}
    line = {"cause": i.cause, "text": i.text, "step": i.step, "epoch": i.epoch, "at": iso(i.at), "slot": i.slot}
    return {**line, "file": i.file or None, "by": i.by or None, **words}
