"""Looks a machine, a store and a run over and says in plain words what to do; repairs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.advice import command
from relay.env import Machine
from relay.errors import Exit, RelayError
from relay.mishaps import explain
from relay.outbox import outbox_of
from relay.status import View
from relay.wording import duration
from storage.base import StoreError

SKEW_S = 60.0
UNWANTED_NAMES = ("password", "passwd", "login")


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    subject: str
    ok: bool
    text: str
    advice: str = ""
    code: int = 0
    """Exit code of a trouble that stops training; 0 for a remark."""


@dataclass
class Examination:
    """Findings so far."""

    findings: list[Finding] = field(default_factory=list)

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
        return {"schema": "relay.doctor/1", "ok": self.code == 0, "findings": rows}

    def text(self) -> str:
        """For people."""
        lines = []
        for f in self.findings:
            lines.append(f"{'ok  ' if f.ok else 'LOOK'} {f.subject}: {f.text}")
            if f.advice:
                lines.append(f"     -> {f.advice}")
        return "\n".join(lines)


def machine(found: Machine, device: str, environ_names: list[str]) -> Iterator[Finding]:
    """Provider, limit, device and variables that surprise people."""
    left = found.left_s()
    limit = "no known limit" if left is None else f"{duration(left)} left of its known limit"
    yield Finding("machine", True, f"{found.provider}, {limit}, device {device}")
    if "WANDB_DISABLED" in environ_names:
        text = "any value of WANDB_DISABLED, even false, turns W&B off"
        yield Finding("machine", False, text, "Unset it if you want W&B.")
    for name in environ_names:
        if any(word in name.lower() for word in UNWANTED_NAMES) and not name.startswith("RELAY_"):
            yield Finding("machine", False, f"{name} looks like a login", "The relay needs no passwords; unset it.")


def clocks(store_now: float, wall: float) -> Iterator[Finding]:
    """This machine's clock against the store's."""
    skew = wall - store_now
    if abs(skew) <= SKEW_S:
        yield Finding("clock", True, f"within {SKEW_S:.0f} s of the store's")
        return
    ahead = "ahead of" if skew > 0 else "behind"
    text = f"this machine's clock is {duration(abs(skew))} {ahead} the store's"
    yield Finding("clock", False, text, "Leases do not depend on it, but cloud storage refuses wrong clocks. Set it.")


def run(view: View, damage: list[str]) -> Iterator[Finding]:
    """How the run stands, and whether somebody must act."""
    state = view.state
    if state is None:
        yield Finding("run", True, f"{view.run} has not begun", f"`{command('run', view.run)}` begins it.")
        return
    yield Finding("run", True, f"{view.run} is {view.phase} at step {view.step:,} of {view.target:,}")
    if state.halted is not None:
        advice = (
            f"Change what it names, then `{command('resume', view.run, '--anyway')}`, or begin another run with "
            f"other settings: `{command('fork', view.run, '--to', f'{view.run[:60]}_2')} KEY=VALUE`."
        )
        yield Finding("run", False, f"halted: {state.halted}", advice, int(Exit.BAD_DATA))
    if view.holder and not view.training:
        text = f"the lease of {view.holder.account} has run out without a release"
        yield Finding("lease", False, text, "Nothing to do: the next session takes it over.")
    if state.deaths:
        text = f"{state.deaths} sessions ended without a release since the last commit"
        yield Finding("run", False, text, "If they were not killed on purpose, look at sync/logs on those machines.")
    for text in damage:
        yield Finding("ledger", False, text, f"`{command('verify', view.run)}` re-reads everything.")


def unsent(home: Path, view: View) -> Iterator[Finding]:
    """Checkpoints that are on this machine only."""
    outbox = outbox_of(home, view.state.run_id) if view.state else None
    waiting = outbox.pushable(view.state) if outbox and view.state else None
    if outbox is None or waiting is None:
        yield Finding("sync", True, "nothing on this machine waits to be sent")
        return
    text = f"step {waiting.step:,} ({waiting.bytes / 1e6:.1f} MB) is in {outbox.folder(waiting.key)} and not committed"
    yield Finding("sync", False, text, f"`{command('push', view.run)}` sends it.")
