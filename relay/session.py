"""One session from the lease to the release; decides the order of things and the exit code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from relay.assembly import Parts, assemble
from relay.committer import CommitterDied
from relay.context import Context, Outcome
from relay.ending import NotSent
from relay.entrance import EndedEarly, push_unsent, warm_up
from relay.errors import BadData, Exit, RelayError, StorageUnreachable, UploadFailed
from relay.giveback import give_back
from relay.gpus import gpu_name
from relay.incidents import record_crash, record_non_finite
from relay.interrupts import heed
from relay.lease import Lease, Wish, acquire
from relay.onelease import Taken, refuse_second_lease
from relay.recording import leave_report
from relay.resting import refuse_halted
from relay.state import RunState
from relay.training import End, NonFinite
from relay.wording import printable

Work = Callable[[Parts], tuple[Exit, str]]

ENDS: dict[End, tuple[Exit, str]] = {
    "target": (Exit.OK, "target reached"),
    "budget": (Exit.HANDOFF, "budget used"),
    "stop": (Exit.HANDOFF, "asked to stop"),
    "notice": (Exit.HANDOFF, "spot notice"),
    "sigterm": (Exit.SIGTERM, "terminated (SIGTERM)"),
    "sigint": (Exit.SIGINT, "interrupted (SIGINT)"),
    "fenced": (Exit.FENCED, "fenced"),
}

FAILURES: dict[Exit, str] = {
    Exit.BAD_DATA: "bad data",
    Exit.STORAGE_UNREACHABLE: "storage unreachable",
    Exit.LEASE_HELD: "account trains another run",
    Exit.UPLOAD_FAILED: "last upload failed",
    Exit.FENCED: "fenced",
}


def run_session(ctx: Context) -> Outcome:
    """Take the lease, restore, train, commit, hand off. Never raises a RelayError: it becomes the outcome.

    Any other exception of the workload is recorded as an incident (P10), the lease is released, and it is raised.
    """
    step = None
    try:
        state = ctx.ledger.read().state
        step = state.step
        refuse_halted(state)
        if _at_target(ctx, state):
            return Outcome(Exit.OK, _target_text(ctx, state), step, step)
        lease = _enter(ctx, gpu_name(ctx.facts.fingerprint))
    except RelayError as error:
        ctx.locks.drop(ctx.session)
        return Outcome(error.exit_code, str(error), step, step or 0)
    ctx.startup.mark("lease", ctx.runtime.monotonic())
    return _hold(assemble(ctx, lease), _train)


def push(ctx: Context) -> Outcome:
    """Commit this machine's unsent checkpoint under a new epoch if the head is still its parent, and train nothing."""
    step = None
    try:
        state = ctx.ledger.read().state
        step = state.step
        refuse_halted(state)
        if ctx.outbox.pushable(state) is None:
            return Outcome(Exit.OK, f"Nothing here can be added to step {step:,}.", step, step)
        lease = _enter(ctx)
    except RelayError as error:
        ctx.locks.drop(ctx.session)
        return Outcome(error.exit_code, str(error), step, step or 0)
    return _hold(assemble(ctx, lease), _push)


def _enter(ctx: Context, gpu: str | None = None) -> Lease:
    """The lease, for an account that trains nothing else, on a machine that can keep a checkpoint."""
    ctx.outbox.probe()
    refuse_second_lease(ctx.account, ctx.other_runs(), ctx.ledger_store, ctx.locks)
    ctx.locks.hold(ctx.session)
    left = ctx.plan.limits.deadline - ctx.runtime.monotonic()
    wish = Wish(
        session=ctx.session,
        account=ctx.account,
        ttl_s=ctx.plan.ttl_s,
        target_steps=ctx.plan.target_steps,
        ends_in_s=left if math.isfinite(left) else None,
        gpu=gpu,
    )
    try:
        return acquire(
            ctx.ledger,
            ctx.runtime,
            ctx.locks,
            wish,
            wait_s=min(ctx.plan.wait_s, max(0.0, left)),
            notice=ctx.listener.held,
            heed=lambda: _waits(ctx),
        )
    finally:
        ctx.listener.entered()


def _waits(ctx: Context) -> None:
    """Between two looks at the lease. Raises Interrupted."""
    ctx.listener.tick()
    heed(ctx.signal)


def _train(parts: Parts) -> tuple[Exit, str]:
    """What a session does with the lease; the exit code and the reason of the release."""
    ctx, lease = parts.ctx, parts.lease
    if _at_target(ctx, lease.state):
        return Exit.OK, "target reached"
    try:
        restored = warm_up(parts)
        parts.trainer.begin(restored)
        parts.offer_compiled()
        end = parts.trainer.run()
        if end != "fenced":
            with parts.trainer.spent.on("upload"):
                parts.ending.commit_last()
    except NonFinite as failure:
        _drain(parts)
        raise record_non_finite(lease, ctx.facts, failure) from failure
    return _end(parts, end)


def _drain(parts: Parts) -> None:
    """Training has failed: what was handed over before is good and gets the grace to become durable."""
    now = parts.ctx.runtime.monotonic
    until = min(now() + parts.ctx.plan.grace_s, parts.budget.deadline)
    parts.committer.drain(lambda: until, lambda: parts.ctx.signal.at_once)


def _push(parts: Parts) -> tuple[Exit, str]:
    packed = parts.ctx.outbox.pushable(parts.lease.state)
    if packed is None:  # sent by others while this session waited for the lease, or the run went on without it
        return Exit.OK, "nothing left to push"
    if not push_unsent(parts, packed):
        raise BadData("The unsent checkpoint does not fit this training; it stays where it is.")
    return Exit.OK, "pushed"


