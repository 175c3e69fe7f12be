"""A session whose steps its caller makes, such as a user's own training loop.

session = DrivenSession(ctx)
session.open()                      # takes the lease and restores the state
session.begin()
while not session.ended:
    step()                          # also once after the last snapshot: its digest certifies the handoff (P13)
    session.after_step(metrics)
session.close(None)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay.core.checkpoint.restore import Route, restore
from relay.core.errors import Exit
from relay.core.session import ends
from relay.core.session.assembly import SessionParts
from relay.core.session.context import Context, Outcome
from relay.core.session.session import session_steps
from relay.core.session.steps import BrokenOff
from relay.core.workload import Progress


class DrivenSession:
    """One session. After each call, `ended` says whether it is over; the `outcome` is known then."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.parts: SessionParts | None = None
        """None before the lease, and without one."""
        self.outcome: Outcome | None = None
        self.last = False
        """Whether the next step is the one after the last snapshot: it is not part of the run."""
        self._steps = session_steps(ctx)
        self._begun = False

    @property
    def ended(self) -> bool:
        """Whether no step follows."""
        return self.outcome is not None

    def open(self) -> None:
        """Take the lease and restore the state; if the target is reached, only load the newest state.

        Raises RelayError for a session that is refused or fails.
        """
        self._go(lambda: next(self._steps))
        if self.outcome is not None and self.outcome.idle is not None:
            self._load_newest()

    def begin(self) -> None:
        """Call once before the first step. Raises RelayError."""
        self._begun = True
        self._go(lambda: next(self._steps))

    def after_step(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Call after each step. `metrics` may wait for the device, and is only called if they are reported.

        Raises RelayError, and what the workload raises.
        """
        assert self.parts is not None, "there is no step without a lease"
        step = self.ctx.workload.step
        report = None if self.last else self.parts.trainer.report_of(step)
        if report is not None:
            report(Progress(step, metrics()))
        self._go(lambda: next(self._steps))

    def close(self, error: BaseException | None) -> None:
        """End the session, in every case. `error`: what ended the caller's loop; None if it left the loop."""
        if self.ended:
            return
        thrown = error if error is not None else BrokenOff()
        try:
            self._go(lambda: self._steps.throw(thrown))
        except BaseException as raised:
            if raised is not error:
                raise
        if not self.ended and self.parts is not None:
            self.outcome = ends.outcome(self.parts, Exit.BUG, ends.why(self.ctx, error))

    def _go(self, act: Callable[[], object]) -> None:
        """Go on to the next pause. Raises the failure of a session that ended with one."""
        try:
            found = act()
        except StopIteration as stop:
            self.outcome = stop.value
            assert self.outcome is not None
            if self.outcome.failure is not None:
                raise self.outcome.failure from None
            return
        if isinstance(found, SessionParts):
            self.parts = found
        else:
            self.last = True

    def _load_newest(self) -> None:
        ctx = self.ctx
        state = ctx.ledger.read().state
        if state.head is not None:
            route = Route(
                ctx.checkpoint_store,
                ctx.names,
                ctx.local_folder,
                ctx.plan.workers,
                lambda: None,
                ctx.listener.transfer,
            )
            restore(state, route, ctx.workload)
