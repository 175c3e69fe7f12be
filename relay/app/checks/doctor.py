"""Checks a machine, its clock and its disks, and reports findings with their fixes."""

from __future__ import annotations

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
from relay.app.views.sessionstart import Forecast
from relay.core.checkpoint.compilecache import VARIABLE, secret_of
from relay.core.clock import Runtime
from relay.core.errors import Exit
from relay.core.folders import FolderRefused, try_folder
from relay.core.resources import try_session
from relay.core.runs.opening import folder_of
from relay.people.zones import has_zones
from storage.mounts import evaporates
from storage.synced import synced

UNWANTED_NAMES = ("password", "passwd", "login")
WITHOUT_LOCKS = (
    "A session trains all the same. The next one here waits until the lease of a killed session expires. Set HOME to a "
    "folder that this user can write to avoid that."
)
_SWEPT = re.compile(r"/(tmp|temp|scratch\d*)/")
"""Folders that many machines clean up by age."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    ok: bool
    text: str
    advice: str = ""
    code: int = 0
    """Exit code of a fault that stops training; 0 for a remark."""
    tabled: bool = False
    """Whether the table of stores shows it too; the text then leaves it out while it is ok."""


@dataclass
class Examination:
    """Findings so far."""

    findings: list[Finding] = field(default_factory=list)
    stores: list[dict[str, Any]] = field(default_factory=list)
    """JSON measurements of each store."""
    table: str = ""
    """The same as a text table."""

    @property
    def code(self) -> int:
        """Exit code of the first fault that stops training."""
        return next((f.code for f in self.findings if f.code), int(Exit.OK))

    def look(self, subject: str, examine: Callable[[], Iterator[Finding]]) -> bool:
        """Run one check; an error becomes a finding. Returns whether training can go on."""
        try:
            found = list(examine())
        except Exception as error:
            code, text = explain(error)
            if code == Exit.BUG:
                raise
            found = [Finding(subject, False, text, code=code)]
        self.findings += found
        return not any(f.code for f in found)

    def document(self) -> dict[str, Any]:
        """relay.doctor/1."""
        rows = [{"subject": f.subject, "ok": f.ok, "text": f.text, "advice": f.advice or None} for f in self.findings]
        return {"schema": "relay.doctor/1", "ok": self.code == 0, "stores": self.stores, "findings": rows}

    def text(self, width: int | None = None) -> str:
        """Text, folded to `width` columns if given."""
        lines = [self.table, ""] if self.table else []
        for f in (f for f in self.findings if not (f.ok and f.tabled)):
            lines.append(paragraph("ok" if f.ok else "LOOK", f"{f.subject}: {f.text}", width))
            if f.advice:
                lines.append(paragraph("  ->", f.advice, width))
        return "\n".join([*lines, self._sum()])

    def _sum(self) -> str:
        if self.code:
            return "A session cannot start until the findings marked LOOK are fixed."
        remarks = any(not f.ok for f in self.findings)
        return "A session can start. See the findings marked LOOK." if remarks else "All checks passed."


def machine(found: Machine, device: str, environ_names: list[str]) -> Iterator[Finding]:
    """Provider, limit, device and variables with surprising effects."""
    left = found.left_s()
    limit = "no known limit" if left is None else f"{duration(left)} left of its known limit"
    yield Finding("machine", True, f"{found.provider}, {limit}, device {device}")
    if not has_zones():
        text = "this Python has no time zone database: other people's times are shown in UTC"
        yield Finding("machine", False, text, "Install it with `pip install tzdata`.")
    if "WANDB_DISABLED" in environ_names:
        text = "any value of WANDB_DISABLED, even false, turns W&B off here and in other tools"
        yield Finding("machine", False, text, "Unset it if you want W&B.")
    for name in environ_names:
        if any(word in name.lower() for word in UNWANTED_NAMES) and not name.startswith("RELAY_"):
            yield Finding("machine", False, f"{name} looks like a password or login", "Unset it: trm-relay needs none.")


def speed(forecast: Forecast | None) -> Iterator[Finding]:
    """How this machine computes steps, why, and how long one should take; nothing if the model does not know."""
    if forecast is not None:
        yield Finding("step", True, f"path {forecast.path}: {forecast.reason}; {forecast.text}")
        if forecast.warning:
            text, _, advice = forecast.warning.partition(". ")
            yield Finding("step", False, text, advice)


def compiled(environ: Mapping[str, str], allowed: bool) -> Iterator[Finding]:
    """Whether compiled code from the store may run here. Raises BadConfig if the key for that is missing."""
    on = secret_of(environ, allowed) is not None
    text = f"on: code that was compiled elsewhere and signed with {VARIABLE} runs here" if on else "off"
    yield Finding("compile cache", True, text)


def trackers(found: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
    """`found`: (title, where it writes, trouble) of each tracker. Training continues without one that fails."""
    for title, where, trouble in found:
        fault, _, advice = trouble.partition(". ")
        yield Finding("trackers", not trouble, f"{title}: {fault.rstrip('.') or where}", advice)


def secrets(title: str, found: Iterable[str], advice: Iterable[str]) -> Iterator[Finding]:
    """Names of the secrets that were found in the notebook, and the fixes for the others."""
    if names := sorted(found):
        yield Finding("secrets", True, f"from {title}: {', '.join(names)}")
    for line in advice:
        text, _, fix = line.partition(". ")
        yield Finding("secrets", False, text, fix)


def clocks(skew: float | None) -> Iterator[Finding]:
    """This machine's clock against the store's; nothing if the store has no clock."""
    text = skew_text(skew)
    if text:
        yield Finding("clock", False, text, ADVICE)
    elif skew is not None:
        yield Finding("clock", True, f"within {MOST_S:.0f} s of the store's", tabled=True)


def keeping(address: str) -> Iterator[Finding]:
    """Whether the store is a folder that may lose files by itself; losing old entries damages the ledger."""
    path = folder_of(address)
    if path is None:
        return
    if evaporates(path):
        text = f"{path} is on a disk that is deleted with this machine, and every run in it"
        yield Finding("store", False, text, "Use it for a trial only; otherwise set RELAY_STORE to permanent storage.")
    elif _SWEPT.search(f"{path}/"):
        text = f"{path} is in a folder that many machines clean up by age, the oldest ledger entries first"
        yield Finding(
            "store", False, text, "Set RELAY_STORE to permanent storage, or exempt the folder from the clean-up."
        )


def disk(path: Path, needed: int, purpose: str) -> Iterator[Finding]:
    """Free space where `path` is or will be, against the bytes `needed`; nothing if the system does not report it."""
    there = next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
    if there is None:
        return
    try:
        free = shutil.disk_usage(there).free
    except OSError:
        return
    text = f"{_size(free)} free for {purpose}, which may need {_size(needed)}"
    advice = "" if free >= needed else f"Free some space on the disk of {there}."
    yield Finding("disk", free >= needed, text, advice)


def data(lines: Iterable[str]) -> Iterator[Finding]:
    """The data that the settings name here."""
    yield from (Finding("data", True, line) for line in lines)


def limits(runtime: Runtime) -> Iterator[Finding]:
    """Nothing if this machine has enough threads and files for a session. Raises OutOfResource (78)."""
    try_session(runtime)
    yield from ()


def home(locks: Path | None) -> Iterator[Finding]:
    """A remark if the sessions of this machine cannot find each other in `locks`. Creates nothing."""
    if locks is None:
        yield Finding("home", False, "this user has no HOME and no entry in /etc/passwd", WITHOUT_LOCKS)
        return
    try:
        try_folder(locks, make=False)
    except FolderRefused as error:
        yield Finding("home", False, f"{locks} cannot be written: {error.why}", WITHOUT_LOCKS)


def keepable(folder: Path) -> Iterator[Finding]:
    """A remark if a sync client copies `folder`, where a session writes its checkpoints. Leaves nothing there.

    Raises FolderRefused (78) if it cannot be written.
    """
    try_folder(folder, make=False)
    if found := synced(folder):
        text = f"{folder} holds this machine's files, but {found.client.title} copies {found.folder} to others"
        yield Finding("sync", False, text, "Set another folder with sync_dir=FOLDER.")


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
