"""The way into a session: an unsent checkpoint of this machine first, else the newest sound one, else step 0."""

from __future__ import annotations

from relay.assembly import Parts
from relay.changes import Rewind
from relay.committer import Item
from relay.errors import StorageUnreachable
from relay.outbox import Packed
from relay.restore import Restored, restore
from relay.workload import StepDigest
from storage.base import StoreError

RESTORE_S = 3600.0
"""Longest restore that counts as a sign of life."""


def bring_up(parts: Parts) -> Restored | None:
    """Load the state to go on from. None if nothing was loaded from the store. Raises BadData (65), 69, Fenced."""
    ctx, lease = parts.ctx, parts.lease
    with parts.heartbeat.phase(RESTORE_S):
        if push_unsent(parts):
            return None
        if lease.state.head is None:
            ctx.workload.start()
            return None
        restored = _restore(parts)
        ctx.outbox.tidy(lease.state)
    return restored


def push_unsent(parts: Parts) -> bool:
    """Commit a checkpoint that an earlier session left on this machine, if the head is still its parent (P6)."""
    ctx, lease = parts.ctx, parts.lease
    packed = ctx.outbox.pushable(lease.state)
    if packed is None or not _fits(parts, packed):
        return False
    try:
        packed = ctx.outbox.adopt(packed, lease.epoch)
        parts.verdict.why = "sent from the machine that made it"
        item = Item(packed.step, None, taken_at=ctx.runtime.monotonic(), metrics=dict(packed.metrics), packed=packed)
        if packed.next is not None:
            item.next = StepDigest(packed.next.step, packed.next.path, packed.next.digest)
        parts.writer.commit(item)
    except (StoreError, OSError) as error:
        raise StorageUnreachable(f"The unsent checkpoint of step {packed.step:,} cannot be sent: {error}") from error
    parts.writer.backup = packed.key
    ctx.listener.tell(f"Committed step {packed.step:,}, which an earlier session left on this machine.")
    return True


def _fits(parts: Parts, packed: Packed) -> bool:
    workload = parts.ctx.workload
    try:
        workload.load(parts.ctx.outbox.folder(packed.key))
    except ValueError as error:
        parts.ctx.listener.tell(
            f"The unsent checkpoint of step {packed.step:,} does not fit and is left alone: {error}"
        )
        return False
    return workload.step == packed.step


def _restore(parts: Parts) -> Restored:
    ctx, lease = parts.ctx, parts.lease
    began = ctx.runtime.monotonic()
    store, names, workers = ctx.checkpoint_store, ctx.names, ctx.plan.workers
    restored = restore(lease.state, store, names, ctx.outbox, ctx.workload, workers)
    parts.budget.measured.add("restore", ctx.runtime.monotonic() - began)
    parts.writer.backup = restored.checkpoint.key
    if restored.damaged:
        change = Rewind(damaged=restored.damaged, to=restored.checkpoint.key, evidence=restored.evidence)
        lease.append("rewind", lambda state: change)
        ctx.listener.tell(f"Went back to step {restored.checkpoint.step:,}: {restored.evidence}")
    return restored
