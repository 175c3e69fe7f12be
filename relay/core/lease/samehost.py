"""Sessions of this very machine: whether one is dead, by a file lock that it holds.

The folder may lie on a home shared by several machines (NFS), where locks cannot be trusted: a lock written under
another boot id proves nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

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
