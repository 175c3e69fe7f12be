"""Runs one session: acquire the lease, restore, train, commit, release, report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Literal

from relay.core.checkpoint.committer import CommitterDied
from relay.core.checkpoint.restore import Restored
from relay.core.errors import BadData, Exit, RelayError
from relay.core.events import Trouble
from relay.core.gpus import gpu_name
from relay.core.lease.blockers import Held, Taken, refuse_second_lease
from relay.core.lease.lease import Lease, LeaseRequest, acquire
from relay.core.lease.signals import heed
from relay.core.ledger import frozen
from relay.core.ledger.atrest import RunHalted, halted_elsewhere, refuse_halted, surroundings_of
from relay.core.ledger.changes import Resume
from relay.core.ledger.finaltest import untested
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule, refuse_lower, target_after
from relay.core.resources import OutOfResource, naming_limits
from relay.core.session import ends
from relay.core.session.assembly import SessionParts, assemble
from relay.core.session.context import Context, Idle, Outcome, Plan
from relay.core.session.ending import Ending, NotSent
from relay.core.session.ends import release
from relay.core.session.report import leave_report, record_crash, record_limit, record_non_finite
from relay.core.session.shared import record_changes
from relay.core.session.starting import EndedEarly, push_unsent, warm_up
from relay.core.session.steps import BrokenOff, Steps, through
from relay.core.session.training import End, NonFinite, at_last_step
from relay.core.workload import ProcessLost, StepDigest

Work = Callable[[SessionParts], Steps[tuple[Exit, str]]]
MakeSteps = Callable[[SessionParts, Restored | None], Steps[End]]


def run_session(ctx: Context) -> Outcome:
    """Take the lease, restore, train, commit, hand off. Never raises a RelayError: it becomes the outcome.

    Any other exception of the workload is recorded as an incident (P10), the lease is released, and it is raised.
    """
    found = _lease(ctx, "train", gpu_name(ctx.facts.fingerprint))
    if isinstance(found, Outcome):
        return found
    ctx.plan = replace(ctx.plan, target_steps=found.state.target_steps)
    ctx.startup.mark("lease", ctx.runtime.monotonic())
    return through(_hold(assemble(ctx, found), partial(_train, make=_own_steps)))


def session_steps(ctx: Context) -> Steps[Outcome]:
    """As `run_session`, but the caller makes the steps: see relay/core/session/driven.py."""
    found = _lease(ctx, "train", gpu_name(ctx.facts.fingerprint))
    if isinstance(found, Outcome):
        return found
    ctx.plan = replace(ctx.plan, target_steps=found.state.target_steps)
    ctx.startup.mark("lease", ctx.runtime.monotonic())
    return (yield from _hold(assemble(ctx, found), partial(_train, make=_callers_steps)))


def push(ctx: Context) -> Outcome:
    """Commit this machine's unsent checkpoint under a new epoch if the head is still its parent, and train nothing."""
    found = _lease(ctx, "push")
    if isinstance(found, Outcome):
        return found
    ctx.plan = replace(ctx.plan, target_steps=found.state.target_steps)
    return through(_hold(assemble(ctx, found), _push))


def _lease(ctx: Context, work: Literal["train", "push"], gpu: str | None = None) -> Lease | Outcome:
    """The lease, or the outcome of a session that has nothing to do or is refused."""
    state = None
    try:
        with naming_limits():
            here = ctx.local_folder.all()
            state = ctx.ledger.read().state
            state = _past_halt(ctx, state)
            ctx.local_folder.refuse_rolled_back(here, state)
            refuse_lower(state, ctx.plan.target_steps, ctx.plan.target_rule)
            plan = _aimed(ctx.plan, state)
            if _at_end(ctx, plan, state) if work == "train" else ctx.local_folder.pushable(state) is None:
                idle = Idle(work, state.project, state.run, state.step, plan.target_steps, plan.last_step)
                return Outcome(Exit.OK, state.step, state.step, idle=idle)
            return _enter(ctx, gpu)
    except RelayError as error:
        ctx.locks.drop(ctx.session)
        known = ctx.ledger.chain.known if state else None  # others may have gone on, or back, while this one waited
        step = known.step if known else None
        return Outcome(error.exit_code, step, step or 0, failure=error)


