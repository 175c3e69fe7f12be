"""Clock, randomness and threads as a `Runtime` that is passed in. Only this module of relay/ uses the real ones."""

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
"""Longest time for the exit functions that libraries registered, in seconds."""


class Event(Protocol):
    """A flag that threads can wait for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Task(Protocol):
    """A running thread."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Runtime(Protocol):
    """Clock, randomness and threads of a machine. The simulation passes a deterministic one."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; counts suspended time where the system can."""
        ...

    def wall(self) -> float:
        """This machine's wall clock, unix seconds. For display only; it never decides anything."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def token(self) -> str:
        """32 fresh random hexadecimal digits."""
        ...

    def event(self) -> Event: ...

    def lock(self) -> AbstractContextManager[object, bool | None]:
        """A lock; not re-entrant."""
        ...

    def spawn(self, name: str, body: Callable[[], None]) -> Task:
        """Start a daemon thread. `body` must not raise: it records its own failure."""
        ...


class RealRuntime:
    """The real machine."""

    def monotonic(self) -> float:
        """CLOCK_BOOTTIME if available: a lease must expire while a laptop sleeps."""
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


def chance(runtime: Runtime) -> float:
    """A random number in [0, 1), which spreads processes over a wait."""
    return int(runtime.token()[:8], 16) / 2**32


def in_background(runtime: Runtime, name: str, body: Callable[[], None]) -> None:
    """Run `body` in a thread, or in this one if the machine allows no more threads."""
    try:
        runtime.spawn(name, body)
    except RuntimeError:
        body()


def end_process(code: int) -> None:
    """Exit with `code` although a thread is still running, for example after an abandoned commit.

    At exit, the interpreter unwinds daemon threads. Inside a C++ library that aborts the process, and the exit code is
    lost. It waits without limit for other threads and for exit functions of libraries, which get FAREWELL_S here.
    Returns if no other thread is left: the normal exit is safe then. Ctrl-C exits at once in both cases.
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
    """Flush the output and exit with `code`, without the interpreter's other exit work."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def in_main_thread() -> bool:
    """Whether this thread may handle signals."""
    return threading.current_thread() is threading.main_thread()
