"""The last minutes of a session: the final commit within what time is left, or the checkpoint kept on this machine."""

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
from relay.core.events import Activity, OutOfTime, Trouble
from relay.core.lease.heartbeat import Heartbeat
from relay.core.session.context import Context
from relay.core.session.training import Trainer
from relay.core.workload import StepDigest

SETTLE_S = 20.0
"""Longest wait for cleaning up after the last commit."""
SHORT_STEP_S = 2.0
"""After a signal the extra step is only run if it is this short."""


class NotCommitted(UploadFailed):
    """The session's last step is not committed; `durable` is the step that is."""

    def __init__(self, run: str, durable: int, step: int, cause: Exception | None) -> None:
        """`cause`: the newest storage trouble; None if the upload did not finish in the time that was left."""
        super().__init__(f"Step {step:,} of run {run} is not committed.")
        self.run, self.durable, self.step, self.cause = run, durable, step, cause


class NotKept(NotCommitted):
    """It is lost: it could not be saved on this machine either."""

    def __init__(self, run: str, durable: int, step: int, cause: Exception | None, disk: OSError | None) -> None:
        """`disk`: what this machine's disk said; None if there was no time left to save it."""
        super().__init__(run, durable, step, cause)
        self.disk = disk


class NotSent(NotCommitted):
    """It was kept on this machine.

    `folder` looks every time whether it still is: while this session ends, or sleeps, a later one on this machine may
    take it over, commit it and remove it here.
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
        self.bytes, self._outbox, self._key = size, local_folder, key

    @property
    def folder(self) -> Path | None:
        """Where it lies; None once it is gone."""
        return self._outbox.folder(self._key) if self._outbox.holds(self._key) else None


@dataclass
class Ending:
    """Everything the end of a session needs."""

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
        """Snapshot, upload beside one extra step, commit.

        Raises NonFinite, UploadFailed (74; NotSent where the checkpoint is kept here), or the committer's end.
        """
        final = None
        self._allow_what_is_late()
        with self.heartbeat.phase(self.ctx.plan.patience_s + 60):
            self.ctx.listener.event(Activity("finishing", self.ctx.workload.step))
            if self.ctx.workload.step > self.writer.lease.state.step:
                final = self.trainer.snapshot(last=True)
                self._hand_over(final)
            if not self.committer.drain(self._until(), lambda: self.ctx.signal.at_once):
                self._give_up(final)
            if not self.ctx.signal.hurry:
                self.committer.settle(self._until(SETTLE_S))

    def _allow_what_is_late(self) -> None:
        """A machine that slept past the session's end may be gone any moment: one try for the step, not none."""
        now = self.runtime.monotonic()
        if now > self.ctx.plan.limits.deadline:
            self.budget.allow(now + self.ctx.plan.grace_s)
            self.ctx.listener.event(OutOfTime())

    def _hand_over(self, final: Item) -> None:
        """Choose what can still become durable, and start with it."""
        plan = self.budget.plan_end(self.runtime.monotonic(), self.trainer.inflight_rest())
        if plan == "inflight":
            with suppress(OSError):  # a disk that refuses is asked again when the session gives up
                self._keep(final)
            self.ctx.listener.event(OutOfTime(unsent=final.step))
            self._drain_then_give_up(final)
        if plan == "final":
            self.committer.abandon_inflight()
        self.trainer.hand_over(final)
        self.trainer.promise(self._extra_step())

    def _drain_then_give_up(self, final: Item) -> None:
        self.committer.drain(self._until(), lambda: self.ctx.signal.at_once)
        self._give_up(final)

    def _extra_step(self) -> StepDigest | None:
        """The step after the end, whose state is thrown away. What goes wrong in it is the next session's to meet."""
        if not self._extra_step_fits():
            return None
        try:
            return self.trainer.extra_step()
        except Exception as error:  # noqa: BLE001 - whatever training raises must not cost the final commit
            self.ctx.listener.event(Trouble("extra step", error))
            return None

    def _extra_step_fits(self) -> bool:
        step = self.budget.measured.high("step")
        if self.ctx.signal.at_once or (self.ctx.signal.hurry and step > SHORT_STEP_S):
            return False
        return self.runtime.monotonic() + step + self.ctx.plan.limits.margin_s <= self.budget.deadline

    def _until(self, most_s: float | None = None) -> Callable[[], float]:
        """When to stop waiting, so that the release still fits; asked again and again, for a signal cuts it short."""
        latest = self.runtime.monotonic() + (self.ctx.plan.patience_s if most_s is None else most_s)

        def until() -> float:
            self.trainer.heed_signal()
            left_for_release = self.budget.measured.high("append", 1.0) + self.ctx.plan.limits.margin_s / 2
            return min(latest, self.budget.deadline - left_for_release)

        return until

    def _give_up(self, final: Item | None) -> None:
        """Nothing more will be committed: keep the newest snapshot on this machine and say where. Raises."""
        failure = self.committer.failure
        left = self.committer.close()
        if failure is not None:
            raise failure
        item = final if final is not None and not final.committed else next(iter(left), None)
        if item is not None and not item.committed:
            raise self._not_committed(item)

    def _keep(self, item: Item) -> bool:
        """Save an item that has not been saved yet; False where there is no time left for that. Raises OSError."""
        if item.packed is None and self.ctx.signal.at_once:
            return False
        self.writer.keep(item)
        return True

    def _not_committed(self, item: Item) -> NotCommitted:
        """Keep the item on this machine if that can be done, and return the error to raise."""
        lease, cause = self.writer.lease, self.committer.trouble
        run, durable, disk = lease.state.run, lease.state.step, None
        try:
            if self._keep(item):
                size = item.packed.bytes if item.packed else 0
                return NotSent(run, durable, cause, self.writer.local_folder, (item.step, lease.epoch), size)
        except OSError as error:
            disk = error
        return NotKept(run, durable, item.step, cause, disk)
