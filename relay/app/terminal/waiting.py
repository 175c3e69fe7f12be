"""Says for whom a session waits, and counts down: all the time where a line can move; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from relay.app.messages.wording import duration
from relay.app.terminal.atwork import bar
from relay.app.terminal.terminal import utf8
from relay.core.clock import Runtime
from relay.core.lease.blockers import Held

TICK_S = 1.0
BAR = 20
"""Columns."""


@dataclass
class Countdown:
    """The wait for one lease."""

    runtime: Runtime
    wait_s: float
    """How long whoever started the session is ready to wait."""
    show: Callable[[str], None]
    """A line that may move; empty once it is over."""
    tell: Callable[[str], None]
    name: Callable[[str], str]
    """What people call an account."""
    bar: Callable[[float], str] = lambda share: ""
    """Draws which share of the wait is gone."""
    _held: Held | None = None
    _who: str = ""
    _since: float = 0.0
    _at: float = 0.0
    _shown_at: float = 0.0

    def held(self, held: Held) -> None:
        """Somebody was found in the way."""
        now = self.runtime.monotonic()
        if self._held is None:
            self._since, self._shown_at = now, now - TICK_S
        if self._held is None or self._held.holder.session != held.holder.session:
            self._who = self.name(held.holder.account)
            self.tell(self._begin(held))
        self._held, self._at = held, now

    def tick(self) -> None:
        """Asked all the time while a session waits."""
        now = self.runtime.monotonic()
        if self._held is not None and now - self._shown_at >= TICK_S:
            self._shown_at = now
            self.show(self.text(now))

    def over(self) -> None:
        """The session has the lease, or gave up."""
        if self._held is not None:
            self._held = None
            self.show("")

    def text(self, now: float) -> str:
        """`waiting for Ana (account_2)  ###-----  4 min left; ...`."""
        assert self._held is not None
        silent = f"last sign of life {duration(self._held.silent_s + now - self._at)} ago"
        left = max(0.0, self.wait_s - (now - self._since))
        if left <= 0 or self._held.confirming:
            look = max(0.0, self._held.left_s - (now - self._at))
            return f"looking whether {self._who} still trains: {clock(look)}; {silent}"
        who = f"{self._who}{self.bar(1 - left / self.wait_s)}"
        return f"waiting for {who}: {clock(left)} of {clock(self.wait_s)} left; {silent}"

    def _begin(self, held: Held) -> str:
        free = f"it may be taken over in {duration(held.left_s)} if it falls silent"
        if held.confirming:
            return f"{self._who} holds the lease and is silent: looking whether it still trains."
        return f"{self._who} holds the lease: waiting for up to {duration(self.wait_s)} ({free})."


def bar_of(terminal: bool, encoding: str | None) -> Callable[[float], str]:
    """What draws bars there; nothing where no line moves."""
    return partial(bar, length=BAR, ascii_only=not utf8(encoding)) if terminal else lambda share: ""


def clock(seconds: float) -> str:
    """`4:07`, `1:04:07`: what can be seen to move."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
