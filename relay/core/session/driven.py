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
        self.outcome: Outcome | None = None
        self.last = False
        """Whether the next step is the one after the last snapshot: it is not part of the run."""
        self._parts: SessionParts | None = None
        """None before the lease, and without one."""
        self._steps = session_steps(ctx)

    @property
    def ended(self) -> bool:
        """Whether no step follows."""
        return self.outcome is not None

    @property
    def ending(self) -> bool:
        """Whether at most one more step follows."""
        return self.last or self.ended or self.ctx.signal.reason is not None

    @property
    def target_steps(self) -> int | None:
        """The run's target under the lease: another session may have raised it."""
        return self.ctx.plan.target_steps if self._parts else None

    @property
    def certified(self) -> str:
        """Whether the first step was the one that the session before promised: exact, not-exact or unknown."""
        return self._parts.certificate.certified if self._parts else "unknown"

    def open(self) -> None:
        """Take the lease and restore the state; if the target is reached, only load the newest state.

        Raises RelayError for a session that is refused or fails.
        """
        self._go(self._take_lease)

    def begin(self, evaluate_every: int = 0) -> None:
        """Call once before the first step. evaluate_every: in commits by number, 0 for never. Raises RelayError."""
        if self._parts is not None:
            self._parts.trainer.evaluate_every = evaluate_every
        self._go(lambda: next(self._steps))

    def reports(self, step: int) -> bool:
        """Whether the metrics of that step, which is the next one to end, are reported."""
        return self._report_of(step) is not None

    def after_step(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Call after each step. `metrics` may wait for the device, and is only called if they are reported.

        Raises RelayError, and what the workload raises.
        """
        assert self._parts is not None, "there is no step without a lease"
        step = self.ctx.workload.step
        if (report := self._report_of(step)) is not None:
            report(Progress(step, metrics()))
        self._go(lambda: next(self._steps))

    def _report_of(self, step: int) -> Callable[[Progress], None] | None:
        return None if self.last or self._parts is None else self._parts.trainer.report_of(step)

    def commit(self) -> None:
        """Commit after this step."""
        if self._parts is not None:
            self._parts.trainer.commit_asked = True

    def stop(self, why: str) -> None:
        """End as planned after this step."""
        self.ctx.signal.ask("stop", why)

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
        if not self.ended and self._parts is not None:
            self.outcome = ends.outcome(self._parts, Exit.BUG, ends.why(self.ctx, error))

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
            self._parts = found
        else:
            self.last = True

    def _take_lease(self) -> object:
        try:
            return next(self._steps)
        except StopIteration as stop:
            if stop.value.idle is not None:
                self._load_newest()
            raise

    def _load_newest(self) -> None:
        ctx = self.ctx
        state = ctx.ledger.read().state
        if state.head is not None:
            folder, workers, show = ctx.local_folder, ctx.plan.workers, ctx.listener.transfer
            restore(state, Route(ctx.checkpoint_store, ctx.names, folder, workers, lambda: None, show), ctx.workload)
