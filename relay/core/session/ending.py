"""The last minutes of a session: the final commit within what time is left, or the checkpoint kept on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relay.app.messages.advice import command
from relay.core.budget import Budget
from relay.core.checkpoint.checkpoint import Writer
from relay.core.checkpoint.committer import Committer, Item
from relay.core.checkpoint.outbox import Outbox
from relay.core.clock import Runtime
from relay.core.errors import UploadFailed
from relay.core.lease.heartbeat import Heartbeat
from relay.core.session.context import Context
from relay.core.session.training import Trainer
from relay.core.workload import StepDigest

SETTLE_S = 20.0
"""Longest wait for cleaning up after the last commit."""
SHORT_STEP_S = 2.0
"""After a signal the extra step is only run if it is this short."""


class NotSent(UploadFailed):
    """The final checkpoint is not committed; it was kept on this machine.

    Whether it still is, is looked up whenever it is told: while this session still ends, or sleeps, a later one on this
    machine may take it over, commit it and put it away.
    """

    def __init__(self, kept: str, run: str, gone: str, outbox: Outbox, key: tuple[int, int]) -> None:
        """`kept` is told for as long as the outbox holds the checkpoint of that run, `gone` from then on."""
        super().__init__(kept)
        self._run, self._gone, self._outbox, self._key = run, gone, outbox, key

    @property
    def folder(self) -> Path | None:
        """Where it lies; None once it is gone."""
        return self._outbox.folder(self._key) if self._outbox.holds(self._key) else None

    def told(self, alone: bool = True) -> str:
        """What became of it, and what helps: who is not `alone` was taken over, and the run may have gone on since."""
        if self.folder is None:
            return self._gone
        doctor, push = (command(verb, self._run) for verb in ("doctor", "push"))
        if not alone:
            return f"{self.args[0]} What can be done with it now: {doctor}"
        return f"{self.args[0]} The next session of this run on this machine commits it, or do it now: {push}"

    def __str__(self) -> str:
        return self.told()


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
            self.ctx.listener.phase(f"finishing: step {self.ctx.workload.step:,} is made durable")
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
            self.ctx.listener.tell("The session's time ran out unnoticed, as where a machine sleeps; it ends now.")

    def _hand_over(self, final: Item) -> None:
        """Choose what can still become durable, and start with it."""
        plan = self.budget.plan_end(self.runtime.monotonic(), self.trainer.inflight_rest())
        if plan == "inflight":
            self._keep(final)
            self.ctx.listener.tell(f"No time is left to send step {final.step}; it stays on this machine.")
            self._drain_then_give_up(final)
        if plan == "final":
            self.committer.abandon_inflight()
        self.trainer.hand_over(final, self._extra_step)

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
            self.ctx.listener.tell(f"The step after the last could not be tried out ({type(error).__name__}).")
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
            raise self._not_sent(item, self._keep(item))

    def _keep(self, item: Item) -> str | None:
        """Save an item that has not been saved yet; None if it is on disk, else why it is not."""
        if item.packed is None and self.ctx.signal.at_once:
            return "there was no time left to save it"
        try:
            self.writer.keep(item)
        except OSError as error:
            return f"this machine's disk refused it too ({error.strerror})"
        return None

    def _not_sent(self, item: Item, unkept: str | None) -> UploadFailed:
        why = self.committer.trouble or "it did not finish in the time that was left"
        why = why if why.endswith((".", "?")) else f"{why}."
        state, outbox, key = self.writer.lease.state, self.writer.outbox, (item.step, self.writer.lease.epoch)
        head = f"The durable step is {state.step:,}. Step {item.step:,} is not committed: {why}"
        if unkept is not None:
            return UploadFailed(f"{head} It is lost, because {unkept}.")
        size = item.packed.bytes if item.packed else 0
        return NotSent(
            f"{head} It is kept, verified, in {outbox.folder(key)} ({size:,} bytes).",
            state.run,
            f"The durable step was {state.step:,} when this session last looked. It did not commit step {item.step:,}: "
            f"{why} A later session on this machine took that step over or put it away; see what is durable now: "
            f"{command('status', state.run)}",
            outbox,
            key,
        )
