"""Trains from one commit to the next and says why it stopped; knows no storage (P6, P9, I9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from relay.core.budget import Budget
from relay.core.checkpoint.certify import Verdict, judge
from relay.core.checkpoint.committer import Committer, Item
from relay.core.checkpoint.restore import Restored
from relay.core.events import Activity, LinkCertified, Pace, Started
from relay.core.lease.heartbeat import Heartbeat
from relay.core.lease.signals import Reason
from relay.core.ledger.samples import Gathered
from relay.core.session.context import Context, fraction
from relay.core.session.phases import Spent
from relay.core.session.stalls import Stalls
from relay.core.workload import Progress, Share, Snapshot, StepDigest

End = Literal["target", "budget", "stop", "notice", "sigterm", "sigint", "fenced", "blocked"]
COMPILE_S = 1800.0
"""Longest first step: compiling, capturing, filling caches."""
EVALUATE_S = 3600.0
URGENT: tuple[Reason, ...] = ("notice", "sigterm", "sigint", "fenced")
PACED = 2
"""Steps after the first, which may compile, until the pace is reported."""
FIRST_COMMIT_S = 60.0
"""Until an upload has been measured, a commit is due this soon, and after a tenth of a short budget."""


class NonFinite(Exception):
    """The state at `step` must never become the head (I9)."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class _TooLong(Exception):
    """The evaluation under way would take more time than there is."""