def _past_halt(ctx: Context, state: RunState) -> RunState:
    """The state, resumed if only other surroundings halted the run (P10). Raises RunHalted (65), PolicyRefused (77)."""
    mine = surroundings_of(ctx.facts.fingerprint)
    change = Resume(why=frozen.halted_elsewhere(mine))

    def build(newest: RunState) -> Resume:
        if not halted_elsewhere(newest, mine):
            raise _NoLonger
        return change

    if halted_elsewhere(state, mine):
        try:
            state = ctx.ledger.append("resume", build, session=ctx.session, account=None).state
        except _NoLonger:
            state = ctx.ledger.read().state
    refuse_halted(state)
    return state


class _NoLonger(Exception):
    """The run is no longer halted by other surroundings alone."""


def _enter(ctx: Context, gpu: str | None) -> Lease:
    """Acquire the lease. The account must train no other run, and this machine must be able to store a checkpoint."""
    ctx.local_folder.probe()
    refuse_second_lease(ctx.account, ctx.other_runs(), ctx.ledger_store, ctx.locks)
    ctx.locks.hold(ctx.session)
    left = ctx.plan.limits.deadline - ctx.runtime.monotonic()
    wish = LeaseRequest(
        session=ctx.session,
        account=ctx.account,
        ttl_s=ctx.plan.ttl_s,
        target_steps=ctx.plan.target_steps,
        target_rule=ctx.plan.target_rule,
        ends_in_s=left if math.isfinite(left) else None,
        gpu=gpu,
    )
    held_at: list[float] = []

    def notice(held: Held) -> None:
        held_at.append(ctx.runtime.monotonic())
        ctx.listener.held(held)

    try:
        while True:
            try:
                return acquire(
                    ctx.ledger,
                    ctx.runtime,
                    ctx.locks,
                    wish,
                    wait_s=min(ctx.plan.wait_s, max(0.0, left)),
                    notice=notice,
                    heed=lambda: _waits(ctx),
                )
            except RunHalted:  # by the holder that this session waited for
                _past_halt(ctx, ctx.ledger.read().state)
    finally:
        if held_at:
            ctx.startup.wait(ctx.runtime.monotonic() - held_at[0])
        ctx.listener.entered()


def _waits(ctx: Context) -> None:
    """Called between two polls of the lease. Raises Interrupted."""
    ctx.listener.tick()
    heed(ctx.signal)


def _train(parts: SessionParts, make: MakeSteps) -> Steps[tuple[Exit, str]]:
    """Train under the lease. Returns the exit code and the reason of the release."""
    ctx, lease = parts.ctx, parts.lease
    if lease.state.step >= ctx.plan.last_step and not untested(lease.state, ctx.tests, ctx.plan.target_steps):
        return ends.reached(parts, at_last_step(ctx.plan, lease.state.step))
    try:
        restored = warm_up(parts)
        end = yield from make(parts, restored)
        if end != "fenced":
            with parts.trainer.spent.on("upload"):
                yield from parts.ending.last_commit(_extra_of(make, end))
            if parts.ending.publish_test() and end == "target":
                end = parts.trainer.why_untested(committed=parts.made_step is not None)
    except NonFinite as failure:
        _drain(parts)
        raise record_non_finite(lease, ctx.facts, failure) from failure
    except BrokenOff:
        _drain(parts)
        return Exit.HANDOFF, frozen.BROKEN_OFF
    return ends.reached(parts, end)


def _own_steps(parts: SessionParts, restored: Restored | None) -> Steps[End]:
    """The workload makes the steps."""
    return parts.trainer.run(restored)
    yield


def _callers_steps(parts: SessionParts, restored: Restored | None) -> Steps[End]:
    """The caller makes each step. The first pause comes before anything is due."""
    try:
        yield parts
        end = parts.trainer.begin(restored)
        while end is None:
            yield parts
            end = parts.trainer.after_step()
        return end
    except ProcessLost as lost:
        return parts.trainer.lose(lost)


def _extra_of(make: MakeSteps, end: End) -> Callable[[Ending], Steps[StepDigest | None]]:
    """The step whose digest certifies the last commit. A caller makes none after the target (P13)."""
    if make is _own_steps:
        return Ending.discarded
    return _no_more if end == "target" else _one_more


def _no_more(parts: Ending) -> Steps[StepDigest | None]:
    return None
    yield


def _one_more(parts: Ending) -> Steps[StepDigest | None]:
    """The digest of one more step of the caller (P13). Its error is the caller's: it costs no commit."""
    if not parts.extra_step_fits():
        return None
    try:
        yield None
        return parts.trainer.digest()
    except Exception as error:  # noqa: BLE001 - as above
        parts.ctx.listener.event(Trouble("extra step", error))
        return None


