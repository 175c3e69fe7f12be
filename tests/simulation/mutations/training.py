"""Snapshots, the certified handoff and the record of failures broken in one place each (I7, I9, P9, P10)."""

from __future__ import annotations

from typing import Any

from relay.core.checkpoint.certify import Certificate
from relay.core.checkpoint.committer import Committer, Item
from relay.core.session import session, training
from relay.core.session.report import Recorded, _outlook
from relay.core.session.training import Trainer
from tests.core.toy import ToySnapshot
from tests.simulation.mutations.base import Patches, mutation, patch
from tests.simulation.mutations.scenes import crash_again, other_device
from tests.simulation.workload import SimWorkload


@mutation("non-finite-committed", "I9: nobody asks whether a snapshot is finite", "I9: ", pinned=3)
def _non_finite_committed() -> Patches:
    return [patch(Trainer, "_refuse_non_finite", lambda *_: None)]


@mutation("snapshot-aliased", "I7: a snapshot is no copy; training changes it until it is saved", "I7: ", pinned=15)
def _snapshot_aliased() -> Patches:
    class Alias(ToySnapshot):
        def content(self) -> dict[str, Any]:
            object.__setattr__(self, "values", self.owner.values)  # type: ignore[attr-defined]
            return super().content()

    def snapshot(workload: SimWorkload) -> ToySnapshot:
        taken = real(workload)
        alias = Alias(taken.step, taken.values, taken.finite, taken.before_save)
        alias.owner = workload  # type: ignore[attr-defined]
        return alias

    real = SimWorkload.snapshot
    return [patch(SimWorkload, "snapshot", snapshot)]


@mutation("snapshots-too-rare", "P6: a commit is due after three times as many steps", "P6: .* without a snapshot")
def _snapshots_too_rare() -> Patches:
    def due(trainer: Trainer) -> bool:
        every = 3 * trainer._plan.every_steps
        return trainer._workload.step % every == 0 and trainer._workload.step != trainer._snapped_step

    return [patch(Trainer, "_due", due)]


@mutation(
    "commits-too-rare",
    "P6: after each commit an hour passes before the next one is sent",
    "P6: .* would lose",
    pinned=4,
)
def _commits_too_rare() -> Patches:
    def bring_home(committer: Committer, item: Item) -> None:
        real(committer, item)
        if not committer._finishing:
            committer._hurry.wait(3600.0)

    real = Committer._bring_home
    return [patch(Committer, "_bring_home", bring_home)]


@mutation("extra-step-kept", "P9: the step after the last snapshot is kept in it", "I7: ")
def _extra_step_kept() -> Patches:
    def hand_over(trainer: Trainer, item: Any) -> None:
        trainer.extra_step()
        later = trainer._workload.snapshot()
        item.snapshot = ToySnapshot(item.step, later.values, later.finite)  # type: ignore[attr-defined]
        real(trainer, item)

    real = Trainer.hand_over
    return [patch(Trainer, "hand_over", hand_over)]


@mutation("digest-of-the-snapshot", "P9: the promise is made of step N, not of step N+1", "P9: ")
def _digest_of_the_snapshot() -> Patches:
    def hand_over(trainer: Trainer, item: Any) -> None:
        item.wrong = trainer._workload.digest().digest
        real_hand_over(trainer, item)

    def promise(trainer: Trainer, found: Any) -> None:
        item = trainer._promised
        real_promise(trainer, found and type(found)(found.step, found.path, item.wrong))  # type: ignore[union-attr]

    real_hand_over, real_promise = Trainer.hand_over, Trainer.promise
    return [patch(Trainer, "hand_over", hand_over), patch(Trainer, "promise", promise)]


@mutation("exact-unseen", "I7: a link is called exact without comparing", "I7: ", scene=other_device)
def _exact_unseen() -> Patches:
    def certify(certificate: Certificate, restored: Any, *_: Any) -> None:
        certificate.certified = "unknown" if restored is None else "exact"

    return [patch(training, "certify", certify)]


@mutation("crash-unrecorded", "P10: a crash of training leaves no incident", "P10: no record", scene=crash_again)
def _crash_unrecorded() -> Patches:
    return [patch(session, "record_crash", lambda *_: None)]


@mutation("nan-unrecorded", "P10: a loss that is not finite leaves no incident", "P10: nothing is recorded", pinned=3)
def _nan_unrecorded() -> Patches:
    def record(lease: Any, facts: Any, found: training.NonFinite) -> Recorded:
        return Recorded(f"At step {found.step} {found.reason}. {_outlook(lease.state)}")

    return [patch(session, "record_non_finite", record)]
