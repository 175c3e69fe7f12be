"""Finds a session of the same run, account and person on this very machine, and asks it to end; knows no lease.

Works where /proc and a boot id are (Linux); elsewhere nothing is found, and the lease alone decides.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from relay.core.lease.processage import process_age, start_ticks
from relay.core.lease.samehost import FileHostLocks

MOST_BYTES = 2_000
"""Of a session's own description."""


class Who(BaseModel):
    """What a session leaves for later ones on its machine."""

    model_config = ConfigDict(frozen=True, strict=True)

    pid: int
    ticks: int
    """When the process started: a pid alone may long be another's."""
    space: str
    """In which pids count: a container's are not its host's."""
    training: str
    account: str


@dataclass(frozen=True)
class Earlier:
    """A living session of this machine that began before this one."""

    session: str
    who: Who
    age_s: float
    """Of its process."""
    reachable: bool
    """Whether its pid is one here; False in another container that shares this home."""


def training_id(ledger_url: str, project: str, run: str) -> str:
    """Of a run in a store, before anything of it is read; an address may hold what nobody should find on a disk."""
    return hashlib.sha256(f"{ledger_url}\n{project}\n{run}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Neighbours:
    """The sessions of this machine that share a home folder."""

    locks: FileHostLocks
    root: Path = Path("/")
    """Of the file system, for looking at processes."""

    def enrol(self, session: str, training: str, account: str) -> None:
        """Let later sessions find this process. Costs only that where the folder cannot be written."""
        ticks, space = start_ticks(self.root), self._space()
        if ticks is None or not space:
            return
        self.locks.hold(session)
        who = Who(pid=os.getpid(), ticks=ticks, space=space, training=training, account=account)
        if self.locks.holds(session):
            with suppress(OSError):
                self.locks.path(session, "who").write_text(who.model_dump_json(), encoding="utf-8")

    def earlier(self, session: str, training: str, account: str) -> Earlier | None:
        """The oldest other process that trains this run for this account, if it began before this one."""
        ticks = start_ticks(self.root)
        if ticks is None:
            return None
        mine = (ticks, os.getpid())
        found = [
            one
            for one in self.living()
            if one.session != session
            and (one.who.training, one.who.account) == (training, account)
            and (one.who.ticks, one.who.pid) < mine
        ]
        return min(found, key=lambda one: one.who.ticks, default=None)

    def living(self) -> Iterator[Earlier]:
        """Every session that runs here, of whatever run."""
        for session in self.locks.sessions("who"):
            who = self._read(session)
            if who is not None and self._lives(session, who):
                reachable = who.space == self._space()
                age = process_age(self.root, str(who.pid)) if reachable else None
                yield Earlier(session, who, age or 0.0, reachable)

    def lives(self, other: Earlier) -> bool:
        """Whether it still runs."""
        return self._lives(other.session, other.who)

    def ask_to_end(self, other: Earlier) -> bool:
        """Ask for a planned end (SIGUSR1): it commits and hands off. False if it is gone or no pid of ours."""
        if not other.reachable:
            return False
        try:
            handle = os.pidfd_open(other.who.pid)
        except ProcessLookupError:
            return False
        except (OSError, AttributeError):  # sandboxes that know no pidfd
            return self._kill(other)
        try:
            if not self.lives(other):
                return False
            signal.pidfd_send_signal(handle, signal.SIGUSR1)
        except (ProcessLookupError, PermissionError):
            return False
        finally:
            os.close(handle)
        return True

    def _kill(self, other: Earlier) -> bool:
        try:
            if self.lives(other):
                os.kill(other.who.pid, signal.SIGUSR1)
                return True
        except (ProcessLookupError, PermissionError):
            pass
        return False

    def _lives(self, session: str, who: Who) -> bool:
        """By its lock, and by its pid where that counts here: then it must be the same process and the same user's."""
        try:
            if not self.locks.of_this_boot(session) or self.locks.is_dead(session):
                return False
            if who.space != self._space():
                return True
            if (self.root / "proc" / str(who.pid)).stat().st_uid != os.getuid():
                return False
        except OSError:
            return False
        return start_ticks(self.root, str(who.pid)) == who.ticks

    def _read(self, session: str) -> Who | None:
        try:
            with self.locks.path(session, "who").open("rb") as file:
                return Who.model_validate_json(file.read(MOST_BYTES))
        except (OSError, ValidationError):
            return None

    def _space(self) -> str:
        try:
            return str((self.root / "proc" / "self" / "ns" / "pid").readlink())
        except OSError:
            return ""
