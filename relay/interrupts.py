"""Lets the system's signals ask a session to end; installs handlers and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from relay.errors import Exit, RelayError
from relay.signals import Reason, StopSignal

MEANING: dict[signal.Signals, Reason] = {
    signal.SIGTERM: "sigterm",
    signal.SIGINT: "sigint",
    signal.SIGUSR1: "stop",
}

BY_REASON: dict[Reason, Exit] = {
    "sigint": Exit.SIGINT,
    "sigterm": Exit.SIGTERM,
    "stop": Exit.HANDOFF,
    "fenced": Exit.FENCED,
}


class Interrupted(RelayError):
    """A signal ended the session before it held the lease."""

    def __init__(self, reason: Reason, note: str) -> None:
        super().__init__(f"Ended by {note or reason} before training began; nothing was trained.")
        self.exit_code = BY_REASON[reason]


def heed(stop: StopSignal) -> None:
    """Raises Interrupted if a signal came before there was a lease to give back."""
    if stop.reason is not None:
        raise Interrupted(stop.reason, stop.note)


@contextmanager
def listening(stop: StopSignal) -> Iterator[None]:
    """SIGTERM and SIGINT end the session fast, SIGUSR1 as planned; a second SIGINT raises KeyboardInterrupt."""

    def heard(number: int, _: FrameType | None) -> None:
        stop.ask(MEANING[signal.Signals(number)], signal.Signals(number).name)
        if stop.at_once:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, heard) for number in MEANING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
