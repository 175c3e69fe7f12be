"""Records a session's news for everybody: a changed target, checkpoints that it keeps no longer, a note."""

from __future__ import annotations

from relay.core.checkpoint.retention import Keep, to_retire
from relay.core.events import TargetChanged
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import NOTE, RETENTION
from relay.core.ledger.state import RunState
from relay.core.ledger.target import changed
from relay.core.session.assembly import SessionParts

NAMED = 5
"""Steps that a record names."""


def record_changes(parts: SessionParts) -> None:
    """Call once under the lease, before any work. Raises as `Lease.append`."""
    ctx, lease = parts.ctx, parts.lease
    before, after = lease.target_before, ctx.plan.target_steps
    target = changed(before, after, lease.account, lease.state.step)
    if target is not None:
        lease.note(target)
        ctx.listener.event(TargetChanged(before, after, lease.account))
    retention = _keeps_less(lease.state, ctx.plan.keep, lease.account)
    if retention is not None:
        lease.note(retention)
    if ctx.plan.note:
        lease.note(Noted(cause=NOTE, text=ctx.plan.note, step=lease.state.step))


def _keeps_less(state: RunState, keep: Keep, account: str) -> Noted | None:
    """The incident, if this session's retention deletes checkpoints that the usual one would keep."""
    going = sorted(set(to_retire(state, keep)) - set(to_retire(state, Keep())))
    if not going:
        return None
    steps = [f"{step:,}" for step, _ in going[:NAMED]]
    more = f" and {len(going) - NAMED:,} more" if len(going) > NAMED else ""
    every = f" and every {keep.every:,}th step" if keep.every else ""
    text = f"{account} keeps the last {keep.last}{every}: step {', '.join(steps)}{more} retired"
    return Noted(cause=RETENTION, text=text, step=state.step)
