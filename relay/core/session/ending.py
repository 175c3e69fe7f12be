"""Ends a session: the final commit within the remaining time, or a checkpoint kept on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from relay.core.budget import Budget
from relay.core.checkpoint.commit import Writer
from relay.core.checkpoint.committer import Committer, Item
from relay.core.checkpoint.local import LocalFolder
from relay.core.clock import Runtime
from relay.core.errors import UploadFailed
from relay.core.events import Activity, LateResult, OutOfTime, Trouble
from relay.core.lease.heartbeat import Heartbeat
from relay.core.ledger.finaltest import notes, of_head, untested
from relay.core.resources import OutOfResource, naming_limits
from relay.core.session.context import Context
from relay.core.session.steps import Steps, through
from relay.core.session.training import URGENT, Trainer
from relay.core.workload import ProcessLost, StepDigest

SETTLE_S = 20.0
"""Longest wait for clean-up after the last commit."""
SHORT_STEP_S = 2.0
"""After a signal, the extra step runs only if it takes at most this long."""


class NotCommitted(UploadFailed):
    """The session's last step is not committed; `durable` is the newest committed step."""

    def __init__(self, run: str, durable: int, step: int, cause: Exception | None) -> None:
        """`cause`: the newest storage error; None if the upload did not finish in time."""
        super().__init__(f"Step {step:,} of run {run} is not committed.")
        self.run, self.durable, self.step, self.cause = run, durable, step, cause


class NotKept(NotCommitted):
    """The step is lost: it could not be saved on this machine either."""

    def __init__(
        self, run: str, durable: int, step: int, cause: Exception | None, disk: OSError | OutOfResource | None
    ) -> None:
        """`disk`: why this machine could not save it; None if there was no time."""
        super().__init__(run, durable, step, cause)
        self.disk = disk


class NotSent(NotCommitted):
    """The checkpoint is kept on this machine.

    `folder` checks at each access whether it is still there: while this session ends or sleeps, a later session on this
    machine may commit and remove it.
    """

    def __init__(
        self,
        run: str,
        durable: int,
        cause: Exception | None,
        local_folder: LocalFolder,
        key: tuple[int, int],
        size: int,
    ) -> None:
        super().__init__(run, durable, key[0], cause)
        self.bytes, self._local_folder, self._key = size, local_folder, key

    @property
    def folder(self) -> Path | None:
        """The checkpoint's folder; None once it is gone."""
        return self._local_folder.folder(self._key) if self._local_folder.holds(self._key) else None