class Trainer:
    """One session's way through the steps."""

    def __init__(
        self,
        ctx: Context,
        budget: Budget,
        committer: Committer,
        heartbeat: Heartbeat,
        verdict: Verdict,
        evaluated_step: int,
        lend: Callable[[bool], None],
    ) -> None:
        """`evaluated_step`: the newest retained step that was evaluated, 0 for none. `lend` is called before each
        snapshot, with True before the session's last."""
        self._ctx, self._budget, self._committer = ctx, budget, committer
        self._heartbeat, self._verdict, self._lend = heartbeat, verdict, lend
        self._workload, self._plan, self._now = ctx.workload, ctx.plan, ctx.runtime.monotonic
        self._metrics: dict[str, float] = {}
        self._told = Gathered()
        self._snapped_step, self._evaluated_step = 0, evaluated_step
        self._snapped_at = self._stepped_at = self._now()
        self._steps = self._paced = 0
        self.train_s = 0.0
        self.spent = Spent(ctx.runtime)
        self.stalls = Stalls()

    def begin(self, restored: Restored | None) -> None:
        """The session's first ordinary step, compared with what the predecessor promised (P9), and kept."""
        self._snapped_step, self._snapped_at = self._workload.step, self._now()
        if self.why_end() is not None:
            return
        startup, event = self._ctx.startup, self._ctx.listener.event
        event(Activity("first step"))
        with self._heartbeat.phase(COMPILE_S):
            digest = self._one_step(self._report, sample=False)  # it may compile
        event(Activity("training"))
        startup.mark("first_step", self._now())
        event(Started(startup.total_s, dict(startup.phases), startup.inside(), startup.counts()))
        judge(self._verdict, restored, digest, self._ctx.facts)
        event(LinkCertified(self._verdict.certified, self._verdict.why))

    def run(self) -> End:
        """Train until an end is due, handing over a snapshot whenever a commit is. Raises what ended the committer."""
        while (end := self.why_end()) is None:
            if self._due():
                self._commit_here()
            else:
                self._stepped_at, self._steps = self._now(), self._workload.step
                self._workload.advance(self._boundary(), self._pause, self._report)
                self._count_step()
        return end

    def why_end(self) -> End | None:
        """Asked between steps."""
        self.heed_signal()
        if self._committer.failure is not None:
            raise self._committer.failure
        if self._ctx.signal.reason is not None:
            return self._ctx.signal.reason
        if self._workload.step >= self._plan.target_steps:
            return "target"
        if self._committer.blocked:  # another session can go on; this one would only train what is lost with it
            return "blocked"
        return "budget" if self._budget.should_stop(self._now(), self.inflight_rest() or 0.0) else None

    def heed_signal(self) -> None:
        """A notice leaves what it says, SIGTERM or SIGINT the grace."""
        self._budget.cut(self._ctx.signal.until)
        if self._ctx.signal.reason in ("sigterm", "sigint"):
            self._budget.cut(self._now() + self._plan.grace_s)

    def inflight_rest(self) -> float | None:
        """Seconds the upload in flight still needs, by what was measured; None without one."""
        running = self._committer.running_s()
        if running is None:
            return None
        return max(
            0.0, self._budget.transfer(self._budget.sending) + self._budget.measured.high("append", 1.0) - running
        )

    def snapshot(self, last: bool = False) -> Item:
        """A finite snapshot of the state now. Raises NonFinite."""
        self._lend(last)
        began = self._now()
        with self.spent.on("snapshot"):
            snapshot = self._workload.snapshot()
            self._refuse_non_finite(snapshot)  # where a copy is only queued, this waits for it: the end must reckon so
        self._budget.measured.add("snapshot", self._now() - began)
        metrics = {**self._metrics, "goodput": round(fraction(self.train_s, began - self._plan.limits.started), 4)}
        if self.stalls.median_s is not None:
            metrics["stall_ms"] = round(1000 * self.stalls.median_s, 1)
        rows = self._told.since(self._committer.committed_step)
        item = Item(snapshot.step, snapshot, taken_at=began, metrics=metrics, rows=rows)
        self._snapped_step, self._snapped_at = snapshot.step, began
        return item

    def hand_over(self, item: Item, step_after: Callable[[], StepDigest | None]) -> None:
        """Its upload begins; beside it run the evaluation, if due and affordable, and the step after (P9).

        Whatever they raise, the item is with the committer, which waits for them before the append.
        """
        item.ready = self._ctx.runtime.event()
        self._committer.offer(item)
        try:
            if self._evaluation_due():
                with self.spent.on("evaluate"):
                    self._evaluate(item)
            item.next = step_after()
        finally:
            item.ready.set()

    def extra_step(self) -> StepDigest:
        """The step after the last snapshot, for its digest; its state and metrics are thrown away by whoever asks."""
        self._workload.advance(self._workload.step + 1, lambda: False, None)
        found = self._workload.digest()
        return StepDigest(found.step, found.path, found.digest)  # what goes wrong on a device shows here

    def _evaluation_due(self) -> bool:
        """Every E commits' worth of steps, and at the target; not once a signal has ended the session."""
        plan, step = self._plan, self._workload.step
        if plan.evaluate_every == 0 or self._ctx.signal.hurry:
            return False
        return step >= plan.target_steps or step - self._evaluated_step >= plan.evaluate_every * plan.every_steps

    def _commit_here(self) -> None:
        """Snapshot N, then step N+1 beside its upload, so that the commit of N carries N+1's digest (P9).

        Nobody is told of N+1 at once and its digest is read by whoever writes it, so nothing here waits for a device.
        """
        self.stalls.commit()
        self.hand_over(self.snapshot(), lambda: self._one_step(None, sample=True))

    def _one_step(self, report: Callable[[Progress], None] | None, sample: bool) -> StepDigest:
        began = self._now()
        self._workload.advance(self._workload.step + 1, lambda: False, report)
        digest = self._workload.digest()
        self.train_s += self._now() - began
        if sample:
            self._budget.measured.add("step", self._now() - began)
        self._heartbeat.progress(self._workload.step)
        return digest

    def _due(self) -> bool:
        step = self._workload.step
        if step == self._snapped_step:
            return False
        return step % self._plan.every_steps == 0 or self._time_due()

    def _time_due(self) -> bool:
        every = self._plan.every_s
        if not self._budget.measured.known("upload"):
            every = min(every, FIRST_COMMIT_S, 0.1 * (self._plan.limits.budget_s or math.inf))
        return self._now() - self._snapped_at >= every and self._workload.step != self._snapped_step

    def _boundary(self) -> int:
        every = self._plan.every_steps
        return min(self._plan.target_steps, (self._workload.step // every + 1) * every)

    def _pause(self) -> bool:
        """Between steps: count the last one, and stop if an end or a commit is due."""
        self._count_step()
        return self._time_due() or self.why_end() is not None

    def _count_step(self) -> None:
        now, step = self._now(), self._workload.step
        if step > self._steps:
            self._budget.measured.add("step", (now - self._stepped_at) / (step - self._steps))
            self.train_s += now - self._stepped_at
            self._heartbeat.progress(step)
            self._report_pace()
        self._stepped_at, self._steps = now, step

    def _report_pace(self) -> None:
        """Once, where people were warned that this machine is slow: before it has taken their hour."""
        self._paced += 1
        if not self._plan.report_pace or self._paced != PACED:
            return
        left = self._budget.deadline - self._now() - self._budget.reserve()
        self._ctx.listener.event(Pace(self._budget.measured.median("step"), left))

    def _report(self, progress: Progress) -> None:
        self.stalls.report(self._now(), progress.step)
        self._metrics = dict(progress.metrics)
        self._told.add(progress.step, self._now(), progress.metrics)
        self._ctx.listener.progress(progress)

    def _refuse_non_finite(self, snapshot: Snapshot) -> None:
        if not snapshot.finite.ok:
            raise NonFinite(snapshot.step, snapshot.finite.reason)

    def _evaluate(self, item: Item) -> None:
        """Metrics of the item's state, which is still the workload's; given up at a signal or when too long."""
        began = self._now()
        allowed = self._budget.for_evaluation(began)
        if allowed <= 0:
            return

        def go_on(done: Share) -> None:
            too_slow = (self._now() - began) * done.total > allowed * max(done.done, 1)
            if done.done < done.total and (too_slow or self._ctx.signal.reason in URGENT):
                raise _TooLong  # what is done is not thrown away, however long it took
            event(Activity("evaluating", item.step, 100 * done.done // max(done.total, 1)))

        self._evaluated_step, event = item.step, self._ctx.listener.event
        event(Activity("evaluating", item.step))
        with suppress(_TooLong), self._heartbeat.phase(EVALUATE_S):
            found = self._workload.evaluate("valid", self._plan.evaluate_rows, go_on)
            item.metrics = {**item.metrics, **{f"valid/{name}": value for name, value in found.items()}}
            item.metric = found.get("exact_accuracy")
        event(Activity("training"))
        self._budget.measured.add("evaluate", self._now() - began)
        self.stalls.excuse(self._now() - began)
