"""The protocol broken in one place at a time, each with the invariant that the search then finds broken."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import product
from tests.model.product import ME, NOBODY, Change, File, Key, View, files_of
from tests.model.protocol import Protocol, lands
from tests.model.step import Landed, Step, said
from tests.model.world import Faults, Session, World, seen_by, updated


class Overwrite(Protocol):
    """An entry is put, not put if absent."""

    breaks = "I2"

    def slot_is_free(self, world: World, who: int, view: View) -> bool:
        return True


class TrustExistsForCommit(Protocol):
    """ "Exists" is taken for "mine, sent before": what another wrote is reported as one's own commit."""

    breaks = "P2"
    kind = "commit"

    def finds_taken(self, world: World, who: int, change: Change, after: View) -> Iterator[Step]:
        if change.kind == self.kind:
            yield self.knows_won(world, who, change, after, f"finds the slot taken and believes in its {change.kind}")
        else:
            yield from super().finds_taken(world, who, change, after)


class TrustExistsForLease(TrustExistsForCommit):
    """The same for a lease: two sessions train under one epoch."""

    breaks = "I4"
    kind = "lease"


class RememberedState(Protocol):
    """After a lost slot the state computed before is sent again, to the next slot, and readers believe it."""

    breaks = "I4"

    def finds_taken(self, world: World, who: int, change: Change, after: View) -> Iterator[Step]:
        yield forced(world, who, change, after)


class ResendUnchecked(Protocol):
    """An entry of unknown outcome is sent to a later slot, unsearched; and its key may be committed twice."""

    breaks = "P2"
    needs = Faults(answers=1)

    def finds_own(self, session: Session) -> bool:
        return False

    def rules(self, view: View, change: Change) -> View | None:
        known = view.retained + view.retired
        if change.kind == "commit" and change.keys[0] in known and view.holder == ME:
            return view._replace(retained=view.retained + change.keys)
        return super().rules(view, change)


class EpochReset(Protocol):
    """A release begins the count of epochs anew."""

    breaks = "I4"

    def rules(self, view: View, change: Change) -> View | None:
        after = super().rules(view, change)
        return after._replace(epoch=0) if after and change.kind == "release" else after


class AccountIsHolder(Protocol):
    """A process whose account holds the lease goes on under it: two processes, one epoch."""

    breaks = "I4"

    def looking(self, world: World, who: int, session: Session) -> Iterator[Step]:
        yield from super().looking(world, who, session)
        if session.view.holder != NOBODY:
            mine = session.view._replace(holder=ME)
            here = updated(world, who, phase="restoring", epoch=mine.epoch, view=mine)
            yield Step("goes on under the lease of its account", who, here)


class LocalClock(Protocol):
    """A holder whose own clock says that its lease still runs writes without a look at who holds it."""

    breaks = "I5"

    def finds_taken(self, world: World, who: int, change: Change, after: View) -> Iterator[Step]:
        if world.sessions[who].phase == "looking":
            yield from super().finds_taken(world, who, change, after)
            return
        view = seen_by(world.tail, who)
        written = self.rules(view._replace(holder=ME, epoch=change.epoch), change)
        if written is not None:
            yield forced(world, who, change, written._replace(epoch=view.epoch, holder=view.holder))


class NameFirst(Protocol):
    """The commit is appended as soon as the data is stored; the manifest comes later."""

    breaks = "I3"

    def sealing(self, world: World, who: int, session: Session) -> Iterator[Step]:
        yield from super().sealing(world, who, session)
        yield from self.naming(world, who, session)


class DeleteFirst(Protocol):
    """What the next `retire` will name is deleted before it."""

    breaks = "I8"

    def deletable(self, world: World, session: Session, view: View) -> tuple[File, ...]:
        early = {file for key in product.retiring(view) for file in files_of(key)}
        return super().deletable(world, session, view) + tuple(sorted(early & world.files))


class DeleteByOldView(Protocol):
    """Whatever the newest view this session happens to have does not retain is garbage."""

    breaks = "I8"

    def deletable(self, world: World, session: Session, view: View) -> tuple[File, ...]:
        kept = {file for key in session.view.retained for file in files_of(key)}
        return tuple(sorted(world.files - kept))


class DeleteNewestEpoch(Protocol):
    """Files of the newest epoch that no entry names are garbage, though their entry may still be under way."""

    breaks = "I3"
    needs = Faults(answers=1)

    def deletable(self, world: World, session: Session, view: View) -> tuple[File, ...]:
        later = view._replace(epoch=view.epoch + 1, holder=NOBODY)
        return super().deletable(world, session, later)


class HoleIsTail(Protocol):
    """The first empty slot is the end of the log, whatever a hint, a listing or a file says."""

    breaks = "I1"
    needs = Faults(holes=1)

    def reads_afresh(self, world: World, who: int) -> View | None:
        return seen_by(world.hole or world.tail, who)

    def slot_is_free(self, world: World, who: int, view: View) -> bool:
        return super().slot_is_free(world, who, view) or bool(world.hole and view == seen_by(world.hole, who))


class RestartAtZero(Protocol):
    """A session that finds the head damaged begins again at step 0, by a rewind to nothing."""

    breaks = "I6"
    needs = Faults(rot=1)

    def restoring(self, world: World, who: int, session: Session) -> Iterator[Step]:
        if session.view.sound[-1] in world.rotten:
            yield Step("starts at step 0", who, updated(world, who, phase="training", step=0))
        else:
            yield from super().restoring(world, who, session)