@dataclass
class Ending:
    """The end of one session."""

    ctx: Context
    budget: Budget
    committer: Committer
    heartbeat: Heartbeat
    trainer: Trainer
    writer: Writer

    @property
    def runtime(self) -> Runtime:
        return self.ctx.runtime

    def commit_last(self) -> None:
        """`last_commit` with an extra step of the workload."""
        through(self.last_commit(Ending.discarded))

    def last_commit(self, one_more: Callable[[Ending], Steps[StepDigest | None]]) -> Steps[None]:
        """Take a snapshot, upload it during one extra step, and commit. `one_more`: makes that step.

        Raises NonFinite, UploadFailed (74; NotSent where the checkpoint is kept here), or the committer's end.
        """
        final = None
        self._allow_what_is_late()
        with self.heartbeat.phase(self.ctx.plan.patience_s + 60):
            self.ctx.listener.event(Activity("finishing", self.ctx.workload.step))
            lost = self.trainer.lost
            if self.ctx.workload.step > self.writer.lease.state.step and (lost is None or lost.whole):
                try:
                    final = self.trainer.snapshot(last=True)
                    yield from self._hand_over(final, one_more)
                except ProcessLost as gone:
                    self.trainer.lose(gone)
            if not self.committer.drain(self._until(), lambda: self.ctx.signal.at_once):
                self._give_up(final)
            if not self.ctx.signal.hurry:
                self.committer.settle(self._until(SETTLE_S))

    def _allow_what_is_late(self) -> None:
        """A machine that slept past the session's end may stop at any moment: allow one try for the step."""
        now = self.runtime.monotonic()
        if now > self.ctx.plan.limits.deadline:
            self.budget.allow(now + self.ctx.plan.grace_s)
            self.ctx.listener.event(OutOfTime())

    def _hand_over(self, final: Item, one_more: Callable[[Ending], Steps[StepDigest | None]]) -> Steps[None]:
        """Choose the upload that can still become durable, and start it."""
        plan = self.budget.plan_end(self.runtime.monotonic(), self.trainer.inflight_rest())
        if plan == "inflight":
            with suppress(OSError, OutOfResource):  # after a disk error, giving up tries again
                self._keep(final)
            self.ctx.listener.event(OutOfTime(unsent=final.step))
            self._drain_then_give_up(final)
        if plan == "final":
            self.committer.abandon_inflight()
        self.trainer.hand_over(final)
        self.trainer.promise((yield from one_more(self)))

    def publish_test(self) -> list[str]:
        """Note the results that the commit at the target does not carry; test first what no session has tested.

        Returns the readings that it leaves to the next session. Those whose results had no room in the state are not
        among them: another test would push out others. Publishes nothing after a signal. Raises as `Lease.append`.
        """
        ctx, lease, tested, made = self.ctx, self.writer.lease, self.trainer.tested, set[str]()
        target, published = ctx.plan.target_steps, of_head(lease.state)
        lacking = untested(lease.state, ctx.tests, target)
        lacking += [reading for reading, found in tested.items() if not found.keys() <= published.keys()]
        for reading, found in self.trainer.test(lacking):
            if (head := lease.state.head) is None or ctx.signal.reason in URGENT:
                break
            for note in notes(head, reading, found):
                lease.note(note)
            made.add(reading)
            ctx.listener.event(LateResult(target, reading))
        return [reading for reading in lacking if reading not in made]

    def discarded(self) -> Steps[StepDigest | None]:
        """The extra step of the workload."""
        return self._extra_step()
        yield

    def _drain_then_give_up(self, final: Item) -> None:
        self.committer.drain(self._until(), lambda: self.ctx.signal.at_once)
        self._give_up(final)

    def _extra_step(self) -> StepDigest | None:
        """Digest of one more step, whose state is discarded. An error is only reported: the next session meets it."""
        if not self.extra_step_fits():
            return None
        try:
            return self.trainer.extra_step()
        except Exception as error:  # noqa: BLE001 - no error of training may cost the final commit
            self.ctx.listener.event(Trouble("extra step", error))
            return None

    def extra_step_fits(self) -> bool:
        """Whether one more step and its digest leave enough time for the end."""
        step = self.budget.measured.high("step")
        if self.trainer.lost is not None:
            return False
        if self.ctx.signal.at_once or (self.ctx.signal.hurry and step > SHORT_STEP_S):
            return False
        return self.runtime.monotonic() + step + self.ctx.plan.limits.margin_s <= self.budget.deadline

    def _until(self, most_s: float | None = None) -> Callable[[], float]:
        """When to stop waiting so that the release still fits; called repeatedly, since a signal may shorten it."""
        latest = self.runtime.monotonic() + (self.ctx.plan.patience_s if most_s is None else most_s)

        def until() -> float:
            self.trainer.heed_signal()
            left_for_release = self.budget.measured.high("append", 1.0) + self.ctx.plan.limits.margin_s / 2
            return min(latest, self.budget.deadline - left_for_release)

        return until

    def _give_up(self, final: Item | None) -> None:
        """Stop committing and keep the newest snapshot here. Raises NotCommitted or the committer's failure."""
        failure = self.committer.failure
        left = self.committer.close()
        if failure is not None:
            raise failure
        item = final if final is not None and not final.committed else next(iter(left), None)
        if item is not None and not item.committed:
            raise self._not_committed(item)

    def _keep(self, item: Item) -> bool:
        """Save an item that is not saved yet; False if there is no time for it. Raises OSError, OutOfResource."""
        if item.packed is None and self.ctx.signal.at_once:
            return False
        with naming_limits():
            self.writer.keep(item)
        return True

    def _not_committed(self, item: Item) -> NotCommitted:
        """Keep the item on this machine if possible, and return the error to raise."""
        lease, cause = self.writer.lease, self.committer.trouble
        run, durable = lease.state.run, lease.state.step
        disk: OSError | OutOfResource | None = None
        try:
            if self._keep(item):
                size = item.packed.bytes if item.packed else 0
                return NotSent(run, durable, cause, self.writer.local_folder, (item.step, lease.epoch), size)
        except (OSError, OutOfResource) as error:
            disk = error
        return NotKept(run, durable, item.step, cause, disk)
