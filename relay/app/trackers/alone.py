"""Keeps two processes of one machine from telling one tracker the same at the same time; knows no tracker."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from relay.app.trackers.base import SinkOff


class Alone:
    """One lock file at a time, held until the process ends at the latest."""

    def __init__(self) -> None:
        self._lock: FileLock | None = None

    def take(self, path: Path) -> None:
        """Let go of what was held, and hold this; where a disk knows no locks, without. Raises SinkOff where another
        process holds it."""
        self.leave()
        lock = FileLock(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise SinkOff("another process of this machine feeds it just now, and brings all there is.") from None
        except (OSError, NotImplementedError):
            return
        self._lock = lock

    def leave(self) -> None:
        """Others may."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None
