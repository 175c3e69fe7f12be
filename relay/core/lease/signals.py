"""Why a session should end, as one small object that signal handlers and the heartbeat set; it installs no handler."""

from __future__ import annotations

import math
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from relay.core.clock import Runtime
from relay.core.errors import Exit, RelayError
from relay.core.events import SessionEvent, SignalReceived

Reason = Literal["stop", "notice", "sigterm", "sigint", "fenced"]
_URGENCY: dict[Reason, int] = {"stop": 0, "notice": 1, "sigterm": 2, "sigint": 3, "fenced": 4}


class StopSignal:
    """Set from anywhere, read at step boundaries. Plain attribute writes, so that a signal handler may call `ask`."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        """The most urgent reason asked for so far."""
        self.note = ""
        """One line for people, e.g. who asked."""
        self.until = math.inf
        """When the machine is gone, on the session's monotonic clock, if its cloud said so."""
        self.at_once = False
        """A second SIGINT: wait for nothing more."""
        self.under_lease = False
        """Whether there may be something to commit, and a lease to give back."""

    def ask(self, reason: Reason, note: str = "") -> None:
        """Ask the session to end at the next step boundary; a second 'sigint' sets `at_once`."""
        if reason == "sigint" and self.reason == "sigint":
            self.at_once = True
        if self.reason is None or _URGENCY[reason] > _URGENCY[self.reason]:
            self.reason, self.note = reason, note

    def warn(self, note: str, until: float) -> None:
        """The machine is taken back at `until` (monotonic): everything must be over by then."""
        self.until = min(self.until, until)
        self.ask("notice", note)

    @property
    def hurry(self) -> bool:
        """Whether a signal or a notice (not a plan) ends the session, so that only a short grace is left."""
        return self.reason in ("notice", "sigterm", "sigint")


# --- Lets the system's signals ask a session to end, and ends the process itself where nothing hears them in time ---

MEANING: dict[signal.Signals, Reason] = {
    signal.SIGTERM: "sigterm",
    signal.SIGHUP: "sigterm",
    signal.SIGINT: "sigint",
    signal.SIGUSR1: "stop",
}

BY_REASON: dict[Reason, Exit] = {
    "sigint": Exit.SIGINT,
    "sigterm": Exit.SIGTERM,
    "stop": Exit.HANDOFF,
    "notice": Exit.HANDOFF,
    "fenced": Exit.FENCED,
}
LAST_S = 29.0
"""From SIGTERM, SIGHUP or SIGINT to an end that is forced: services leave 30 s until SIGKILL, which says nothing."""
EARLY_S = 5.0
"""The same before the lease, when there is nothing to commit and nothing to give back."""
AT_ONCE_S = 2.0
"""The same from a second SIGINT."""
TICK_S = 0.1
FAST = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""After these the process is gone in time, whatever hangs."""


class Interrupted(RelayError):
    """A signal ended the session before it held the lease."""

    def __init__(self, reason: Reason, note: str) -> None:
        super().__init__(f"Ended by {note or reason} before training began; nothing was trained.")
        self.exit_code = BY_REASON[reason]


class Overdue(RelayError):
    """A signal found the session under the lease, and what it was doing did not end in time."""

    def __init__(self, reason: Reason, note: str, seconds: float) -> None:
        super().__init__(f"Ended by {note or reason}: the session did not stop within {seconds:.0f} s.")
        self.exit_code, self.by, self.seconds = BY_REASON[reason], note or reason, seconds


def heed(stop: StopSignal) -> None:
    """Raises Interrupted if a signal came before there was a lease to give back."""
    if stop.reason is not None:
        raise Interrupted(stop.reason, stop.note)


def heeded() -> list[signal.Signals]:
    """The signals that a session hears."""
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in MEANING if not (outlives and number == signal.SIGHUP)]


def unwind_on_sigterm() -> None:
    """SIGTERM, and SIGHUP unless it is ignored, end what is not a session as an exit does: a terminal's cursor and
    half-written files are put right."""
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
    """SIGTERM, SIGHUP and SIGINT end the session fast, SIGUSR1 as planned; a second SIGINT raises KeyboardInterrupt.
    Whoever started this so that it outlives its terminal (nohup) has had SIGHUP ignored, and it stays so.

    `leave` must end the process. It is called, in a thread of its own, where a signal has not done so in time:
    whatever hangs, be it the main thread, hangs no longer than that. Also after this context, until the process ends.
    `event` receives each signal at once, on a thread of its own: a terminal may hang as well.
    """

    def heard(number: int, _: FrameType | None) -> None:
        stop.ask(MEANING[signal.Signals(number)], signal.Signals(number).name)
        if stop.at_once:
            raise KeyboardInterrupt

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # written to however busy the main thread is
    runtime.spawn("signals", _Watch(stop, runtime, leave, event, reader).until_over)
    before = {number: signal.signal(number, heard) for number in heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former)
        os.close(writer)


@dataclass
class _Watch:
    """Sees every signal as the system delivers it, and looks at the clock from then on."""

    stop: StopSignal
    runtime: Runtime
    leave: Callable[[RelayError], None]
    event: Callable[[SessionEvent], None]
    reader: int
    asked: float = math.inf
    """When the first signal came that leaves only a grace."""
    insisted: float = math.inf
    """When the second SIGINT came."""
    first: signal.Signals = signal.SIGTERM

    def until_over(self) -> None:
        """Return if the session ends unasked; else leave when its time is up."""
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
        """When the process has to be gone."""
        usual = LAST_S if self.stop.under_lease else EARLY_S
        return min(self.asked + usual, self.insisted + AT_ONCE_S)

    def _note(self, numbers: bytes) -> None:
        for number in numbers:
            if number in MEANING:
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
        self.runtime.spawn("said", lambda: self.event(received))

    def _error(self) -> RelayError:
        reason, note = MEANING[self.first], self.first.name
        if not self.stop.under_lease:
            return Interrupted(reason, note)
        return Overdue(reason, note, self.runtime.monotonic() - self.asked)
