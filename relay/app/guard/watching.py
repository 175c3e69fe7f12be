"""Watches a command on a rented machine, and ends it at a limit of time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relay.app.guard.notes import first_commit, has_session
from relay.core.clock import Runtime
from relay.core.lease.children import Child

TICK_S = 0.5
GRACE_S = 300.0
"""Time for the last commit, of which the last LAST_S come after SIGTERM; at most a quarter of the total."""
LAST_S = 60.0
STUCK_S = 10.0
"""Longest wait for a killed process, in seconds."""
USUAL_TELL_S = 60.0


@dataclass(frozen=True)
class Limits:
    """Seconds, and the price of an hour in US dollars."""

    train_s: float
    """From the first committed step."""
    total_s: float
    """From the start to the machine's deletion."""
    price: float

    @property
    def grace_s(self) -> float:
        """Time for the last commit."""
        return min(GRACE_S, self.total_s / 4)

    @property
    def last_s(self) -> float:
        """Time from SIGTERM to SIGKILL."""
        return min(LAST_S, self.grace_s / 2)

    def spent(self, seconds: float) -> str:
        """The money for so many seconds, and at the most."""
        hours, most = seconds / 3600, self.total_s / 3600
        return f"${self.price * hours:.2f} of ${self.price * most:.2f}"


class Job(Protocol):
    """The command, with everything that it started."""

    code: int | None
    """The exit code of the command, once it is over."""

    def alive(self) -> bool: ...

    def first_commit(self) -> float | None:
        """When the first step was committed, on the runtime's monotonic clock."""
        ...

    def finish(self) -> None:
        """Ask for a last commit and the end."""
        ...

    def send(self, number: signal.Signals) -> None: ...


class Command:
    """A child process and its group."""

    def __init__(self, child: Child, notes: Path) -> None:
        """notes: the folder in which sessions leave notes."""
        self._child, self._notes = child, notes
        self.code: int | None = None

    def alive(self) -> bool:
        """Whether a process of the group runs: a shell may be gone before the session that it started."""
        code = self._child.poll()
        if code is None:
            return True
        self.code = 128 - code if code < 0 else code
        with suppress(ChildProcessError):  # the first process of a container inherits orphans
            while os.waitpid(-self._child.pid, os.WNOHANG)[0]:
                pass
        return group_alive(self._child.pid)

    def first_commit(self) -> float | None:
        """From the notes."""
        return first_commit(self._notes)

    def finish(self) -> None:
        """SIGUSR1 is a planned end, in which a session waits for its upload; only a session knows it."""
        self.send(signal.SIGUSR1 if has_session(self._notes) else signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Signal every process of the group."""
        signal_group(self._child.pid, number)


def group_alive(group: int) -> bool:
    """Whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(group: int, number: int) -> None:
    """Signal a process group, if there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@dataclass
class Watch:
    """One command within its limits."""

    runtime: Runtime
    started: float
    limits: Limits
    job: Job
    tell: Callable[[str], None]
    every_s: float = USUAL_TELL_S
    """Seconds between two lines of progress."""

    def until_over(self) -> int:
        """Wait for the end of the command, and bring it about at a limit. Returns its exit code; 137 if it is stuck."""
        limits, told, asked, warned = self.limits, self.started, None, False
        while self.job.alive():
            now = self.runtime.monotonic()
            if asked is None and (why := self._reached(now)):
                asked = now
                self.tell(f"{why} The session commits and ends. {self.progress()}")
                self.job.finish()
            if asked is not None:
                killed = min(asked + limits.grace_s, max(self.started + limits.total_s, asked + limits.last_s))
                if now >= killed + STUCK_S:
                    self.tell("The command does not end although it was killed.")
                    return 128 + signal.SIGKILL
                if now >= killed:
                    self.job.send(signal.SIGKILL)
                elif now >= killed - limits.last_s and not warned:
                    warned = True
                    self.tell(
                        f"No end after {(now - asked) / 60:.1f} min: SIGTERM now, SIGKILL {limits.last_s:.0f} s later."
                    )
                    self.job.send(signal.SIGTERM)
            if now - told >= self.every_s:
                told = now
                self.tell(self.progress())
            self.runtime.sleep(TICK_S)
        assert self.job.code is not None
        return self.job.code

    def progress(self) -> str:
        """Time and money so far, one line."""
        now, first = self.runtime.monotonic(), self._first()
        total = f"{(now - self.started) / 60:.1f} of {self.limits.total_s / 60:g} min"
        trained = "no step committed yet" if first is None else f"training {(now - first) / 60:.1f}"
        limit = "" if first is None else f" of {self.limits.train_s / 60:g} min"
        return f"GUARD {total} · {trained}{limit} · {self.limits.spent(now - self.started)}"

    def _first(self) -> float | None:
        """When training began, within this command's own time."""
        found = self.job.first_commit()
        return None if found is None else min(max(found, self.started), self.runtime.monotonic())

    def _reached(self, now: float) -> str:
        """The limit that is reached; empty if none is."""
        first, limits = self._first(), self.limits
        if first is not None and now - first >= limits.train_s:
            return f"The {limits.train_s / 60:g} minutes of training are over."
        if now - self.started >= limits.total_s - limits.grace_s:
            return f"The {limits.total_s / 60:g} minutes of this machine end soon."
        return ""
