"""Restores a session's state: this machine's unsent checkpoint, otherwise the newest intact one, otherwise step 0.

If the head is damaged in the store and this machine has an intact copy, the copy is committed again.
"""

from __future__ import annotations

from relay.core.checkpoint.committer import Item
from relay.core.checkpoint.compilecache import WAIT_S
from relay.core.checkpoint.local import LocalCheckpoint
from relay.core.checkpoint.restore import Restored, Route, restore
from relay.core.errors import store_errors
from relay.core.events import Activity, Committed, Continuing, LeftAlone, WentBack
from relay.core.ledger.changes import Rewind
from relay.core.ledger.frozen import SENT_AGAIN
from relay.core.ledger.state import Checkpoint, NextDigest, RunState
from relay.core.session.assembly import SessionParts
from relay.core.session.training import End
from relay.core.workload import StepDigest
from storage.oserrors import os_errors

RESTORE_S = 3600.0
"""The heartbeat vouches for a restore for at most this long."""


class EndedEarly(Exception):
    """A signal, a fence or the budget ended the session before it had a state to train."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end


def warm_up(parts: SessionParts) -> Restored | None:
    """`restore_or_start`, while compiled code of other machines is fetched, if this machine allows it."""
    ctx, now = parts.ctx, parts.ctx.runtime.monotonic
    if ctx.warm is not None:
        ctx.startup.counts = ctx.warm.counts
        ctx.warm.begin()
    restored = restore_or_start(parts)
    ctx.startup.mark("restore", now())
    if ctx.warm is not None:
        with parts.heartbeat.phase(WAIT_S):
            ctx.warm.settle(lambda: parts.trainer.why_end() is None)
        ctx.startup.mark("cache", now())
    return restored


def restore_or_start(parts: SessionParts) -> Restored | None:
    """Load the state to continue from. None if nothing was loaded from the store.

    Raises BadData (65), StorageUnreachable (69), Fenced, EndedEarly.
    """
    ctx, lease = parts.ctx, parts.lease
    with parts.heartbeat.phase(RESTORE_S):
        parts.writer.lending.clear()
        unsent = ctx.local_folder.pushable(lease.state)
        if unsent is not None and push_unsent(parts, unsent):
            return None
        if lease.state.head is None:
            ctx.workload.start()
            return None
        restored = _restore(parts)
        again = bool(restored.damaged) and _commit_again(parts, restored)
        if not again:
            ctx.listener.event(_continuing(lease.state, restored.checkpoint))
        ctx.local_folder.tidy(lease.state)
    return None if again else restored


def push_unsent(parts: SessionParts, packed: LocalCheckpoint) -> bool:
    """Commit a checkpoint that an earlier session left on this machine (P6); False if it does not fit."""
    if not _fits(parts, packed):
        return False
    _send(parts, packed, packed.next, "sent from the machine that made it")
    parts.ctx.listener.event(Committed(packed.step, "unsent"))
    return True


def _continuing(state: RunState, checkpoint: Checkpoint) -> Continuing:
    made = state.link_of(checkpoint.epoch)
    if made is None:
        return Continuing(checkpoint.step, origin=state.origin)
    return Continuing(checkpoint.step, made.account, made.epoch)


def _commit_again(parts: SessionParts, restored: Restored) -> bool:
    """After a rewind: this machine's intact copy of the damaged head becomes the epoch's first commit (P7)."""
    ctx, state = parts.ctx, parts.lease.state
    head = state.checkpoint(restored.damaged[0])
    packed = ctx.local_folder.copy_of(head, state) if head else None
    if head is None or packed is None:
        return False
    if not _fits(parts, packed):
        ctx.workload.load(ctx.local_folder.folder(restored.checkpoint.key))
        return False
    _send(parts, packed, head.next, SENT_AGAIN)
    ctx.listener.event(Committed(packed.step, "copy"))
    return True


def _send(parts: SessionParts, packed: LocalCheckpoint, following: NextDigest | None, why: str) -> None:
    """Commit a checkpoint of this machine in this epoch. Raises StorageUnreachable (69); it then stays for `push`."""
    ctx, lease = parts.ctx, parts.lease
    trouble = f"Cannot send this machine's checkpoint of step {packed.step:,}; it stays here, run again"
    with store_errors(ctx.checkpoint_store, trouble), os_errors(ctx.local_folder.root, reading=False, here=True):
        packed = ctx.local_folder.adopt(packed, lease.epoch, lease.own_state.head.key if lease.own_state.head else None)
        parts.certificate.why = why
        item = Item(packed.step, None, taken_at=ctx.runtime.monotonic(), metrics=dict(packed.metrics), packed=packed)
        item.heed = lambda: _heed_sending(parts)
        if following is not None:
            item.next = StepDigest(following.step, following.path, following.digest)
        parts.writer.commit(item)
    parts.writer.backup = packed.key


def _fits(parts: SessionParts, packed: LocalCheckpoint) -> bool:
    """Whether the workload loads it and its digest matches its description: no other check covers a local file."""
    workload = parts.ctx.workload
    try:
        workload.load(parts.ctx.local_folder.folder(packed.key))
        found = workload.digest()
        if (found.step, found.digest) == (packed.step, packed.state_hash):
            return True
        why = "its description names another state"
    except ValueError as error:
        why = str(error)
    parts.ctx.listener.event(LeftAlone(packed.step, why))
    return False


def _heed_sending(parts: SessionParts) -> None:
    """Raises EndedEarly. Sending needs no reserve: it may use all the time left, after a signal the grace."""
    parts.trainer.heed_signal()
    if parts.ctx.runtime.monotonic() >= parts.budget.deadline - parts.ctx.plan.limits.margin_s:
        reason = parts.ctx.signal.reason
        raise EndedEarly("budget" if reason is None else reason)


def _heed(parts: SessionParts) -> None:
    """Raises EndedEarly. A restore is useful only if a step and its commit still fit."""
    end = parts.trainer.why_end()
    if end not in (None, "target", "until"):  # a damaged state at the target may have been loaded
        raise EndedEarly(end)


def _restore(parts: SessionParts) -> Restored:
    ctx, lease = parts.ctx, parts.lease
    began = ctx.runtime.monotonic()
    ctx.listener.event(Activity("restoring", lease.state.step))
    go_on, show = (lambda: _heed(parts)), ctx.listener.transfer
    route = Route(ctx.checkpoint_store, ctx.names, ctx.local_folder, ctx.plan.workers, go_on, show)
    restored = restore(lease.state, route, ctx.workload)
    seconds, checkpoint, manifest = ctx.runtime.monotonic() - began, restored.checkpoint, restored.manifest
    borrowed = manifest.borrowed()
    parts.budget.measured.add("restore", seconds, checkpoint.bytes + sum(file.size for file in borrowed))
    parts.writer.backup = checkpoint.key
    if checkpoint.base is not None:
        parts.writer.lending.add(checkpoint.base, borrowed or manifest.files, ctx.local_folder.folder(checkpoint.key))
    if restored.damaged:
        change = Rewind(damaged=restored.damaged, to=restored.checkpoint.key, evidence=restored.evidence)
        lease.append("rewind", lambda state: change)
        ctx.listener.event(WentBack(restored.checkpoint.step, restored.evidence))
    return restored