def _drain(parts: SessionParts) -> None:
    """After a training failure: give earlier snapshots, which are good, the grace to become durable."""
    now = parts.ctx.runtime.monotonic
    until = min(now() + parts.ctx.plan.grace_s, parts.budget.deadline)
    parts.committer.drain(lambda: until, lambda: parts.ctx.signal.at_once)


def _push(parts: SessionParts) -> Steps[tuple[Exit, str]]:
    packed = parts.ctx.local_folder.pushable(parts.lease.state)
    if packed is None:  # another session sent it during the wait, or the run went on
        return Exit.OK, frozen.NOTHING_TO_PUSH
    if not push_unsent(parts, packed):
        raise BadData("The unsent checkpoint does not fit this training. It stays on this machine.")
    return Exit.OK, frozen.PUSHED
    yield


def _hold(parts: SessionParts, work: Work) -> Steps[Outcome]:
    """Do the work under the lease. Release it in every case, unless it is lost."""
    ctx, lease = parts.ctx, parts.lease
    ctx.signal.under_lease = True
    holding = _Holding(parts)
    failure: RelayError | None = None
    try:
        with holding, naming_limits():
            parts.start()
            since = lease.state.holder.since if lease.state.holder else 0.0
            mine = Taken(since, since + lease.append_s, lease.state.run)
            refuse_second_lease(ctx.account, ctx.other_runs(), ctx.ledger_store, ctx.locks, mine)
            record_changes(parts)
            code, holding.reason = yield from _until_ended(parts, work)
    except RelayError as error:
        failure = ends.meant(lease, error)
        holding.reason = ends.why(ctx, failure)
        outcome = ends.outcome(parts, ends.exit_code(parts, failure), holding.reason, failure)
    except Exception:
        leave_report(parts, ends.outcome(parts, Exit.BUG, holding.reason))
        raise
    else:
        outcome = ends.outcome(parts, code, holding.reason)
    leave_report(parts, outcome)
    if isinstance(failure, NotSent):  # checked again last: another session may have taken it over
        code = ends.exit_code(parts, failure)
        return replace(outcome, exit_code=code, lost=lease.lost, unsent=failure.folder)
    return outcome


def _until_ended(parts: SessionParts, work: Work) -> Steps[tuple[Exit, str]]:
    """The result of the work, also if the session ends before there is a state to train."""
    try:
        return (yield from work(parts))
    except EndedEarly as early:
        return ends.reached(parts, early.end)


class _Holding:
    """The time under the lease: at its end, in every case, threads stop and the lease is released."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self.reason = ""

    def __enter__(self) -> _Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop_work(error)
        finally:
            self._give_back(error)

    def _stop_work(self, error: BaseException | None) -> None:
        """Stop training and committing; record a crash, or the limit of this machine that ended the session."""
        parts = self._parts
        parts.trainer.close()
        if parts.ctx.meter is not None:
            parts.ctx.meter.stop()
        crashed = ends.crashed(error)
        if crashed or isinstance(error, OutOfResource):
            _drain(parts)
        parts.committer.close()
        parts.housekeeper.over = True
        if isinstance(error, OutOfResource):
            record_limit(parts.lease, error, parts.ctx.workload.step)
        elif isinstance(error, Exception) and crashed:
            step = error.step if isinstance(error, CommitterDied) else parts.ctx.workload.step
            halts = parts.ctx.plan.crashes_halt or parts.writer.commits > 0
            record_crash(parts.lease, parts.ctx.facts, error, step, halts)

    def _give_back(self, error: BaseException | None) -> None:
        """Release the lease, then do the rest, which no other session waits for."""
        parts = self._parts
        self.reason = self.reason or ends.why(parts.ctx, error)
        over = parts.lease.lost is not None
        if not over:
            with parts.trainer.spent.on("release"):
                over = release(parts, self.reason) or parts.lease.lost is not None
        parts.heartbeat.stop()
        if over:  # otherwise the lock ends with this process, which shows the next session that it is dead
            parts.ctx.locks.drop(parts.ctx.session)
        parts.finish_observer()
        if error is None:
            parts.finish_offer()


def _aimed(plan: Plan, state: RunState) -> Plan:
    """The plan with the run's target, as it will be under this session's lease. Raises TargetBehind (78)."""
    return replace(plan, target_steps=target_after(state, plan.target_steps, plan.target_rule))


def _at_end(ctx: Context, plan: Plan, state: RunState) -> bool:
    """Whether there is nothing to train or to test. A new target needs a lease even so: the lease is its record."""
    renews = plan.target_rule is Rule.REPLACE and plan.target_steps != state.target_steps
    return state.step >= plan.last_step and not renews and not untested(state, ctx.tests, plan.target_steps)
