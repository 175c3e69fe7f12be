"""Polls for the cloud's notice that it takes the machine back, and ends the session in time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relay.app.machine.spot import SpotQuery
from relay.core.clock import Event, Runtime
from relay.core.lease.signals import StopSignal

LOG = logging.getLogger("relay.session")
POLL_S = 5.0
"""As EC2's documentation recommends."""


@dataclass
class Watch:
    """Work of the polling thread: query until a notice comes or the session is over."""

    query: SpotQuery
    runtime: Runtime
    stop: StopSignal
    report: Callable[[str], None]
    over: Event

    def until_over(self) -> None:
        """Poll; the first notice ends the session and the watch."""
        while not self.over.is_set():
            notice = self.query()
            if notice is not None:
                self.stop.warn(notice.text, self.runtime.monotonic() + notice.left_s)
                LOG.warning(notice.text)
                self.report(f"{notice.text.capitalize()}: the session ends now.")
                return
            self.over.wait(POLL_S)


@contextmanager
def watching(
    query: SpotQuery | None, runtime: Runtime, stop: StopSignal, report: Callable[[str], None]
) -> Iterator[None]:
    """Poll during the block; without a query, no thread starts."""
    over = runtime.event()
    if query is not None:
        runtime.spawn("spot notices", Watch(query, runtime, stop, report, over).until_over)
    try:
        yield
    finally:
        over.set()
