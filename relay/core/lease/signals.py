"""Ends a session on a signal or a request: `StopSignal` holds the reason, `listening` installs the signal handlers."""

from __future__ import annotations

import math
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal

from relay.core.clock import Runtime, in_main_thread
from relay.core.errors import Exit, RelayError
from relay.core.events import SessionEvent, SignalReceived

StopReason = Literal["stop", "notice", "sigterm", "sigint", "fenced"]
_URGENCY: dict[StopReason, int] = {"stop": 0, "notice": 1, "sigterm": 2, "sigint": 3, "fenced": 4}


class StopSignal:
    """Why a session should end. Set from any thread, read at step boundaries.

    `ask` only writes plain attributes, so a signal handler may call it.
    """

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        """The most urgent reason asked for so far."""
        self.note = ""
        """One line for people, e.g. who asked."""
        self.until = math.inf
        """Monotonic time at which the cloud takes the machine back; infinite without a notice."""
        self.at_once = False
        """A second SIGINT came: wait for nothing more."""
        self.under_lease = False
        """Whether there may be something to commit, and a lease to give back."""

    def ask(self, reason: StopReason, note: str = "") -> None:
        """Ask the session to end at the next step boundary; a second 'sigint' sets `at_once`."""
        if reason == "sigint" and self.reason == "sigint":
            self.at_once = True
        if self.reason is None or _URGENCY[reason] > _URGENCY[self.reason]:
            self.reason, self.note = reason, note

    def warn(self, note: str, until: float) -> None:
        """Note that the cloud takes the machine back at `until` (monotonic): the session must be over by then."""
        self.until = min(self.until, until)
        self.ask("notice", note)

    @property
    def hurry(self) -> bool:
        """Whether a signal or a notice ends the session, so that only a short grace period is left."""
        return self.reason in ("notice", "sigterm", "sigint")


# --- Signal handlers; a thread ends the process if the session does not stop in time --------------------------------

REASONS: dict[signal.Signals, StopReason] = {
    signal.SIGTERM: "sigterm",
    signal.SIGHUP: "sigterm",
    signal.SIGINT: "sigint",
    signal.SIGUSR1: "stop",
    signal.SIGUSR2: "stop",
    signal.SIGXCPU: "stop",
}
"""Signals by which schedulers and clouds announce an end. SIGUSR1: Slurm's --signal, a soft run time limit of Grid
Engine. SIGUSR2: Grid Engine's -notify, LSF's run limit. SIGXCPU: a limit of CPU time.

Others keep their default. SIGTSTP and SIGCONT suspend and resume a job (Slurm, Grid Engine), which trains on after
them. SIGPWR reaches only process 1. SIGQUIT is how people force an end.
"""

BY_REASON: dict[StopReason, Exit] = {
    "sigint": Exit.SIGINT,
    "sigterm": Exit.SIGTERM,
    "stop": Exit.HANDOFF,
    "notice": Exit.HANDOFF,
    "fenced": Exit.FENCED,
}
LAST_S = 29.0
"""Seconds from SIGTERM, SIGHUP or SIGINT to a forced end. Services send SIGKILL, which prints nothing, after 30 s."""
EARLY_S = 5.0
"""The same before the lease, when there is nothing to commit or to release."""
AT_ONCE_S = 2.0
"""The same from a second SIGINT."""
TICK_S = 0.1
FAST = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""After these the process ends in time, even if something hangs."""


class Interrupted(RelayError):
    """A signal ended the session before it held the lease."""

    def __init__(self, reason: StopReason, note: str) -> None:
        super().__init__(f"Ended by {note or reason} before training began; nothing was trained.")
        self.exit_code = BY_REASON[reason]


class Overdue(RelayError):
    """A signal came under the lease, and the session did not stop in time."""

    def __init__(self, reason: StopReason, note: str, seconds: float) -> None:
        super().__init__(f"Ended by {note or reason}: the session did not stop within {seconds:.0f} s.")
        self.exit_code, self.by, self.seconds = BY_REASON[reason], note or reason, seconds


def heed(stop: StopSignal) -> None:
    """Raises Interrupted if a signal came before the session took a lease."""
    if stop.reason is not None:
        raise Interrupted(stop.reason, stop.note)


def heeded() -> list[signal.Signals]:
    """The signals that end a session; SIGHUP only if it is not ignored."""
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in REASONS if not (outlives and number == signal.SIGHUP)]


def unwind_on_sigterm() -> None:
    """Make SIGTERM, and SIGHUP unless it is ignored, exit a command that is not a session, so that clean-up code
    restores the terminal's cursor and removes half-written files."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(int(Exit.SIGTERM))