def _hold(parts: Parts, work: Work) -> Outcome:
    """Do the work under the lease, and release it however that ends, unless it is no longer ours."""
    ctx, lease = parts.ctx, parts.lease
    ctx.signal.under_lease = True
    parts.heartbeat.start()
    parts.committer.start()
    parts.start_trackers()
    holding = _Holding(parts)
    failure: RelayError | None = None
    try:
        with holding:
            since = lease.state.holder.since if lease.state.holder else 0.0
            mine = Taken(since, since + lease.append_s, lease.state.run)
            refuse_second_lease(ctx.account, ctx.other_runs(), ctx.ledger_store, ctx.locks, mine)
            code, holding.reason = _until_ended(parts, work)
    except RelayError as error:
        failure = _meant(lease, error)
        holding.reason = _why(ctx, failure)
        outcome = parts.outcome(_exit_code(parts, failure), _failed(parts, failure), failure)
    except Exception:
        leave_report(parts, parts.outcome(Exit.BUG, ""), holding.reason)
        raise
    else:
        text = f"{_sentence(holding.reason)}{_asked(ctx)}; step {lease.state.step:,} is committed."
        outcome = parts.outcome(code, text)
    leave_report(parts, outcome, holding.reason)
    if isinstance(failure, NotSent):  # looked for once more, last of all: somebody may have taken it over meanwhile
        code, text = _exit_code(parts, failure), _failed(parts, failure)
        return replace(outcome, exit_code=code, message=text, unsent=failure.folder)
    return outcome


def _meant(lease: Lease, error: RelayError) -> RelayError:
    """What a failure is to be told as: others who took over clear files and put them away, here too (P5)."""
    return lease.lost if lease.lost and isinstance(error, (BadData, StorageUnreachable)) else error


def _failed(parts: Parts, error: RelayError) -> str:
    ctx, lost = parts.ctx, parts.lease.lost
    text = f"{_sentence(ctx.signal.note)}: the last commit stands. {error}" if _spared(ctx, error) else str(error)
    return f"{lost} {text}" if lost and isinstance(error, UploadFailed) else text


def _until_ended(parts: Parts, work: Work) -> tuple[Exit, str]:
    """What the work comes to, also where the session ends before there is anything to train."""
    try:
        return work(parts)
    except EndedEarly as early:
        return _end(parts, early.end)


def _end(parts: Parts, end: End) -> tuple[Exit, str]:
    """Exit code and reason; a notice says itself who gave it and what time was left. Raises Fenced."""
    if end == "fenced":
        assert parts.lease.lost is not None, "what asks for this end has seen why"
        raise parts.lease.lost
    code, reason = ENDS[end]
    return code, parts.ctx.signal.note if end == "notice" else reason


def _asked(ctx: Context) -> str:
    """What whoever asked for the end wrote."""
    note = printable(ctx.signal.note) if ctx.signal.reason == "stop" else ""
    return f" ({note})" if note else ""


class _Holding:
    """The time under the lease: whatever ends it, threads stop and the lease is given back."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.reason = ""

    def __enter__(self) -> _Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        parts = self._parts
        crashed = _crashed(error)
        if crashed:
            _drain(parts)
        parts.committer.close()
        parts.housekeeper.over = True
        if isinstance(error, Exception) and crashed:
            step = error.step if isinstance(error, CommitterDied) else parts.ctx.workload.step
            record_crash(parts.lease, parts.ctx.facts, error, step)
        self.reason = self.reason or _why(parts.ctx, error)
        over = parts.lease.lost is not None
        if not over:
            with parts.trainer.spent.on("release"):
                over = give_back(parts, self.reason) or parts.lease.lost is not None
        parts.heartbeat.stop()
        if over:  # else the lock, which goes with this process, tells the next session here that it is dead
            parts.ctx.locks.drop(parts.ctx.session)
        parts.finish_trackers()
        if error is None:
            parts.finish_offer()


def _why(ctx: Context, error: BaseException | None) -> str:
    """The end of a session that went wrong, for its link."""
    if _spared(ctx, error):
        return f"{ctx.signal.note}; last upload did not fit"
    if _crashed(error):
        return "crashed"
    return FAILURES.get(error.exit_code, "failed") if isinstance(error, RelayError) else "interrupted"


def _crashed(error: BaseException | None) -> bool:
    """Whether it is a failure that exact resume repeats (P10), in training or in what saves beside it."""
    return isinstance(error, CommitterDied) or (isinstance(error, Exception) and not isinstance(error, RelayError))


def _exit_code(parts: Parts, error: RelayError) -> Exit:
    """The loss of the lease (P5) decides it, and so does a signal whether or not the last commit came through (P6)."""
    reason = "fenced" if parts.lease.lost else parts.ctx.signal.reason
    if isinstance(error, UploadFailed) and reason in ("notice", "sigterm", "sigint", "fenced"):
        return ENDS[reason][0]
    if isinstance(error, NotSent) and error.folder is None:  # only a session with a later lease touches it
        return Exit.FENCED
    return error.exit_code


def _spared(ctx: Context, error: BaseException | None) -> bool:
    """Whether a notice left too little time for the last upload: that is no failure of the session."""
    return isinstance(error, UploadFailed) and ctx.signal.reason == "notice"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _at_target(ctx: Context, state: RunState) -> bool:
    return state.step >= ctx.plan.target_steps


def _target_text(ctx: Context, state: RunState) -> str:
    return (
        f"Run {state.project}/{state.run} is at step {state.step:,}, and the target is {ctx.plan.target_steps:,}: "
        f"nothing to do. Raise it with --target-steps N."
    )
