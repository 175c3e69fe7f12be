"""Time, chance and threads as values that are passed in; the only module of relay/ that touches the real ones."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Protocol

FAREWELL_S = 5.0
"""Longest that what libraries registered for the end of a process may take."""


class Event(Protocol):
    """A flag threads can wait for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Task(Protocol):
    """A running thread."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Runtime(Protocol):
    """What a session needs of its machine. The simulation passes one that is deterministic."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; counts suspended time where the system can."""
        ...

    def wall(self) -> float:
        """This machine's wall clock, unix seconds. Never decides anything; shown to people only."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def token(self) -> str:
        """32 fresh random hexadecimal digits."""
        ...

    def event(self) -> Event: ...

    def lock(self) -> AbstractContextManager[object, bool | None]:
        """Mutual exclusion; not re-entrant."""
        ...

    def spawn(self, name: str, body: Callable[[], None]) -> Task:
        """Start a daemon thread. `body` must not raise: it records its own failure."""
        ...


class RealRuntime:
    """The real machine."""

    def monotonic(self) -> float:
        """CLOCK_BOOTTIME where it exists: a lease must run out while a laptop sleeps."""
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime(clock)

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def token(self) -> str:
        return secrets.token_hex(16)

    def event(self) -> Event:
        return threading.Event()

    def lock(self) -> AbstractContextManager[object, bool | None]:
        return threading.Lock()

    def spawn(self, name: str, body: Callable[[], None]) -> Task:
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        return thread


def end_process(code: int) -> None:
    """End with that code although a thread is still at work, as where a commit was given up or a library left one.

    The interpreter ends a daemon thread by unwinding it, and inside a library in C++ that aborts the process: the code
    would be lost. For any other thread it waits, however long; so it may for what a library does at the end, which has
    FAREWELL_S here. Returns where no thread is left; then the usual way out is safe. Ctrl-C ends either way at once.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    if threading.active_count() == 1:
        return
    farewell = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    farewell.start()
    farewell.join(FAREWELL_S)
    exit_now(code)


def exit_now(code: int) -> None:
    """End with that code and with what was printed; nothing else that the interpreter does at its end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
