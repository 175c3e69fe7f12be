"""Trains from one commit to the next and says why it stopped; knows no storage (P6, P9, I9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Literal

from relay.core.budget import Budget
from relay.core.checkpoint.certify import Verdict, judge
from relay.core.checkpoint.committer import Committer, Item
from relay.core.checkpoint.restore import Restored
from relay.core.events import Activity, LinkCertified, Pace, Started
from relay.core.lease.heartbeat import Heartbeat
from relay.core.lease.signals import Reason
from relay.core.ledger.sessionreport import Gathered
from relay.core.session.context import Context, fraction
from relay.core.session.timing import Spent, Stalls
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
    """One session's way through the steps.

    `run` makes them with the workload. A loop that makes its own steps calls `begin` before the first one and
    `after_step` after each, and stops where one of them returns an end:

        end = trainer.begin(restored)
        while end is None:
            step(trainer.report_of(workload.step + 1))
            end = trainer.after_step()
    """

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
        self._restored: Restored | None = None
        self._first: ExitStack | None = None
        """While the first step is under way: what ends with it."""
        self._promised: Item | None = None
        """The snapshot whose commit waits for the digest of the step after it."""
        self._paced = 0
        self.train_s = 0.0
        self.spent = Spent(ctx.runtime)
        self.stalls = Stalls()

    def run(self, restored: Restored | None) -> End:
        """Train until an end is due. Raises what ended the committer, NonFinite, and what the workload raises."""
        workload, end = self._workload, self.begin(restored)
        while end is None:
            following = workload.step + 1
            workload.advance(following, lambda: False, self.report_of(following))
            end = self.after_step()
        return end

    def begin(self, restored: Restored | None) -> End | None:
        """Before the first step, which may compile. An end if there is no use in making it."""
        self._restored = restored
        self._snapped_step, self._snapped_at = self._workload.step, self._now()
        if (end := self.why_end()) is not None:
            return end
        self._ctx.listener.event(Activity("first step"))
        self._first = ExitStack()
        self._first.enter_context(self._heartbeat.phase(COMPILE_S))
        self._stepped_at = self._now()
        return None

    def after_step(self) -> End | None:
        """After each step: hand over a snapshot if a commit is due; an end once one is.

        Waits for a device only where a snapshot does. Raises as `run`.
        """
        if self._first is not None:
            self._end_first_step(self._first)
        else:
            self._count_step()
        end = self.why_end()
        if end is None and self._due():
            self.stalls.commit()
            self.hand_over(self.snapshot())
        self._stepped_at = self._now()
        return end

    def report_of(self, step: int) -> Callable[[Progress], None] | None:
        """Who receives the report of that step, which may wait for a device: None for most.

        The step beside a commit has none: its digest is read by the thread that writes it.
        """
        if self._promised is not None:
            return None
        numbered = step % self._workload.report_every == 0 or step % self._plan.every_steps == 0
        return self._report if numbered or self._first is not None or step >= self._plan.target_steps else None

    def close(self) -> None:
        """However the steps ended: nothing waits for another one."""
        self.promise(None)
        if self._first is not None:
            self._first.close()

    def _end_first_step(self, first: ExitStack) -> None:
        """Compare it with what the predecessor promised (P9)."""
        ctx, startup, event, self._first = self._ctx, self._ctx.startup, self._ctx.listener.event, None
        digest = self._workload.digest()
        self.train_s += self._now() - self._stepped_at
        self._heartbeat.progress(self._workload.step)
        first.close()
        event(Activity("training"))
        startup.mark("first_step", self._now())
        event(Started(startup.total_s, dict(startup.phases), startup.inside(), startup.counts()))
        judge(self._verdict, self._restored, digest, ctx.facts)
        event(LinkCertified(self._verdict.certified, self._verdict.why))
        if ctx.warm is not None:
            ctx.warm.offer(self._budget.spare(self._now()))

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

    def hand_over(self, item: Item) -> None:
        """Its upload begins, and beside it the evaluation, if due and affordable. The append waits for `promise`."""
        self.promise(None)
        item.ready, self._promised = self._ctx.runtime.event(), item
        self._committer.offer(item)
        if self._evaluation_due():
            with self.spent.on("evaluate"):
                self._evaluate(item)

    def promise(self, following: StepDigest | None) -> None:
        """The step after the snapshot that was handed over, for its commit (P9); None: there is none."""
        item, self._promised = self._promised, None
        if item is not None and item.ready is not None:
            item.next = following
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

    def _count_step(self) -> None:
        """The step that was just made, and what a snapshot waits for."""
        if self._promised is not None:
            self.promise(self._workload.digest())
        now, step = self._now(), self._workload.step
        self._budget.measured.add("step", now - self._stepped_at)
        self.train_s += now - self._stepped_at
        self._heartbeat.progress(step)
        self._report_pace()

    def _report_pace(self) -> None:
        """Once, where people were warned that this machine is slow: before it has taken their hour."""
        self._paced += 1
        if not self._plan.report_pace or self._paced != PACED:
            return
        left_s = self._budget.spare(self._now())
        self._ctx.listener.event(Pace(self._budget.measured.median("step"), left_s))

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
            of = self._workload.measures
            found = self._workload.evaluate(of.splits.choosing, self._plan.evaluate_rows, go_on)
            item.metrics = {**item.metrics, **{of.on_split(name): value for name, value in found.items()}}
            item.metric = of.headline.score(found.get(of.headline.name))
        event(Activity("training"))
        self._budget.measured.add("evaluate", self._now() - began)
        self.stalls.excuse(self._now() - began)
