"""Watches beside a session whether its machine is taken back, and asks it to end in time; knows no cloud."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relay.app.machine.spot import Look
from relay.core.clock import Event, Runtime
from relay.core.lease.signals import StopSignal

LOG = logging.getLogger("relay.session")
POLL_S = 5.0
"""As EC2's documentation recommends."""


@dataclass
class Watch:
    """One thread's work: ask until a notice comes or the session is over."""

    look: Look
    runtime: Runtime
    stop: StopSignal
    tell: Callable[[str], None]
    over: Event

    def until_over(self) -> None:
        """The first notice ends the session and the watch."""
        while not self.over.is_set():
            notice = self.look()
            if notice is not None:
                self.stop.warn(notice.text, self.runtime.monotonic() + notice.left_s)
                LOG.warning(notice.text)
                self.tell(f"{notice.text.capitalize()}: the session ends now.")
                return
            self.over.wait(POLL_S)


@contextmanager
def watching(look: Look | None, runtime: Runtime, stop: StopSignal, tell: Callable[[str], None]) -> Iterator[None]:
    """Watch during the block; without a cloud to ask, nothing is started."""
    over = runtime.event()
    if look is not None:
        runtime.spawn("spot notices", Watch(look, runtime, stop, tell, over).until_over)
    try:
        yield
    finally:
        over.set()
