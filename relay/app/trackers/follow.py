"""Feeds trackers in threads while a session trains; they can neither delay nor end the session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relay.app.trackers.base import FOREIGN, Sink, SinkOff, in_a_line
from relay.app.trackers.feed import Feed
from relay.core.clock import Event, Runtime, Task
from relay.core.errors import RelayError
from storage.base import StoreError

LOG = logging.getLogger("relay.sinks")
TRIES = 3
"""Consecutive failures after which the tracker is skipped until the next session."""


@dataclass(frozen=True)
class Wanted:
    """A tracker named in the settings."""

    title: str
    key: str
    """Its name in the settings and in `track --to`."""
    make: Callable[[int | None], Sink]
    """Creates the sink, from the slot of this session's lease. Raises SinkOff and the library's own errors."""
    feed: Callable[[Callable[[], bool]], Feed]
    """Creates the feed, from a function that returns whether to continue reading."""


@dataclass
class Follower:
    """One tracker's thread."""

    runtime: Runtime
    wanted: Wanted
    own: int
    tell: Callable[[str], None]
    note: Callable[[str], None]
    """Records in the ledger that this session could not feed a tracker; raises nothing."""
    _wake: Event = field(init=False)
    _task: Task | None = field(init=False, default=None)
    _over: bool = field(init=False, default=False)
    _failed: int = field(init=False, default=0)
    _greeted: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._wake = self.runtime.event()

    def start(self) -> None:
        """Start the thread: bring the tracker up to date, then wait for notices."""
        self._task = self.runtime.spawn(f"tracker {self.wanted.key}", self._run)

    def notice(self) -> None:
        """Wake the thread after a commit. Several notices cause one read."""
        self._wake.set()

    def end(self) -> None:
        """Read the remaining entries and finish."""
        self._over = True
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Return whether the thread finished within that time; otherwise it keeps running."""
        if self._task is not None:
            self._task.join(max(0.0, seconds))
        return self._task is None or not self._task.is_alive()

    def _run(self) -> None:
        sink: Sink | None = None
        while self._failed < TRIES:
            last = self._over
            try:
                if sink is None:
                    sink = self.wanted.make(self.own)
                    self._feed = self.wanted.feed(lambda: True)
                self._feed.update(sink)
                self._greet(sink)
                self._failed = 0
                if last:
                    sink.close()
            except SinkOff as off:
                self.tell(f"{self.wanted.title} is left out: {off}")
                return
            except (RelayError, StoreError) as error:
                LOG.info("%s: the ledger could not be read: %s", self.wanted.key, error)
                if last:
                    self._drop(sink)
            except FOREIGN as error:  # a foreign library: training continues after any error
                self._tell(error)
                self._drop(sink)
                sink = None
            if last:
                return
            self._wake.wait()
            self._wake.clear()

    def _greet(self, sink: Sink) -> None:
        """Report once that the tracker has everything in the ledger."""
        if not self._greeted:
            self._greeted = True
            self.tell(f"{self.wanted.title} is up to date with the ledger: {sink.where()}")

    def _drop(self, sink: Sink | None) -> None:
        """Close a failed sink before the next one is created. Only its marks are trusted, not its state in memory."""
        try:
            if sink is not None:
                sink.close()
        except FOREIGN as error:
            LOG.info("%s could not be closed", self.wanted.key, exc_info=error)

    def _tell(self, error: BaseException) -> None:
        """Report once to the user and once to the ledger; the ledger gets no text from a library."""
        LOG.info("%s failed", self.wanted.key, exc_info=error)
        self._failed += 1
        if self._failed == 1:
            again = f"`track --to {self.wanted.key}` brings it up to date"
            self.tell(f"{self.wanted.title} could not be fed ({in_a_line(error)}). Training goes on; {again}.")
            self.note(f"{self.wanted.title} could not be fed ({type(error).__name__}); training went on. {again}.")


@dataclass
class Trackers:
    """All trackers of a session; does nothing without any."""

    runtime: Runtime
    wanted: Sequence[Wanted] = ()
    tell: Callable[[str], None] = lambda line: None
    left: bool = False
    """Whether a thread was left running: its library may delay the interpreter's exit."""
    _followers: list[Follower] = field(default_factory=list)

    def started(self, seq: int, note: Callable[[str], None]) -> None:
        """Start the threads. `seq`: the slot of this session's lease."""
        self._followers = [Follower(self.runtime, one, seq, self.tell, note) for one in self.wanted]
        for follower in self._followers:
            follower.start()

    def committed(self) -> None:
        """Wake all threads after a commit."""
        for follower in self._followers:
            follower.notice()

    def closed(self, longest_s: float) -> None:
        """Let all threads finish within `longest_s` seconds together; a daemon thread that hangs is left running."""
        for follower in self._followers:
            follower.end()
        until = self.runtime.monotonic() + longest_s
        for follower in self._followers:
            if not follower.wait(until - self.runtime.monotonic()):
                self.left = True
                again = f"the next session or `track --to {follower.wanted.key}` goes on from there"
                self.tell(f"{follower.wanted.title} has not taken everything yet; {again}.")
        self._followers = []
