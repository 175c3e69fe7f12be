"""Finds a session of the same run, account and person on this very machine, and asks it to end; knows no lease.

Works where /proc and a boot id are (Linux); elsewhere nothing is found, and the lease alone decides.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from relay.core.lease.processage import process_age, start_ticks

# --- Sessions of this very machine: whether one is dead, by a file lock that it holds -------------------------------

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SUFFIXES = ("boot", "lock", "who", "now")
"""A session's files: the boot it runs in, its lock, whose it is (earlier.py beside this), how far it is (mirror.py)."""
_SESSION = re.compile(r"[0-9a-f]{32}")


class HostLocks(Protocol):
    """What a lease needs to know of its own machine."""

    def hold(self, session: str) -> None:
        """Mark the session as alive until the process ends."""
        ...

    def is_dead(self, session: str) -> bool:
        """True only if the session ran on this machine, in this boot, and its process is gone."""
        ...

    def drop(self, session: str) -> None:
        """The session is over; forget it."""
        ...


class FileHostLocks:
    """One lock file a session, in a per-machine folder. A folder that cannot be written only loses the shortcut."""

    def __init__(self, folder: Path, boot_id: str | None = None) -> None:
        self._folder = folder
        self._boot = boot_id if boot_id is not None else read_boot_id()
        self._held: dict[str, FileLock] = {}

    def hold(self, session: str) -> None:
        """Take the session's lock for the life of the process; once is enough."""
        if not self._boot or session in self._held:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.path(session, "boot").write_text(self._boot)
            lock = FileLock(self.path(session, "lock"))
            lock.acquire(timeout=5)
        except (OSError, Timeout):
            return
        self._held[session] = lock

    def holds(self, session: str) -> bool:
        """Whether this very object holds the session's lock."""
        return session in self._held

    def is_dead(self, session: str) -> bool:
        """Whether the lock of a session of this boot is free."""
        try:
            if not self.of_this_boot(session):
                return False
            lock = FileLock(self.path(session, "lock"))
            lock.acquire(timeout=0)
        except (OSError, Timeout):
            return False
        lock.release()
        return True

    def of_this_boot(self, session: str) -> bool:
        """Whether the session ran on this machine since it was started. Raises OSError where nothing is known of it."""
        return bool(self._boot) and self.path(session, "boot").read_text() == self._boot

    def drop(self, session: str) -> None:
        """Free the lock and remove every file of the session."""
        lock = self._held.pop(session, None)
        if lock is not None:
            lock.release()
        for suffix in SUFFIXES:
            try:
                self.path(session, suffix).unlink(missing_ok=True)
            except OSError:
                return

    def sessions(self, suffix: str) -> list[str]:
        """Ids of the sessions that have a file of this kind here."""
        try:
            return sorted(path.stem for path in self._folder.glob(f"*.{suffix}") if _SESSION.fullmatch(path.stem))
        except OSError:
            return []

    def path(self, session: str, suffix: str) -> Path:
        """One of a session's files; `suffix` is one of SUFFIXES. Raises ValueError for what is no session's id."""
        if not _SESSION.fullmatch(session):
            raise ValueError("a session id is 32 hexadecimal digits")
        return self._folder / f"{session}.{suffix}"


def default_folder() -> Path:
    """`~/.cache/trm-relay/locks`."""
    return Path.home() / ".cache" / "trm-relay" / "locks"


def read_boot_id(path: Path = BOOT_ID) -> str:
    """Changes at each boot; empty where the system has none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# --- Finds a session of the same run, account and person on this very machine, and asks it to end -------------------

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
