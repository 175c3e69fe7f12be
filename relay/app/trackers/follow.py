"""The threads that feed trackers while a session trains: they can delay it by nothing and end it by nothing."""

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
"""After so many failures in a row the tracker is left alone until the next session."""


@dataclass(frozen=True)
class Wanted:
    """A tracker that was asked for."""

    title: str
    key: str
    """As settings and `track --to` name it."""
    make: Callable[[int | None], Sink]
    """Given the slot of this session's lease. Raises SinkOff, and whatever its library raises."""
    feed: Callable[[Callable[[], bool]], Feed]
    """Given whether to go on reading."""


@dataclass
class Follower:
    """One tracker's thread."""

    runtime: Runtime
    wanted: Wanted
    own: int
    tell: Callable[[str], None]
    note: Callable[[str], None]
    """Records for everybody that this session could not feed a tracker; raises nothing."""
    _wake: Event = field(init=False)
    _task: Task | None = field(init=False, default=None)
    _over: bool = field(init=False, default=False)
    _failed: int = field(init=False, default=0)
    _greeted: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._wake = self.runtime.event()

    def start(self) -> None:
        """Bring the tracker up to date, then wait for notices."""
        self._task = self.runtime.spawn(f"tracker {self.wanted.key}", self._run)

    def notice(self) -> None:
        """Something was committed. However often this is said, it is looked at once."""
        self._wake.set()

    def end(self) -> None:
        """Read what is there, and finish."""
        self._over = True
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has finished within that time; else it is left to itself."""
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
            except FOREIGN as error:  # somebody else's library: training goes on whatever it raises
                self._tell(error)
                self._drop(sink)
                sink = None
            if last:
                return
            self._wake.wait()
            self._wake.clear()

    def _greet(self, sink: Sink) -> None:
        """Once, when the tracker has all that the ledger said."""
        if not self._greeted:
            self._greeted = True
            self.tell(f"{self.wanted.title} is up to date with the ledger: {sink.where()}")

    def _drop(self, sink: Sink | None) -> None:
        """What failed is let go before another is made; what it holds is not trusted, its marks are."""
        try:
            if sink is not None:
                sink.close()
        except FOREIGN as error:
            LOG.info("%s could not be closed", self.wanted.key, exc_info=error)

    def _tell(self, error: BaseException) -> None:
        """Once to people and once to the ledger, which is told of no text that a library made."""
        LOG.info("%s failed", self.wanted.key, exc_info=error)
        self._failed += 1
        if self._failed == 1:
            again = f"`track --to {self.wanted.key}` brings it up to date"
            self.tell(f"{self.wanted.title} could not be fed ({in_a_line(error)}). Training goes on; {again}.")
            self.note(f"{self.wanted.title} could not be fed ({type(error).__name__}); training went on. {again}.")


@dataclass
class Trackers:
    """All trackers of a session; without any, nothing happens."""

    runtime: Runtime
    wanted: Sequence[Wanted] = ()
    tell: Callable[[str], None] = lambda line: None
    left: bool = False
    """Whether one was left behind: its library may make the interpreter's end wait for it."""
    _followers: list[Follower] = field(default_factory=list)

    def started(self, seq: int, note: Callable[[str], None]) -> None:
        """`seq`: the slot of this session's lease."""
        self._followers = [Follower(self.runtime, one, seq, self.tell, note) for one in self.wanted]
        for follower in self._followers:
            follower.start()

    def committed(self) -> None:
        """A commit has landed."""
        for follower in self._followers:
            follower.notice()

    def closed(self, longest_s: float) -> None:
        """Let them finish, at most so long together; a daemon thread that hangs is left behind."""
        for follower in self._followers:
            follower.end()
        until = self.runtime.monotonic() + longest_s
        for follower in self._followers:
            if not follower.wait(until - self.runtime.monotonic()):
                self.left = True
                again = f"the next session or `track --to {follower.wanted.key}` goes on from there"
                self.tell(f"{follower.wanted.title} has not taken everything yet; {again}.")
        self._followers = []
