"""Assembles the parts of a session once the lease is held. Starts nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from relay.core.budget import BELIEVED, Budget, Measured
from relay.core.checkpoint.certify import Certificate
from relay.core.checkpoint.collect import Housekeeper
from relay.core.checkpoint.commit import Writer
from relay.core.checkpoint.committer import Committer
from relay.core.checkpoint.compilecache import forget_all
from relay.core.checkpoint.sharedfiles import SharedFiles
from relay.core.errors import RelayError
from relay.core.events import Committed
from relay.core.lease.heartbeat import Heartbeat
from relay.core.lease.lease import Lease
from relay.core.ledger.changes import Noted
from relay.core.ledger.evaluations import newest
from relay.core.ledger.frozen import TRACKER
from relay.core.session.context import Context
from relay.core.session.ending import Ending
from relay.core.session.training import Trainer

END_S, HURRIED_S = 10.0, 1.0
"""Longest wait of a session's end for its observer, in seconds; the second after a signal."""


@dataclass(frozen=True)
class SessionParts:
    """The parts of one session."""

    ctx: Context
    lease: Lease
    budget: Budget
    certificate: Certificate
    heartbeat: Heartbeat
    housekeeper: Housekeeper
    writer: Writer
    committer: Committer
    trainer: Trainer
    ending: Ending
    follows: int | None
    """Epoch of the head when the lease was acquired."""

    @property
    def from_step(self) -> int:
        """First step of this session's link in the ledger; after a rewind, the step it went back to."""
        link = self.lease.state.link_of(self.lease.epoch)
        return link.from_step if link else self.lease.state.step

    @property
    def made_step(self) -> int | None:
        """The newest step that this session committed: the durable step, as long as it held the lease."""
        if not self.writer.made:
            return None
        return self.lease.state.step if self.lease.lost is None else self.writer.made[-1].step

    def finish_offer(self) -> None:
        """After the release: let uploads of compiled code finish, unless a signal ended the session."""
        if self.ctx.warm is not None:
            self.ctx.warm.finish(self.budget.spare(self.ctx.runtime.monotonic()), lambda: not self.ctx.signal.hurry)

    def start(self) -> None:
        """Start the threads. The observer, if there is one, shows each commit from now on."""
        self.heartbeat.start()
        self.committer.start()
        if self.ctx.meter is not None:
            self.ctx.meter.start()
        observer, lease = self.ctx.observer, self.lease

        def note(text: str) -> None:
            with suppress(RelayError):
                lease.note(Noted(cause=TRACKER, text=text, step=lease.state.step))

        if observer is not None:
            observer.started(lease.view.seq, note)

    def finish_observer(self) -> None:
        """After the release: let the observer show the newest commit within the remaining time."""
        ctx = self.ctx
        if ctx.observer is not None:
            left = self.budget.deadline - ctx.runtime.monotonic() - 0.5
            longest = 0.0 if ctx.signal.at_once else HURRIED_S if ctx.signal.hurry else END_S
            ctx.observer.closed(max(0.0, min(longest, left)))


def assemble(ctx: Context, lease: Lease) -> SessionParts:
    """Create and connect the parts of a session."""
    plan, now = ctx.plan, ctx.runtime.monotonic
    believed_s = BELIEVED * max(0.0, plan.limits.deadline - now())
    budget, certificate = Budget(plan.limits, Measured(lease.state.metrics, believed_s)), Certificate()
    budget.size = lease.state.head.bytes if lease.state.head else 0
    heartbeat = _heartbeat(ctx, lease)
    housekeeper = Housekeeper(
        monotonic=now,
        store=ctx.checkpoint_store,
        ledger_store=ctx.ledger_store,
        names=ctx.names,
        lease=lease,
        keep=plan.keep,
        still_ours=heartbeat.still_ours,
        event=ctx.listener.event,
    )
    lending = SharedFiles(ctx.local_folder)
    writer = _writer(ctx, lease, budget, certificate, lending, housekeeper)
    committer = Committer(ctx.runtime, writer, lambda: budget.may_upload(now()), ctx.listener.event)
    evaluation = newest(lease.state)
    evaluated = evaluation.step if evaluation else 0
    trainer = Trainer(
        ctx, budget, committer, heartbeat, certificate, evaluated, partial(lending.offer, ctx.workload, lease)
    )
    ending = Ending(ctx, budget, committer, heartbeat, trainer, writer)
    return SessionParts(
        ctx,
        lease,
        budget,
        certificate,
        heartbeat,
        housekeeper,
        writer,
        committer,
        trainer,
        ending,
        follows=lease.state.head.epoch if lease.state.head else None,
    )


def _heartbeat(ctx: Context, lease: Lease) -> Heartbeat:
    holder = lease.state.holder
    return Heartbeat(
        ctx.runtime,
        ctx.heartbeat_store,
        ctx.names,
        lease.epoch,
        lease.ttl_s,
        lease.superseded,
        ctx.signal,
        beat=holder.beat if holder else None,
    )


def _writer(
    ctx: Context, lease: Lease, budget: Budget, certificate: Certificate, lending: SharedFiles, housekeeper: Housekeeper
) -> Writer:
    def after_commit(short_of_space: bool) -> None:
        if short_of_space:
            forget_all(ctx.checkpoint_store)
        else:
            ctx.listener.event(Committed(lease.state.step))
            if ctx.observer is not None:
                ctx.observer.committed()
        housekeeper(short_of_space)

    return Writer(
        runtime=ctx.runtime,
        store=ctx.checkpoint_store,
        names=ctx.names,
        local_folder=ctx.local_folder,
        lease=lease,
        budget=budget,
        facts=ctx.facts,
        certificate=certificate,
        lending=lending,
        housekeeping=after_commit,
        workers=ctx.plan.workers,
        make_room=housekeeper.make_room,
        in_a_hurry=lambda: ctx.signal.hurry,
        show=ctx.listener.transfer,
    )
