"""Trains from commit to commit and returns why it stopped (P6, P9, I9). Does not access storage."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Literal

from relay.core.budget import KINDS, TRANSFERS, Budget
from relay.core.checkpoint.certify import Certificate, certify
from relay.core.checkpoint.committer import Committer, Item
from relay.core.checkpoint.restore import Restored
from relay.core.errors import BadConfig
from relay.core.events import Activity, LinkCertified, Pace, ProcessGone, Started, Trouble
from relay.core.lease.heartbeat import Heartbeat
from relay.core.lease.signals import StopReason
from relay.core.ledger.finaltest import asked
from relay.core.ledger.frozen import MAX_METRICS, WHOLE
from relay.core.ledger.sessionreport import Gathered
from relay.core.session.context import Context, Plan, fraction
from relay.core.session.timing import Spent, Stalls
from relay.core.workload import ProcessLost, Progress, Publisher, Reading, Share, Snapshot, StepDigest, read_as

End = Literal["target", "until", "budget", "stop", "notice", "sigterm", "sigint", "fenced", "blocked", "process lost"]
COMPILE_S = 1800.0
"""Longest first step: compiling, capturing, filling caches."""
EVALUATE_S = 3600.0
URGENT: tuple[StopReason, ...] = ("notice", "sigterm", "sigint", "fenced")
PACED = 2
"""The pace is reported after this many steps, not counting the first, which may compile."""
FIRST_COMMIT_S = 60.0
"""Until an upload was measured, a commit is due after this time, or a tenth of a short budget."""
ROOM_FOR_TEST = MAX_METRICS - len(KINDS) - len(TRANSFERS) - 3
"""Metrics of a commit without the session's measurements and the newest evaluation, which a commit adds last."""


def at_last_step(plan: Plan, step: int) -> End:
    """The end of a session whose last step is reached."""
    return "target" if step >= plan.target_steps else "until"