class DeniedIsDamage(Protocol):
    """A checkpoint that cannot be read just now counts as damaged."""

    breaks = "I6"
    needs = Faults(rot=1)

    def restoring(self, world: World, who: int, session: Session) -> Iterator[Step]:
        yield from super().restoring(world, who, session)
        older, head = session.view.sound[-2:]
        yield from self.appends(world, who, Change("rewind", session.epoch, (head, older)))


class RetireAllButHead(Protocol):
    """One retained checkpoint is thought to be enough."""

    breaks = "P8"

    def rules(self, view: View, change: Change) -> View | None:
        after = super().rules(view, change)
        return after._replace(retained=after.retained[-1:]) if after and change.kind == "retire" else after


class AnythingPasses(Protocol):
    """A holder who cannot read the newest entry, which may have taken its lease, passes over it with its own."""

    breaks = "I3"
    needs = Faults(blind=1)

    def may_pass(self, change: Change) -> bool:
        return True


class EpochTakenAgain(Protocol):
    """A lease takes the epoch after the one that it can read of, whatever it passes over."""

    breaks = "I4"
    needs = Faults(blind=1)

    def next_epoch(self, world: World, session: Session) -> int:
        return session.view.epoch + 1

    def result(self, world: World, session: Session, change: Change) -> View | None:
        view = session.view._replace(skipped=change.epoch - 1) if change.kind == "lease" else session.view
        after = self.rules(view, change)
        kept = self.kept(world, session.view) if session.over else ()
        return after and after._replace(kept=(*after.kept, *kept))


class EpochsCounted(EpochTakenAgain):
    """A lease that passes over an entry takes the epoch after the next; but that entry may have done so too."""

    needs = Faults(blind=2)

    def next_epoch(self, world: World, session: Session) -> int:
        return session.view.epoch + (2 if session.over else 1)


class NothingKept(Protocol):
    """What the entry that is passed over may have committed is forgotten."""

    breaks = "P6"
    needs = Faults(blind=1)

    def kept(self, world: World, view: View) -> tuple[Key, ...]:
        return ()


class KeptIsGarbage(Protocol):
    """What is kept is garbage to the next clean-up, as anything else that no entry names."""

    breaks = "P4"
    needs = Faults(blind=1)

    def deletable(self, world: World, session: Session, view: View) -> tuple[File, ...]:
        return super().deletable(world, session, view._replace(kept=(), unread=()))


class PassedOverAndClaimed(Protocol):
    """Who finds its own entry in the log does not ask whether a later one has passed over it."""

    breaks = "P2"
    needs = Faults(answers=1, blind=1)

    def lands(self, world: World, who: int, change: Change, after: View) -> tuple[World, Landed | None]:
        there, landed = super().lands(world, who, change, after)
        for number, session in enumerate(world.sessions):
            if session.landed and number != who:
                there = updated(there, number, landed=session.landed)
        return there, landed


class HealedCounts(Protocol):
    """What can be read again counts again, and whatever was built beside it never counted (the rule before)."""

    breaks = "P6"
    needs = Faults(blind=1)

    def lands(self, world: World, who: int, change: Change, after: View) -> tuple[World, Landed | None]:
        there, landed = super().lands(world, who, change, after)
        if landed and landed.passing:
            there = there._replace(healed=None if self.is_healed(world, landed.base) else world.tail)
        return there, landed

    def idle(self, world: World, who: int, session: Session) -> Iterator[Step]:
        yield from super().idle(world, who, session)
        if world.healed is not None:
            view, over = seen_by(world.healed, who), seen_by(world.tail, who)
            here = updated(world, who, phase="looking", view=view, over=over)
            yield Step("starts and reads what had been passed over", who, here)

    def is_healed(self, world: World, view: View) -> bool:
        """To whoever reads that, the entries since then are none: nothing of them is kept, nor any epoch looked for."""
        return world.healed is not None and view._replace(holder=NOBODY) == world.healed._replace(holder=NOBODY)

    def kept(self, world: World, view: View) -> tuple[Key, ...]:
        return () if self.is_healed(world, view) else super().kept(world, view)

    def sees_later_epoch(self, world: World, view: View) -> bool:
        return not self.is_healed(world, view) and super().sees_later_epoch(world, view)


class FirstPassingStays(Protocol):
    """What was passed over never counts again, so that who passes over the passing entry itself does not count."""

    breaks = "I4"
    needs = Faults(blind=2)

    def lands(self, world: World, who: int, change: Change, after: View) -> tuple[World, Landed | None]:
        there, landed = super().lands(world, who, change, after)
        if world.sessions[who].over and world.tail.epoch == world.slot:  # the lease there has passed over something
            return world._replace(slot=world.slot + 1, flights=()), None
        return there, landed


def forced(world: World, who: int, change: Change, after: View) -> Step:
    """The entry takes the next slot, whatever lies before it."""
    landed = Landed(seen_by(world.tail, who), who, change)
    there = updated(lands(world, who, after), who, view=after, phase="training", epoch=change.epoch)
    return Step(f"forces {said(change)}", who, there, landed)


VARIANTS = tuple(
    value for value in vars().values() if isinstance(value, type) and issubclass(value, Protocol) and value.breaks
)
