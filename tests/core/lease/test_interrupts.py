"""Signals ask a session to end; where nothing hears them the process ends itself, in time and with its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from relay.core.clock import RealRuntime, Task
from relay.core.errors import RelayError
from relay.core.events import SessionEvent, SignalReceived
from relay.core.lease import signals
from relay.core.lease.signals import Interrupted, Overdue, StopReason, StopSignal, listening
from relay.core.session.context import Plan

pytestmark = pytest.mark.usefixtures("hangups")


class Watched:
    """A session whose main thread is this test's, and the error that its process would have left with."""

    def __init__(self) -> None:
        self.stop, self.left, self.error = StopSignal(), threading.Event(), RelayError("did not leave")
        self.events = list[SessionEvent]()

    @contextmanager
    def session(self) -> Iterator[None]:
        with listening(self.stop, RealRuntime(), self._leave, self.events.append):
            yield

    def receives(self, number: signal.Signals, *, again: bool = False) -> bool:
        """Whether the event of this signal arrives within 5 s."""
        until, wanted = time.monotonic() + 5, SignalReceived(number, self.stop.under_lease, again)
        while wanted not in self.events and time.monotonic() < until:
            time.sleep(0.01)
        return wanted in self.events

    def _leave(self, error: RelayError) -> None:
        self.error = error
        self.left.set()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(signals, "EARLY_S", 0.2)
    monkeypatch.setattr(signals, "AT_ONCE_S", 0.1)
    monkeypatch.setattr(signals, "LAST_S", 0.6)
    return Watched()


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGTERM, "sigterm"),
        (signal.SIGHUP, "sigterm"),
        (signal.SIGINT, "sigint"),
        (signal.SIGUSR1, "stop"),
        (signal.SIGUSR2, "stop"),
        (signal.SIGXCPU, "stop"),
    ],
)
def test_signals_ask_the_session_to_end_and_handlers_are_put_back(
    watched: Watched, number: signal.Signals, reason: str
) -> None:
    before = signal.getsignal(number)
    with watched.session():
        send(number)
        assert watched.stop.reason == reason
    assert signal.getsignal(number) is before and signal.set_wakeup_fd(-1) == -1


def test_what_is_meant_to_outlive_its_terminal_hears_no_sighup(watched: Watched) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watched.session():
            send(signal.SIGHUP)
            assert watched.stop.reason is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_the_lease_a_signal_promises_no_commit(watched: Watched, number: signal.Signals) -> None:
    with watched.session():
        send(number)
        assert watched.receives(number)
    assert not any(event.under_lease for event in watched.events if isinstance(event, SignalReceived))


def test_a_terminal_that_hangs_does_not_keep_the_process(watched: Watched) -> None:
    forever = threading.Event()
    with listening(watched.stop, RealRuntime(), watched._leave, lambda line: bool(forever.wait(30))):
        send(signal.SIGTERM)
        assert watched.left.wait(10)
    forever.set()


def test_a_machine_without_another_thread_still_ends_in_time(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = RealRuntime.spawn

    def refusing(runtime: RealRuntime, name: str, body: Callable[[], None]) -> Task:
        if name == "signal event":
            raise RuntimeError("can't start new thread")
        return spawn(runtime, name, body)

    monkeypatch.setattr(RealRuntime, "spawn", refusing)
    with watched.session():
        send(signal.SIGTERM)
        assert watched.left.wait(10) and watched.error.exit_code == 143


@pytest.mark.parametrize(("reason", "code"), [("sigterm", 143), ("sigint", 130), ("stop", 75)])
def test_a_signal_before_the_lease_keeps_its_exit_code(reason: StopReason, code: int) -> None:
    assert Interrupted(reason, "SIGX").exit_code == code


def test_a_second_interrupt_stops_at_once(watched: Watched) -> None:
    watched.stop.under_lease = True
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), watched.session():
        send(signal.SIGINT)
        assert watched.receives(signal.SIGINT), "at once, not when the step is over"
        send(signal.SIGINT)
    assert watched.stop.at_once and watched.receives(signal.SIGINT, again=True)
    assert watched.left.wait(10) and watched.error.exit_code == 130
    assert time.monotonic() - began < signals.LAST_S


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)])
def test_what_hangs_before_the_lease_ends_soon_after_a_signal(
    watched: Watched, number: signal.Signals, code: int
) -> None:
    with watched.session():
        send(number)
        assert watched.left.wait(10)
    assert isinstance(watched.error, Interrupted) and watched.error.exit_code == code
    assert number.name in str(watched.error)


def test_what_hangs_under_the_lease_has_the_grace_and_no_more(watched: Watched) -> None:
    watched.stop.under_lease = True
    with watched.session():
        began = time.monotonic()
        send(signal.SIGTERM)
        assert watched.left.wait(10) and time.monotonic() - began >= signals.LAST_S
    assert isinstance(watched.error, Overdue) and watched.error.exit_code == 143
    assert watched.error.by == "SIGTERM" and watched.error.seconds >= signals.LAST_S


def test_a_process_that_hangs_after_its_session_ends_too(watched: Watched) -> None:
    with watched.session():
        send(signal.SIGTERM)
    assert watched.left.wait(10) and watched.error.exit_code == 143


def test_a_repeated_warning_is_reported_once(watched: Watched) -> None:
    """The kernel sends SIGXCPU every second once the soft limit of CPU time is passed."""
    with watched.session():
        for _ in range(3):
            send(signal.SIGXCPU)
            assert watched.receives(signal.SIGXCPU)
        send(signal.SIGUSR2)
        assert watched.receives(signal.SIGUSR2)
    assert [event.number for event in watched.events if isinstance(event, SignalReceived)] == [
        signal.SIGXCPU,
        signal.SIGUSR2,
    ]


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGCONT, signal.SIGQUIT])
def test_a_signal_that_suspends_or_forces_keeps_its_meaning(watched: Watched, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with watched.session():
        assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [None, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_without_a_hurry_no_end_is_forced(watched: Watched, number: signal.Signals | None) -> None:
    with watched.session():
        if number:
            send(number)
        assert not watched.left.wait(0.4)
    assert not watched.left.wait(0.4)


def test_the_forced_end_leaves_the_last_commit_its_grace_and_comes_before_sigkill() -> None:
    assert Plan(1).grace_s + 2 < signals.LAST_S < 30


def test_a_process_ends_with_its_code_whatever_its_threads_are_at() -> None:
    """A normal exit unwinds a thread inside a C++ library and aborts: -6 instead of 130. It also waits for ever for a
    library's thread that is not a daemon, and for functions that a library registered."""
    script = (
        "import atexit, threading, sys\n"
        "from relay.core import clock\n"
        "from relay.core.clock import RealRuntime, end_process\n"
        "clock.FAREWELL_S = 0.3\n"
        "atexit.register(threading.Event().wait)\n"
        "atexit.register(print, 'last', flush=True)\n"
        "end_process(1)\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "RealRuntime().spawn('at work', threading.Event().wait)\n"
        "sys.stdout.write('told ')\n"
        "end_process(130)\n"
        "print('not reached')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "told last\n", "")