class NonFinite(Exception):
    """The state at `step` must never become the head (I9)."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step, self.reason = step, reason


class NoTimeForTest(BadConfig):
    """The session was to make a test alone and has not enough time for its first reading, and so has none like it."""

    def __init__(self, reading: str, needed_s: float, left_s: float) -> None:
        """`needed_s`: 0 if the session had no time to find it out."""
        super().__init__(f"This session has not enough time for the test ({reading}) at the target.")
        self.reading, self.needed_s, self.left_s = reading, needed_s, left_s


class _TooLong(Exception):
    """The current evaluation would take longer than allowed."""

    def __str__(self) -> str:
        return "an evaluation of all rows would take longer than this session allows"


class Trainer:
    """Runs the steps of one session.

    `run` calls the workload. A user's own loop calls `begin` before the first step and `after_step` after each, and
    stops when one of them returns an end:

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
        certificate: Certificate,
        evaluated_step: int,
        lend: Callable[[bool], None],
    ) -> None:
        """`evaluated_step`: the newest step that was evaluated, 0 if none.

        `lend` is called before each snapshot, with True before the session's last.
        """
        self._ctx, self._budget, self._committer = ctx, budget, committer
        self._heartbeat, self._certificate, self._lend = heartbeat, certificate, lend
        self._workload, self._plan, self._now = ctx.workload, ctx.plan, ctx.runtime.monotonic
        self._metrics: dict[str, float] = {}
        self._gathered = Gathered()
        self._snapped_step, self._evaluated_step, self._began_step = 0, evaluated_step, 0
        self._snapped_at = self._stepped_at = self._now()
        self._restored: Restored | None = None
        self._first: ExitStack | None = None
        """Contexts that end with the first step, while it runs."""
        self._promised: Item | None = None
        """The snapshot whose commit waits for the digest of the following step."""
        self._paced = 0
        self._whole_s = 0.0
        """Seconds of the newest evaluation if it is finished, by the share that was done."""
        self._validation_s: float | None = None
        """The same of the newest validation; None without one."""
        self.tested: dict[str, dict[str, float]] = {}
        """The results of the test, by reading."""
        self._test_over = False
        """A reading was given up, so this session tests no more."""
        self._no_time: NoTimeForTest | None = None
        self.evaluate_every = ctx.plan.evaluate_every
        self.commit_asked = False
        """A caller wants a commit after this step."""
        self.lost: ProcessLost | None = None
        """Set once no step can follow, because a process that shares each step is gone."""
        self.train_s = 0.0
        self.spent = Spent(ctx.runtime)
        self.stalls = Stalls()

    def run(self, restored: Restored | None) -> End:
        """Train until an end is due. Raises the committer's failure, NonFinite, and errors of the workload."""
        workload, end = self._workload, self.begin(restored)
        while end is None:
            following = workload.step + 1
            try:
                workload.advance(following, lambda: False, self.report_of(following))
            except ProcessLost as lost:
                return self.lose(lost)
            end = self.after_step()
        return end

    def lose(self, lost: ProcessLost) -> End:
        """A process that shares each step is gone, so no step can follow."""
        self.lost = lost
        self.promise(None)
        self._ctx.listener.event(ProcessGone(lost, self._workload.step))
        return "process lost"

    def begin(self, restored: Restored | None) -> End | None:
        """Call before the first step, which may compile. Returns an end if the step should not be made."""
        self._restored = restored
        self._snapped_step, self._snapped_at = self._workload.step, self._now()
        self._began_step = self._workload.step
        if (end := self.why_end()) is not None:
            return end
        self._ctx.listener.event(Activity("first step"))
        self._first = ExitStack()
        self._first.enter_context(self._heartbeat.phase(COMPILE_S))
        self._stepped_at = self._now()
        return None

    def after_step(self) -> End | None:
        """Call after each step: hands over a snapshot if a commit is due, and returns an end once there is one.

        Waits for the device only if a snapshot does. Raises as `run`.
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
        """The callback for that step's report, which may wait for the device; None for most steps.

        A step during a commit has none: the thread that writes the commit reads its digest.
        """
        if self._promised is not None:
            return None
        numbered = step % self._workload.report_every == 0 or step % self._plan.every_steps == 0
        return self._report if numbered or self._first is not None or step >= self._plan.last_step else None

    def close(self) -> None:
        """Call after the last step, in every case: no commit waits for another step."""
        self.promise(None)
        if self._first is not None:
            self._first.close()

    def _end_first_step(self, first: ExitStack) -> None:
        """Compare the step with the digest that the predecessor promised (P9)."""
        ctx, startup, event, self._first = self._ctx, self._ctx.startup, self._ctx.listener.event, None
        digest = self._workload.digest()
        self.train_s += self._now() - self._stepped_at
        self._heartbeat.progress(self._workload.step)
        first.close()
        event(Activity("training"))
        startup.mark("first_step", self._now())
        self._snapped_at += sum(startup.inside().values())  # a kill would not cost compiled code
        event(Started(startup.total_s, dict(startup.phases), startup.inside(), startup.counts()))
        certify(self._certificate, self._restored, digest, ctx.facts)
        event(LinkCertified(self._certificate.certified, self._certificate.why))
        if ctx.warm is not None:
            ctx.warm.offer(self._budget.spare(self._now()))

    def why_end(self) -> End | None:
        """The end that is due, None to continue. Called between steps. Raises the committer's failure."""
        self.heed_signal()
        if self._committer.failure is not None:
            raise self._committer.failure
        if self._ctx.signal.reason is not None:
            return self._ctx.signal.reason
        if self._workload.step >= self._plan.last_step:
            return at_last_step(self._plan, self._workload.step)
        if self._committer.blocked:  # further steps here would be lost, while another session can go on
            return "blocked"
        rest = (self.inflight_rest() or 0.0) + self._foreseen_test_s()
        return "budget" if self._budget.should_stop(self._now(), rest) else None

    def heed_signal(self) -> None:
        """Shorten the budget after a signal: to a notice's own time, or to the grace after SIGTERM or SIGINT."""
        self._budget.cut(self._ctx.signal.until)
        if self._ctx.signal.reason in ("sigterm", "sigint"):
            self._budget.cut(self._now() + self._plan.grace_s)

    def inflight_rest(self) -> float | None:
        """Seconds that the upload in flight still needs, by measured times; None without one."""
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
            self._refuse_non_finite(snapshot)  # this waits for a queued copy, so the measured time includes it
        self._budget.measured.add("snapshot", self._now() - began)
        lasted = began - self._plan.limits.started - self._ctx.startup.waited_s
        machine = self._ctx.meter.take() if self._ctx.meter else {}  # first: if a commit has too many metrics, these go
        metrics = {**machine, **self._metrics, "goodput": round(fraction(self.train_s, lasted), 4)}
        if self.stalls.median_s is not None:
            metrics["stall_ms"] = round(1000 * self.stalls.median_s, 1)
        rows = self._gathered.since(self._committer.committed_step)
        item = Item(snapshot.step, snapshot, taken_at=began, metrics=metrics, rows=rows)
        self._snapped_step, self._snapped_at, self.commit_asked = snapshot.step, began, False
        return item

    def hand_over(self, item: Item) -> None:
        """Start the upload and, if due and affordable, evaluate during it. The commit waits for `promise`."""
        self.promise(None)
        tests = self._ctx.tests if self._at_target else []
        item.metrics = self._with_test(item.metrics, tests)
        item.ready, self._promised = self._ctx.runtime.event(), item
        self._committer.offer(item)
        if self._evaluation_due():
            with self.spent.on("evaluate"):
                self._evaluate(item)
        for _ in self.test(tests):
            item.metrics = self._with_test(item.metrics, tests)

    def _with_test(self, metrics: Mapping[str, float], tests: Sequence[str]) -> dict[str, float]:
        """The metrics, and last, where a full commit keeps them, the results of each reading or what was asked for.

        A reading for which the commit has no room is left out as a whole: part of it would count as its result.
        """
        rows, results = float(min(self._plan.test_rows, WHOLE)), dict[str, float]()
        marks = {asked(reading): rows for reading in tests}
        others = {name: value for name, value in metrics.items() if name not in marks}
        for reading in tests:
            found = self.tested.get(reading)
            if found is not None and len(results) + len(found) + len(marks) - 1 <= ROOM_FOR_TEST:
                results |= found
                del marks[asked(reading)]
        return {name: value for name, value in others.items() if name not in results} | results | marks

    def promise(self, following: StepDigest | None) -> None:
        """Give the commit of the last snapshot the digest of the following step (P9); None if there is no such step."""
        item, self._promised = self._promised, None
        if item is not None and item.ready is not None:
            item.next = following
            item.ready.set()

    def extra_step(self) -> StepDigest:
        """Digest of the step after the last snapshot. The caller must discard the resulting state and metrics."""
        self._workload.advance(self._workload.step + 1, lambda: False, None)
        return self.digest()

    def digest(self) -> StepDigest:
        """P9's digest of the state now; waits for the device."""
        found = self._workload.digest()
        return StepDigest(found.step, found.path, found.digest)  # reading the digest surfaces device errors here

    def _evaluation_due(self) -> bool:
        """Every `evaluate_every` × `every_steps` steps, and at the target; never after a signal or a lost process."""
        plan, step = self._plan, self._workload.step
        if self.evaluate_every == 0 or self._ctx.signal.hurry or self.lost is not None:
            return False
        return self._at_target or step - self._evaluated_step >= self.evaluate_every * plan.every_steps

    @property
    def _at_target(self) -> bool:
        return self._workload.step >= self._plan.target_steps

    def _foreseen_test_s(self) -> float:
        """Twice the seconds of the evaluations at the target, if the next step reaches it; otherwise 0.

        By this session's last validation, or half of the budget without one. A session that begins directly before the
        target makes that step in any case: no other session has more time.
        """
        plan, step = self._plan, self._workload.step
        if not plan.test_rows or step + 1 < plan.target_steps or step == self._began_step:
            return 0.0
        rows = plan.test_rows * (1 + len(plan.test_also))
        if self._validation_s is None:
            return 0.5 * (plan.limits.budget_s or 0.0)
        tests = max(1.0, rows / (plan.evaluate_rows or plan.test_rows))
        return 2 * self._validation_s * (tests + (self.evaluate_every > 0))

    def _due(self) -> bool:
        step = self._workload.step
        if step == self._snapped_step:
            return False
        return step % self._plan.every_steps == 0 or self.commit_asked or self._time_due()

    def _time_due(self) -> bool:
        every = self._plan.every_s
        if not self._budget.measured.known("upload"):
            every = min(every, FIRST_COMMIT_S, 0.1 * (self._plan.limits.budget_s or math.inf))
        return self._now() - self._snapped_at >= every and self._workload.step != self._snapped_step

    def _count_step(self) -> None:
        """Account for the step just made, and promise its digest to a waiting snapshot."""
        if self._promised is not None:
            self.promise(self._workload.digest())
        now, step = self._now(), self._workload.step
        self._budget.measured.add("step", now - self._stepped_at)
        self.train_s += now - self._stepped_at
        self._heartbeat.progress(step)
        self._report_pace()

    def _report_pace(self) -> None:
        """Report the pace once, early, after a warning that this machine is slow."""
        self._paced += 1
        if not self._plan.report_pace or self._paced != PACED:
            return
        left_s = self._budget.spare(self._now())
        self._ctx.listener.event(Pace(self._budget.measured.median("step"), left_s))

    def _report(self, progress: Progress) -> None:
        self.stalls.report(self._now(), progress.step)
        self._metrics = dict(progress.metrics)
        self._gathered.add(progress.step, self._now(), progress.metrics)
        self._ctx.listener.progress(progress)

    def _refuse_non_finite(self, snapshot: Snapshot) -> None:
        if not snapshot.finite.ok:
            raise NonFinite(snapshot.step, snapshot.finite.reason)

    def _patient(self, step: int, began: float, allowed: float) -> Callable[[Share], None]:
        """Reports an evaluation's progress; raises _TooLong if the whole would take longer, or at a signal."""

        def go_on(done: Share) -> None:
            self._whole_s = (self._now() - began) * done.total / max(done.done, 1)
            if done.done < done.total and (self._whole_s > allowed or self._ctx.signal.reason in URGENT):
                raise _TooLong  # a finished evaluation is kept, however long it took
            self._heartbeat.advance()
            self._ctx.listener.event(Activity("evaluating", step, 100 * done.done // max(done.total, 1)))

        return go_on

    def _publish(self, go_on: Callable[[Share], None]) -> None:
        """Have the workload write its files for other programs; what does not fit is left out, and reported."""
        if not isinstance(self._workload, Publisher):
            return
        began = self._now()
        try:
            with self._heartbeat.phase(EVALUATE_S):
                self._workload.publish(go_on)
        except (_TooLong, OSError) as error:
            self._ctx.listener.event(Trouble("publishing", error))
        self._ctx.listener.event(Activity("training"))
        self.stalls.excuse(self._now() - began)

    def _evaluate(self, item: Item) -> None:
        """Evaluate the item's state, which is still the workload's. Abandoned at a signal or if it takes too long."""
        began, of = self._now(), self._workload.measures
        self._evaluated_step = item.step
        allowed = self._budget.for_evaluation(began)
        found = self._measured(item.step, of.splits.choosing, self._plan.evaluate_rows, allowed)
        self._validation_s = self._whole_s or self._validation_s
        if found is not None:
            item.metrics = {**item.metrics, **{of.on_split(name): value for name, value in found.items()}}
            item.metric, count = of.headline.score(found.get(of.headline.name)), found.get(of.count)
            item.evaluated_rows = None if count is None else int(count)
        if allowed > 0:
            self._publish(self._patient(item.step, began, allowed))
            self._budget.measured.add("evaluate", self._now() - began)

    def test(self, readings: Collection[str]) -> Iterator[tuple[str, dict[str, float]]]:
        """The results of these readings of the state at the target, each evaluated once.

        Ends before the first one for which there is no time.
        """
        split = self._workload.measures.splits.reported
        for name, reading in {one.on(split): one for one in (Reading(), *self._plan.test_also)}.items():
            if name in readings:
                if name not in self.tested and not self._evaluate_reading(name, reading):
                    return
                yield name, self.tested[name]

    def why_untested(self, committed: bool) -> End:
        """The end of a session that leaves the test to the next one. Raises NoTimeForTest if it did nothing else."""
        if self._no_time and not (committed or self.tested):
            raise self._no_time  # with 75 a launcher that starts it again would do so for ever
        return "process lost" if self.lost is not None else self._ctx.signal.reason or "budget"

    def _evaluate_reading(self, name: str, reading: Reading) -> bool:
        """Evaluate the state at the target on the reported split; False if this session cannot, now or before.

        Once a reading is given up no other is tried: after the extra step of an end, the state is another one.
        """
        split, count, found = self._workload.measures.splits.reported, self._workload.measures.count, None
        if not (self._test_over or self._ctx.signal.reason in URGENT or self.lost is not None):
            with self.spent.on("evaluate"), read_as(self._workload, reading):
                spare = self._budget.spare(self._now())
                found = self._measured(self._workload.step, split, self._plan.test_rows, spare)
            if found is None and self._ctx.signal.reason is None:
                self._no_time = NoTimeForTest(name, self._whole_s, max(0.0, spare))
        self._test_over = found is None
        if found is None:
            return False
        kept = {key: value for key, value in found.items() if key != count or reading == Reading()}
        self.tested[name] = {f"{name}/{key}": value for key, value in kept.items() if math.isfinite(value)}
        return True

    def _measured(self, step: int, split: str, rows: int | None, allowed: float) -> dict[str, float] | None:
        """The metrics on a split; None if the evaluation would take longer than `allowed` seconds, or at a signal."""
        began, event, found = self._now(), self._ctx.listener.event, None
        self._whole_s = 0.0
        if allowed <= 0:
            return None
        event(Activity("evaluating", step))
        with suppress(_TooLong), self._heartbeat.phase(EVALUATE_S):
            found = self._workload.evaluate(split, rows, self._patient(step, began, allowed))
        event(Activity("training"))
        self.stalls.excuse(self._now() - began)
        return found
