"""Decides what the end of a session is called: its exit code and the reason in its link; ends nothing."""

from __future__ import annotations

from relay.core.checkpoint.committer import CommitterDied
from relay.core.errors import BadData, Exit, Fenced, RelayError, StorageUnreachable, UploadFailed
from relay.core.events import Trouble
from relay.core.lease.lease import Lease
from relay.core.ledger import frozen
from relay.core.ledger.changes import Release
from relay.core.session.assembly import SessionParts
from relay.core.session.context import Context, Outcome
from relay.core.session.ending import NotSent
from relay.core.session.report import Recorded
from relay.core.session.training import End

ENDS: dict[End, tuple[Exit, str]] = {
    "target": (Exit.OK, frozen.TARGET_REACHED),
    "budget": (Exit.HANDOFF, frozen.BUDGET_USED),
    "stop": (Exit.HANDOFF, frozen.ASKED_TO_STOP),
    "notice": (Exit.HANDOFF, frozen.SPOT_NOTICE),
    "sigterm": (Exit.SIGTERM, frozen.TERMINATED),
    "sigint": (Exit.SIGINT, frozen.INTERRUPTED),
    "fenced": (Exit.FENCED, frozen.FENCED),
    "blocked": (Exit.HANDOFF, frozen.UNREACHABLE),
}

FAILURES: dict[Exit, str] = {
    Exit.BAD_DATA: frozen.BAD_DATA,
    Exit.STORAGE_UNREACHABLE: frozen.UNREACHABLE,
    Exit.LEASE_HELD: frozen.TRAINS_ANOTHER,
    Exit.UPLOAD_FAILED: frozen.UPLOAD_FAILED,
    Exit.FENCED: frozen.FENCED,
}


def reached(parts: SessionParts, end: End) -> tuple[Exit, str]:
    """Exit code and reason; a notice says itself who gave it and what time was left. Raises Fenced."""
    if end == "fenced":
        assert parts.lease.lost is not None, "what asks for this end has seen why"
        raise parts.lease.lost
    code, reason = ENDS[end]
    return code, parts.ctx.signal.note if end == "notice" else reason


def meant(lease: Lease, error: RelayError) -> RelayError:
    """The failure that decides the exit: others who took over clear files and put them away, here too (P5).

    A failure that was recorded came before that: no entry of this session could have landed after it.
    """
    theirs = isinstance(error, (BadData, StorageUnreachable)) and not isinstance(error, Recorded)
    return lease.lost if lease.lost and theirs else error


def exit_code(parts: SessionParts, error: RelayError) -> Exit:
    """The loss of the lease (P5) decides it, and so does a signal whether or not the last commit came through (P6)."""
    reason = "fenced" if parts.lease.lost else parts.ctx.signal.reason
    if isinstance(error, UploadFailed) and reason in ("notice", "sigterm", "sigint", "fenced"):
        return ENDS[reason][0]
    if isinstance(error, NotSent) and error.folder is None:  # only a session with a later lease touches it
        return Exit.FENCED
    return error.exit_code


def why(ctx: Context, error: BaseException | None) -> str:
    """The end of a session that went wrong, for its link."""
    if _spared(ctx, error):
        return frozen.not_sent(ctx.signal.note)
    if crashed(error):
        return frozen.CRASHED
    return FAILURES.get(error.exit_code, frozen.FAILED) if isinstance(error, RelayError) else frozen.BROKEN_OFF


def outcome(parts: SessionParts, code: Exit, end: str, failure: RelayError | None = None) -> Outcome:
    """The session as it stands now, with how it ended."""
    ctx, lease, writer = parts.ctx, parts.lease, parts.writer
    return Outcome(
        exit_code=code,
        durable_step=lease.state.step,
        from_step=parts.from_step,
        end=end,
        failure=failure,
        lost=lease.lost,
        asked=ctx.signal.note if ctx.signal.reason == "stop" else "",
        spared=ctx.signal.note if _spared(ctx, failure) else "",
        made_step=parts.made_step,
        epoch=lease.epoch,
        commits=writer.commits,
        certified=parts.verdict.certified,
        why=parts.verdict.why,
        interval_s=writer.interval_s,
        latency_s=writer.latency_s,
        replaced=parts.committer.replaced,
        stall_s=tuple(parts.trainer.stalls.seconds),
        train_s=parts.trainer.train_s,
        total_s=lease.seconds,
        start_s=max(0.0, ctx.runtime.monotonic() - ctx.plan.limits.started - lease.seconds),
        unsent=failure.folder if isinstance(failure, NotSent) else None,
    )


def crashed(error: BaseException | None) -> bool:
    """Whether it is a failure that exact resume repeats (P10), in training or in what saves beside it."""
    return isinstance(error, CommitterDied) or (isinstance(error, Exception) and not isinstance(error, RelayError))


def _spared(ctx: Context, error: BaseException | None) -> bool:
    """Whether a notice left too little time for the last upload: that is no failure of the session."""
    return isinstance(error, UploadFailed) and ctx.signal.reason == "notice"


# --- Gives a session's lease back within the time that is left ------------------------------------------------------

RELEASE_S = 15.0
"""Longest wait for the release."""


def give_back(parts: SessionParts, reason: str) -> bool:
    """Give the lease back, within the time that is left; False if that is not known to be so: it runs out by itself."""
    ctx, lease = parts.ctx, parts.lease
    done, landed = ctx.runtime.event(), ctx.runtime.event()

    def body() -> None:
        change = Release(reason=reason, next=ctx.successor(lease.state), seconds=lease.seconds)
        try:
            lease.append("release", lambda state: change, give_up=done.is_set)
            landed.set()
        except Fenced:  # there is nothing to give back, which the session's end tells
            pass
        except RelayError as error:
            ctx.listener.event(Trouble("release", error, expires_s=lease.ttl_s))
        done.set()

    ctx.runtime.spawn("release", body)
    left = parts.budget.deadline - ctx.runtime.monotonic() - 0.5
    done.wait(0.0 if ctx.signal.at_once else max(1.0, min(RELEASE_S, left)))
    done.set()
    return landed.is_set()
