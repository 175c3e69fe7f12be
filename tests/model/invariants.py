"""The invariants of every world and every step, by their number in docs/INVARIANTS.md; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.product import ME, View, files_of
from tests.model.step import HOLDING, Landed, Step, shown
from tests.model.world import World, placed, seen_by


def broken_by(before: World, step: Step) -> str | None:
    """The first thing that a step breaks, None if all holds."""
    if not (step.landed or step.claims or step.refused):
        return None
    return next(_stepping(before, step), None)


def broken_in(world: World) -> str | None:
    """The first thing that does not hold in a world."""
    return next(_standing(world), None)


def _stepping(before: World, step: Step) -> Iterator[str]:
    if step.landed:
        yield from _landing(before, step, step.landed)
    after = step.world.tail
    if step.claims and step.claims not in after.retained + after.retired:
        yield f"P2: {shown(step.claims)} is reported as committed, and the ledger does not hold it"
    if step.refused:
        yield "progress: the rules refuse what the holder must write"


def _landing(before: World, step: Step, landed: Landed) -> Iterator[str]:
    """One entry took a slot."""
    base, sender, change, passing = landed
    old, new = placed(base, sender) if passing else before.tail, step.world.tail
    if passing:
        yield from _passing_over(before, old, new)
    if before.hole and base == seen_by(before.hole, sender):
        yield "I1: an entry was written into a hole, as if the log ended there"
    if base != seen_by(old, sender):
        yield "I2: an entry's parent is not the entry in the slot before it: the log has forked or lost one"
    if change.kind == "lease" and new.epoch <= max(old.epoch, before.tail.epoch, before.top):
        yield f"I4: a lease takes epoch {new.epoch}, which was taken before"
    if not before.slot and new.epoch != old.epoch + (change.kind == "lease"):
        yield f"I4: the epoch goes from {old.epoch} to {new.epoch} by a {change.kind}"
    if change.kind != "lease" and (old.holder, old.epoch) != (sender, change.epoch):
        yield f"I5: a {change.kind} of epoch {change.epoch} by a session that does not hold epoch {old.epoch}"
    if change.kind == "commit":
        key = change.keys[0]
        if not step.world.files.issuperset(files_of(key)):
            yield f"I3: the ledger names {shown(key)}, whose files are not all stored"
        if key in old.retained + old.retired:
            yield f"P2: {shown(key)} is committed twice"
    if change.kind == "retire" and set(old.sound[-2:]) - set(new.retained):
        yield "P8: the head, or the checkpoint before it, is retired"
    if new.step < old.step and not (change.kind == "rewind" and change.keys[0] in before.rotten):
        yield f"I6: the step goes back from {old.step} to {new.step} without a rewind and its evidence"


def _passing_over(before: World, old: View, new: View) -> Iterator[str]:
    """The entry builds on `old`, and passes over the previous tail."""
    gone = set(before.tail.retained) - {*old.retained, *old.retired, *new.kept}
    if gone:
        yield f"P6: {shown(min(gone))}, whose commit is passed over, is not kept"
    if set(old.kept) - set(new.kept):
        yield f"P4: {shown(min(set(old.kept) - set(new.kept)))} is kept no longer"


def _standing(world: World) -> Iterator[str]:
    tail = world.tail
    needed = tail.sound[-1:] if tail.damaged else tail.sound[-2:]
    for key in tail.retained:
        if not world.files.issuperset(files_of(key)) and (key not in world.doubted or key in needed):
            yield f"I8: a file of {shown(key)}, which is retained, is gone"
    for key in world.fallen - world.doubted:
        if not world.files.issuperset(files_of(key)):
            yield f"P4: a file of {shown(key)}, whose commit was passed over, is gone"
    if not tail.sound or tail.sound[-1][0] != tail.step:
        yield "I6: the head is not the newest sound checkpoint that is retained"
    epochs = [session.epoch for session in world.sessions if session.epoch]
    if len(set(epochs)) < len(epochs) or max(epochs, default=0) > max(tail.epoch, world.top):
        yield "I4: two living sessions work under one epoch, or one that no lease began"
    for session in world.sessions:
        if session.phase in HOLDING[1:] and session.view.holder == ME and session.step < session.view.step:
            yield f"I6: a session trains on from step {session.step}, and step {session.view.step} is committed"
