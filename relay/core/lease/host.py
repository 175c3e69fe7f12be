"""Finds the sessions of this machine: whether one is dead, and an earlier one of the same run and account, to end it.

Needs /proc and a boot id (Linux). On other systems it finds nothing, and the lease alone decides.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from relay.core.folders import cache_folder
from relay.core.lease.processage import process_age, start_ticks

# --- Whether a session of this machine is dead, by a file lock that it holds ----------------------------------------

NOWHERE = Path("/dev/null/no-home")
"""Stands for the folder where there is none: nothing can be read or written there."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SUFFIXES = ("boot", "lock", "who", "now")
"""A session's files: its boot, its lock, its description (`SessionInfo`), its progress (mirror.py)."""
_SESSION = re.compile(r"[0-9a-f]{32}")


class HostLocks(Protocol):
    """Which sessions of this machine are alive."""

    def hold(self, session: str) -> None:
        """Mark the session as alive until the process ends."""
        ...

    def is_dead(self, session: str) -> bool:
        """True only if the session ran on this machine, in this boot, and its process is gone."""
        ...

    def drop(self, session: str) -> None:
        """Forget a session that is over."""
        ...


class FileHostLocks:
    """One lock file for each session, in a folder of this machine.

    Without a folder, or if it is not writable, dead sessions are only found by their missing heartbeats.
    """

    def __init__(self, folder: Path | None, boot_id: str | None = None) -> None:
        self._folder = folder or NOWHERE
        self._boot = (boot_id if boot_id is not None else read_boot_id()) if folder else ""
        self._held: dict[str, FileLock] = {}

    def hold(self, session: str) -> None:
        """Take the session's lock for the life of the process. Further calls do nothing."""
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
        os.register_at_fork(after_in_child=partial(_let_go, lock))

    def holds(self, session: str) -> bool:
        """Whether this object holds the session's lock."""
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
        """Whether the session ran on this machine since the last boot. Raises OSError if it has no file here."""
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
        """Ids of the sessions that have a file with this suffix here."""
        try:
            return sorted(path.stem for path in self._folder.glob(f"*.{suffix}") if _SESSION.fullmatch(path.stem))
        except OSError:
            return []

    def path(self, session: str, suffix: str) -> Path:
        """One of a session's files; `suffix` is one of SUFFIXES. Raises ValueError if `session` is not a session id."""
        if not _SESSION.fullmatch(session):
            raise ValueError("a session id is 32 hexadecimal digits")
        return self._folder / f"{session}.{suffix}"


def _let_go(lock: FileLock) -> None:
    """In a forked child: a process that only inherited the lock must not keep its session alive (P13)."""
    descriptor = getattr(getattr(lock, "_context", None), "lock_file_fd", None)
    if descriptor is not None:  # newer versions of the library have let it go themselves
        with suppress(OSError):
            os.close(descriptor)  # releasing the lock would release the parent's too


def default_folder() -> Path | None:
    """`~/.cache/trm-relay/locks`; None without a home folder."""
    cache = cache_folder()
    return None if cache is None else cache / "locks"


def read_boot_id(path: Path = BOOT_ID) -> str:
    """The kernel's boot id, which changes at each boot; empty where the system has none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# --- Earlier sessions of the same run and account on this machine ---------------------------------------------------

MOST_BYTES = 2_000
"""Largest description that is read."""


class SessionInfo(BaseModel):
    """Describes a session to later ones on its machine."""

    model_config = ConfigDict(frozen=True, strict=True)

    pid: int
    ticks: int
    """Start of the process: another process may have got its pid since."""
    space: str
    """Its pid namespace: a container's pids differ from its host's."""
    training: str
    account: str


@dataclass(frozen=True)
class Earlier:
    """A live session of this machine that began before this one."""

    session: str
    who: SessionInfo
    age_s: float
    """Age of its process."""
    reachable: bool
    """Whether its pid is valid here; False in another container that shares this home folder."""


def training_id(ledger_url: str, project: str, run: str) -> str:
    """Identifies a run before anything of it is read. A hash, because an address may hold secrets."""
    return hashlib.sha256(f"{ledger_url}\n{project}\n{run}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class MachineSessions:
    """The sessions of this machine that share a home folder."""

    locks: FileHostLocks
    root: Path = Path("/")
    """Root of the file system that holds `proc`."""

    def register(self, session: str, training: str, account: str) -> None:
        """Let later sessions find this process. If the folder is not writable, they do not find it."""
        ticks, space = start_ticks(self.root), self._space()
        if ticks is None or not space:
            return
        self.locks.hold(session)
        who = SessionInfo(pid=os.getpid(), ticks=ticks, space=space, training=training, account=account)
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
        """Every session that runs here, of any run."""
        for session in self.locks.sessions("who"):
            who = self._read(session)
            if who is not None and self._lives(session, who):
                reachable = who.space == self._space()
                age = process_age(self.root, str(who.pid)) if reachable else None
                yield Earlier(session, who, age or 0.0, reachable)

    def lives(self, other: Earlier) -> bool:
        """Whether the session still runs."""
        return self._lives(other.session, other.who)

    def ask_to_end(self, other: Earlier) -> bool:
        """Ask it to commit and hand off (SIGUSR1). False if it is gone, or not a process of ours."""
        if not other.reachable:
            return False
        try:
            handle = os.pidfd_open(other.who.pid)
        except ProcessLookupError:
            return False
        except (OSError, AttributeError):  # sandboxes without pidfd
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

    def _lives(self, session: str, who: SessionInfo) -> bool:
        """By its lock. If its pid is valid here, it must also be the same process of the same user."""
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

    def _read(self, session: str) -> SessionInfo | None:
        try:
            with self.locks.path(session, "who").open("rb") as file:
                return SessionInfo.model_validate_json(file.read(MOST_BYTES))
        except (OSError, ValidationError):
            return None

    def _space(self) -> str:
        try:
            return str((self.root / "proc" / "self" / "ns" / "pid").readlink())
        except OSError:
            return ""
