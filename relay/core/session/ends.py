"""Maps the end of a session to its exit code and to the reason in its link."""

from __future__ import annotations

from relay.core.checkpoint.committer import CommitterDied
from relay.core.clock import in_background
from relay.core.errors import BadData, Exit, Fenced, RelayError, StorageUnreachable, UploadFailed
from relay.core.events import Trouble
from relay.core.lease.lease import Lease
from relay.core.ledger import frozen
from relay.core.ledger.changes import Release
from relay.core.ledger.finaltest import untested
from relay.core.session.assembly import SessionParts
from relay.core.session.context import Context, Outcome
from relay.core.session.ending import NotSent
from relay.core.session.report import Recorded
from relay.core.session.training import End

ENDS: dict[End, tuple[Exit, str]] = {
    "target": (Exit.OK, frozen.TARGET_REACHED),
    "until": (Exit.HANDOFF, frozen.UNTIL_REACHED),
    "budget": (Exit.HANDOFF, frozen.BUDGET_USED),
    "stop": (Exit.HANDOFF, frozen.ASKED_TO_STOP),
    "notice": (Exit.HANDOFF, frozen.SPOT_NOTICE),
    "sigterm": (Exit.SIGTERM, frozen.TERMINATED),
    "sigint": (Exit.SIGINT, frozen.INTERRUPTED),
    "fenced": (Exit.FENCED, frozen.FENCED),
    "blocked": (Exit.HANDOFF, frozen.UNREACHABLE),
    "process lost": (Exit.HANDOFF, frozen.PROCESS_LOST),
}

FAILURES: dict[Exit, str] = {
    Exit.BAD_DATA: frozen.BAD_DATA,
    Exit.STORAGE_UNREACHABLE: frozen.UNREACHABLE,
    Exit.LEASE_HELD: frozen.TRAINS_ANOTHER,
    Exit.UPLOAD_FAILED: frozen.UPLOAD_FAILED,
    Exit.FENCED: frozen.FENCED,
}


def reached(parts: SessionParts, end: End) -> tuple[Exit, str]:
    """Exit code and reason of a planned end; for a spot notice, its own text. Raises Fenced."""
    if end == "fenced":
        assert parts.lease.lost is not None, "this end is only requested after the lease was lost"
        raise parts.lease.lost
    code, reason = ENDS[end]
    signaled = parts.ctx.signal.reason
    if end == "process lost" and signaled in ("sigterm", "sigint"):  # torchrun sends SIGTERM to the others
        code = ENDS[signaled][0]
    return code, parts.ctx.signal.note if end == "notice" else reason


def meant(lease: Lease, error: RelayError) -> RelayError:
    """The error that decides the exit status.

    After a takeover, the other session removes files, also on this machine (P5). Missing files then mean a lost lease,
    unless this session recorded the failure in the ledger: it then came before the takeover.
    """
    theirs = isinstance(error, (BadData, StorageUnreachable)) and not isinstance(error, Recorded)
    return lease.lost if lease.lost and theirs else error


def exit_code(parts: SessionParts, error: RelayError) -> Exit:
    """The exit code. A lost lease (P5) and a signal decide it, whether or not the last commit landed (P6).

    Otherwise, also after a planned stop, it is the error's own: 74 (UploadFailed) if the last upload failed.
    """
    reason = "fenced" if parts.lease.lost else parts.ctx.signal.reason
    if isinstance(error, UploadFailed) and reason in ("notice", "sigterm", "sigint", "fenced"):
        return ENDS[reason][0]
    if isinstance(error, NotSent) and error.folder is None:  # only a session with a later lease removes it
        return Exit.FENCED
    return error.exit_code


def why(ctx: Context, error: BaseException | None) -> str:
    """The reason in the link of a session that failed."""
    if _spared(ctx, error):
        return frozen.not_sent(ctx.signal.note)
    if crashed(error):
        return frozen.CRASHED
    return FAILURES.get(error.exit_code, frozen.FAILED) if isinstance(error, RelayError) else frozen.BROKEN_OFF


def outcome(parts: SessionParts, code: Exit, end: str, failure: RelayError | None = None) -> Outcome:
    """The outcome of a session that ended with `code` and `end`."""
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
        untested=untested(lease.state, ctx.tests, ctx.plan.target_steps),
        made_step=parts.made_step,
        epoch=lease.epoch,
        commits=writer.commits,
        certified=parts.certificate.certified,
        why=parts.certificate.why,
        interval_s=writer.interval_s,
        latency_s=writer.latency_s,
        replaced=parts.committer.replaced,
        stall_s=tuple(parts.trainer.stalls.seconds),
        train_s=parts.trainer.train_s,
        total_s=lease.seconds,
        start_s=max(0.0, ctx.runtime.monotonic() - ctx.plan.limits.started - lease.seconds - ctx.startup.waited_s),
        waited_s=ctx.startup.waited_s,
        unsent=failure.folder if isinstance(failure, NotSent) else None,
    )


def crashed(error: BaseException | None) -> bool:
    """Whether exact resume would repeat the failure (P10): an error in training or in saving."""
    return isinstance(error, CommitterDied) or (isinstance(error, Exception) and not isinstance(error, RelayError))


def _spared(ctx: Context, error: BaseException | None) -> bool:
    """Whether a spot notice left too little time for the last upload, which is not a failure of the session."""
    return isinstance(error, UploadFailed) and ctx.signal.reason == "notice"


# --- Releases the lease within the remaining time -------------------------------------------------------------------

RELEASE_S = 15.0
"""Longest wait for the release."""
PROPOSAL_S = 4.0
"""Longest wait for the name of the proposed successor, which the release does not need."""


def release(parts: SessionParts, reason: str) -> bool:
    """Release the lease within the remaining time. False if the release may not have landed: the lease then expires."""
    ctx, lease, now = parts.ctx, parts.lease, parts.ctx.runtime.monotonic
    done, landed = ctx.runtime.event(), ctx.runtime.event()
    left = parts.budget.deadline - now() - 0.5
    until = now() + (0.0 if ctx.signal.at_once else max(1.0, min(RELEASE_S, left)))
    proposed = _proposal(ctx, lease, min(PROPOSAL_S, (until - now()) / 3))

    def body() -> None:
        change = Release(reason=reason, next=proposed, seconds=lease.seconds)
        try:
            lease.append("release", lambda state: change, give_up=done.is_set)
            landed.set()
        except Fenced:  # there is nothing to release; the session's end reports it
            pass
        except RelayError as error:
            ctx.listener.event(Trouble("release", error, expires_s=lease.ttl_s))
        done.set()

    in_background(ctx.runtime, "release", body)
    done.wait(max(0.0, until - now()))
    done.set()
    return landed.is_set()


def _proposal(ctx: Context, lease: Lease, most_s: float) -> str | None:
    """The account to propose as next; None if it is not known within `most_s` seconds."""
    found: list[str | None] = []
    done = ctx.runtime.event()

    def look() -> None:
        try:
            found.append(ctx.successor(lease.state))
        except Exception as error:  # noqa: BLE001 - no error of a proposal may cost the release
            ctx.listener.event(Trouble("proposal", error))
        finally:
            done.set()

    if most_s > 0:
        in_background(ctx.runtime, "proposal", look)
        done.wait(most_s)
    return found[0] if found else None
