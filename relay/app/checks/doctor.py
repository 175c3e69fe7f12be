"""Looks a machine, its clock and its disks over and says in plain words what to do; repairs nothing, knows no run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.app.machine.env import Machine
from relay.app.machine.skew import ADVICE, MOST_S, skew_text
from relay.app.messages.wording import duration
from relay.app.terminal.mishaps import explain
from relay.app.terminal.paragraphs import paragraph
from relay.core.checkpoint.compilecache import VARIABLE, secret_of
from relay.core.errors import Exit, RelayError
from relay.core.runs.opening import folder_of
from storage.base import StoreError
from storage.mounts import evaporates

UNWANTED_NAMES = ("password", "passwd", "login")
_SWEPT = re.compile(r"/(tmp|temp|scratch\d*)/")
"""Folders that many machines clear by age."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    subject: str
    ok: bool
    text: str
    advice: str = ""
    code: int = 0
    """Exit code of a trouble that stops training; 0 for a remark."""
    tabled: bool = False
    """Whether the table of stores says it too, so that people need not read it twice while all is well."""


@dataclass
class Examination:
    """Findings so far."""

    findings: list[Finding] = field(default_factory=list)
    stores: list[dict[str, Any]] = field(default_factory=list)
    """What was found out about each, as numbers."""
    table: str = ""
    """The same for people."""

    @property
    def code(self) -> int:
        """Of the first trouble that stops training."""
        return next((f.code for f in self.findings if f.code), int(Exit.OK))

    def look(self, subject: str, examine: Callable[[], Iterator[Finding]]) -> bool:
        """Run one examination; what it raises becomes a finding. Whether the way is free."""
        try:
            found = list(examine())
        except (RelayError, StoreError) as error:
            code, text = explain(error)
            found = [Finding(subject, False, text, code=code)]
        self.findings += found
        return not any(f.code for f in found)

    def document(self) -> dict[str, Any]:
        """relay.doctor/1."""
        rows = [{"subject": f.subject, "ok": f.ok, "text": f.text, "advice": f.advice or None} for f in self.findings]
        return {"schema": "relay.doctor/1", "ok": self.code == 0, "stores": self.stores, "findings": rows}

    def text(self, width: int | None = None) -> str:
        """For people, folded to `width` columns if there is one."""
        lines = [self.table, ""] if self.table else []
        for f in (f for f in self.findings if not (f.ok and f.tabled)):
            lines.append(paragraph("ok" if f.ok else "LOOK", f"{f.subject}: {f.text}", width))
            if f.advice:
                lines.append(paragraph("  ->", f.advice, width))
        return "\n".join([*lines, self._sum()])

    def _sum(self) -> str:
        if self.code:
            return "A session cannot go on before what is marked LOOK is mended."
        remarks = any(not f.ok for f in self.findings)
        return "Nothing stops a session. See what is marked LOOK." if remarks else "All is well."


def machine(found: Machine, device: str, environ_names: list[str]) -> Iterator[Finding]:
    """Provider, limit, device and variables that surprise people."""
    left = found.left_s()
    limit = "no known limit" if left is None else f"{duration(left)} left of its known limit"
    yield Finding("machine", True, f"{found.provider}, {limit}, device {device}")
    if "WANDB_DISABLED" in environ_names:
        text = "any value of WANDB_DISABLED, even false, turns W&B off here and in other tools"
        yield Finding("machine", False, text, "Unset it if you want W&B.")
    for name in environ_names:
        if any(word in name.lower() for word in UNWANTED_NAMES) and not name.startswith("RELAY_"):
            yield Finding("machine", False, f"{name} looks like a login", "The relay needs no passwords; unset it.")


def compiled(environ: Mapping[str, str], allowed: bool) -> Iterator[Finding]:
    """Whether compiled code from the store may run here. Raises BadConfig if the key for that is missing."""
    on = secret_of(environ, allowed) is not None
    text = f"on: what was compiled elsewhere and signed with {VARIABLE} runs here" if on else "off"
    yield Finding("compile cache", True, text)


def trackers(found: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
    """(title, where it writes, what keeps it from that) of each tracker; training goes on without it."""
    for title, where, trouble in found:
        what, _, advice = trouble.partition(". ")
        yield Finding("trackers", not trouble, f"{title}: {what.rstrip('.') or where}", advice)


def secrets(title: str, found: Iterable[str], advice: Iterable[str]) -> Iterator[Finding]:
    """What a notebook's secrets gave, by name, and what is to be done about the others."""
    if names := sorted(found):
        yield Finding("secrets", True, f"{title} gave {', '.join(names)}")
    for line in advice:
        text, _, what_to_do = line.partition(". ")
        yield Finding("secrets", False, text, what_to_do)


def clocks(skew: float | None) -> Iterator[Finding]:
    """This machine's clock against the store's; nothing if the store has none of its own."""
    text = skew_text(skew)
    if text:
        yield Finding("clock", False, text, ADVICE)
    elif skew is not None:
        yield Finding("clock", True, f"within {MOST_S:.0f} s of the store's", tabled=True)


def keeping(address: str) -> Iterator[Finding]:
    """Whether a folder that is the store may lose files by itself: a ledger whose oldest entries go is damaged."""
    path = folder_of(address)
    if path is None:
        return
    if evaporates(path):
        text = f"{path} is on a disk that is gone when this machine ends, and every run in it"
        yield Finding(
            "store", False, text, "Good for a trial; for anything else set RELAY_STORE to a place that stays."
        )
    elif _SWEPT.search(f"{path}/"):
        text = f"{path} is in a folder of the kind that machines clear by age, the oldest ledger entries first"
        yield Finding(
            "store", False, text, "Set RELAY_STORE to a place that stays, or exempt the folder from clearing."
        )


def disk(path: Path, needed: int, what: str) -> Iterator[Finding]:
    """Free space where `path` is or will be, against the bytes `needed` there; nothing where the system is silent."""
    there = next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
    if there is None:
        return
    try:
        free = shutil.disk_usage(there).free
    except OSError:
        return
    text = f"{_size(free)} free for {what}, which may need {_size(needed)}"
    advice = "" if free >= needed else f"Free some space on the disk of {there}."
    yield Finding("disk", free >= needed, text, advice)


def keepable(folder: Path) -> Iterator[Finding]:
    """Nothing where a session can keep its checkpoints in `folder`; looks only, and makes nothing."""
    parts = (folder, *folder.parents)
    there = next(path for path in parts if os.path.exists(path))  # noqa: PTH110 - Path's own raises in a closed folder
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    why = "may not be written by this user" if there.is_dir() else "is no folder"
    text = f"checkpoints of this machine cannot be written to {folder}: {there} {why}"
    advice = "Free or permit that folder, or name another one with sync_dir=FOLDER."
    yield Finding("sync", False, text, advice, code=int(Exit.BAD_CONFIG))


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