@contextmanager
def listening(
    stop: StopSignal,
    runtime: Runtime,
    leave: Callable[[RelayError], None],
    event: Callable[[SessionEvent], None] = lambda event: None,
) -> Iterator[None]:
    """SIGTERM, SIGHUP and SIGINT end the session fast, the other REASONS as planned; a second SIGINT raises
    KeyboardInterrupt. A SIGHUP that is already ignored (nohup) stays ignored.

    `leave` must end the process. A separate thread calls it if the session does not stop in time, so that a hanging
    main thread cannot keep the process alive. This also holds after the context, until the process ends.
    `event` receives each signal at once, on a thread of its own, because a terminal may hang as well.
    """

    def heard(number: int, _: FrameType | None) -> None:
        stop.ask(REASONS[signal.Signals(number)], signal.Signals(number).name)
        if stop.at_once:
            raise KeyboardInterrupt

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # works even while the main thread is busy
    runtime.spawn("signals", _SignalThread(stop, runtime, leave, event, reader).until_over)
    pipe = _Pipe(reader, writer)
    os.register_at_fork(after_in_child=pipe.leave)
    try:
        with _handled(heeded(), heard):
            yield
    finally:
        pipe.open = False
        signal.set_wakeup_fd(former)
        os.close(writer)


@contextmanager
def unheard() -> Iterator[None]:
    """These signals end nothing here: another process of the session decides. Children start with the usual ones."""
    with _handled(heeded() if in_main_thread() else [], lambda *_: None):
        yield


@contextmanager
def _handled(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle these signals so. A forked child keeps it, as a terminal signals every process, except for SIGTERM: by
    that multiprocessing ends its processes, and then waits for them."""
    before = {number: signal.signal(number, handler) for number in numbers}
    former = {number: old for number, old in before.items() if number == signal.SIGTERM}

    def in_child() -> None:
        for number, old in former.items():
            signal.signal(number, old)

    os.register_at_fork(after_in_child=in_child)
    try:
        yield
    finally:
        former.clear()
        for number, old in before.items():
            signal.signal(number, old)


@dataclass
class _Pipe:
    """The pipe by which signals arrive. A forked child, such as a loader's worker, must not write its own into it."""

    reader: int
    writer: int
    open: bool = True

    def leave(self) -> None:
        """In a child."""
        if self.open:
            signal.set_wakeup_fd(-1)
            os.close(self.reader)
            os.close(self.writer)


@dataclass
class _SignalThread:
    """Reads every signal as the system delivers it, and checks the clock from then on."""

    stop: StopSignal
    runtime: Runtime
    leave: Callable[[RelayError], None]
    event: Callable[[SessionEvent], None]
    reader: int
    asked: float = math.inf
    """When the first of the FAST signals came."""
    insisted: float = math.inf
    """When the second SIGINT came."""
    first: signal.Signals = signal.SIGTERM
    reported: set[int] = field(default_factory=set)
    """The kernel repeats SIGXCPU every second."""

    def until_over(self) -> None:
        """Return if the session ends without a signal; otherwise call `leave` when its time is up."""
        open_still = True
        while open_still or self.asked < math.inf:
            if self.runtime.monotonic() >= self.due:
                self.leave(self._error())
                break
            if not open_still:
                self.runtime.sleep(TICK_S)
            elif select.select([self.reader], [], [], TICK_S if self.asked < math.inf else None)[0]:
                numbers = os.read(self.reader, 64)  # none once the session is over
                open_still = bool(numbers)
                self._note(numbers)
        os.close(self.reader)

    @property
    def due(self) -> float:
        """When the process must have ended (monotonic)."""
        usual = LAST_S if self.stop.under_lease else EARLY_S
        return min(self.asked + usual, self.insisted + AT_ONCE_S)

    def _note(self, numbers: bytes) -> None:
        for number in numbers:
            if number in REASONS and (number == signal.SIGINT or number not in self.reported):
                self.reported.add(number)
                self._report(signal.Signals(number))
            if number not in FAST:
                continue
            if self.asked < math.inf and number == self.first == signal.SIGINT:
                self.insisted = min(self.insisted, self.runtime.monotonic())
            if self.asked == math.inf:
                self.asked, self.first = self.runtime.monotonic(), signal.Signals(number)

    def _report(self, number: signal.Signals) -> None:
        again = number == self.first == signal.SIGINT and self.asked < math.inf
        received = SignalReceived(number, self.stop.under_lease, again)
        with suppress(RuntimeError):  # without another thread the session still ends in time
            self.runtime.spawn("signal event", lambda: self.event(received))

    def _error(self) -> RelayError:
        reason, note = REASONS[self.first], self.first.name
        if not self.stop.under_lease:
            return Interrupted(reason, note)
        return Overdue(reason, note, self.runtime.monotonic() - self.asked)
