"""The next possible actions of each process and the network, one atomic step at a time; judges nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model import product
from tests.model.product import ME, OTHER, Change, File, Key, View, files_of
from tests.model.step import Bounds, Landed, Step, said, shown
from tests.model.world import IDLE, NO_FAULTS, Flight, Session, World, placed, seen_by, updated, with_session, without


class Protocol:
    """The protocol as it is. A broken variant overrides one method (variants.py)."""

    breaks = ""
    """What a broken variant breaks."""
    needs = NO_FAULTS
    """Without which faults it is not found out."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def first(self) -> World:
        """A run at step 2, released by epoch 1, with two checkpoints: one more and the first is retired."""
        retained = ((1, 1), (2, 1))
        tail = View(1, product.NOBODY, 2, retained, (), (), True)
        files = frozenset(file for key in retained for file in files_of(key))
        sessions = (IDLE,) * self.bounds.sessions
        slot = 4 if self.bounds.faults.blind else 0  # a genesis, a lease, two commits and a release
        return World(tail, files, sessions, (), frozenset(), frozenset(), None, self.bounds.faults, slot)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that can happen next."""
        for who, session in enumerate(world.sessions):
            for step in self.of_session(world, who):
                yield step
                if world.faults.holes and step.landed and not self.is_next(world, who):
                    yield self.loses(world, step)
            if self.bounds.reborn and (session.epoch or session.unsure):  # before that, to die is to start again
                yield Step("dies", who, without(world, who), fault=True)
        yield from self.of_network(world)

    def is_next(self, world: World, who: int) -> bool:
        """Whether another process is about to write the slot after the tail; it could not see that it was used."""
        others = ((number, one) for number, one in enumerate(world.sessions) if number != who)
        return any(one.view == seen_by(world.tail, number) for number, one in others)

    def loses(self, before: World, step: Step) -> Step:
        """The same, and an outsider removes the entry; a hint, a listing or its sender still knows that it was."""
        faults = step.world.faults._replace(holes=step.world.faults.holes - 1)
        there = step.world._replace(hole=before.tail, faults=faults)
        return step._replace(text=f"{step.text}; an outsider removes that entry", world=there, fault=True)

    # -- a session ----------------------------------------------------------------------------------------------

    def of_session(self, world: World, who: int) -> Iterator[Step]:
        """The possible actions of one living session."""
        session = world.sessions[who]
        if session.unsure is not None:
            yield from self.settles(world, who, session, session.unsure)
            yield self.gives_up(world, who, session.unsure)
        else:
            yield from getattr(self, session.phase)(world, who, session)

    def idle(self, world: World, who: int, session: Session) -> Iterator[Step]:
        if not self.may_lease(world, world.tail):
            return
        view = self.reads_afresh(world, who)
        if view is not None:
            yield Step("starts and reads the ledger", who, updated(world, who, phase="looking", view=view))
        for here in self.blinded(world, who):
            yield Step("starts and cannot read the newest entry", who, updated(here, who, phase="looking"), fault=True)

    def may_lease(self, world: World, view: View) -> bool:
        """Within bounds."""
        return world.slot < self.bounds.slots if world.slot else view.epoch < self.bounds.epochs

    def blinded(self, world: World, who: int) -> Iterator[World]:
        """A session reads on to the tail, and takes the newest entry for garbage from now on.

        One that could not read the newest before, and has seen nothing since, would pass over both: for the simulation.
        """
        if world.under is not None and world.faults.blind and world.sessions[who].over is None:
            faults = world.faults._replace(blind=world.faults.blind - 1)
            view, over = seen_by(world.under, who), seen_by(world.tail, who)
            yield updated(trimmed(world._replace(faults=faults)), who, view=view, over=over)

    def looking(self, world: World, who: int, session: Session) -> Iterator[Step]:
        """The holder of the lease may look dead at any moment: it sleeps, or one of the clocks is wrong."""
        if self.may_lease(world, session.view):
            yield from self.appends(world, who, Change("lease", self.next_epoch(world, session)))

    def next_epoch(self, world: World, session: Session) -> int:
        """That its lease takes: none that an entry which it passes over may have begun."""
        following = product.next_epoch(session.view)
        return max(following, world.slot + 1) if session.over else following

    def restoring(self, world: World, who: int, session: Session) -> Iterator[Step]:
        """Load the newest sound checkpoint; a rewind if that is not the head.

        A file that is not there is no damage to a session that has lost its lease: it will be fenced.
        """
        view = session.view
        good = view.sound
        sound = [key for key in good if key not in world.rotten and world.files.issuperset(files_of(key))]
        if not sound:
            yield Step("finds no sound checkpoint and ends (65)", who, without(world, who))
        elif sound[-1] == good[-1]:
            world = updated(world, who, phase="training", step=view.step)
            yield Step(f"restores step {view.step}", who, world)
        else:
            bad = good[good.index(sound[-1]) + 1 :]
            yield from self.appends(world, who, Change("rewind", session.epoch, (*bad, sound[-1])))

    def training(self, world: World, who: int, session: Session) -> Iterator[Step]:
        if session.step < self.bounds.step:
            yield from self.stores_data(world, who, session)
        if going := product.retiring(session.view):
            yield from self.appends(world, who, Change("retire", session.epoch, going))
        yield from self.collects(world, who, session)
        yield from self.appends(world, who, Change("release", session.epoch))

    def stores_data(self, world: World, who: int, session: Session) -> Iterator[Step]:
        """Train one step and send the snapshot's first file; work of one machine alone is no step of its own."""
        data = files_of((session.step + 1, session.epoch))[0]
        here = updated(world, who, phase="sealing", step=session.step + 1)
        text = f"trains to step {here.sessions[who].step} and stores {shown(data)}"
        yield Step(text, who, here._replace(files=here.files | {data}))
        yield from self.stores_late(world, who, data)

    def sealing(self, world: World, who: int, session: Session) -> Iterator[Step]:
        manifest = files_of((session.step, session.epoch))[1]
        here = updated(world, who, phase="naming")
        yield Step(f"stores {shown(manifest)}", who, here._replace(files=here.files | {manifest}))
        yield from self.stores_late(world, who, manifest)

    def naming(self, world: World, who: int, session: Session) -> Iterator[Step]:
        yield from self.appends(world, who, Change("commit", session.epoch, ((session.step, session.epoch),)))

    def deleting(self, world: World, who: int, session: Session) -> Iterator[Step]:
        """One file at a time; it may stop at any point, for the list was only advice."""
        file, *rest = session.going
        here = updated(world, who, going=tuple(rest), phase="deleting" if rest else "training")
        yield Step(f"deletes {shown(file)}", who, here._replace(files=here.files - {file}))
        yield Step("stops deleting", who, updated(world, who, going=(), phase="training"))

    def collects(self, world: World, who: int, session: Session) -> Iterator[Step]:
        """Read the ledger and choose files; by now another session may hold the lease."""
        view = seen_by(world.tail, who)
        if session.over is not None:
            view = session.view if session.over == view else view
        if going := self.deletable(world, session, view):
            over = session.over if view == session.view else None
            here = updated(world, who, phase="deleting", view=view, going=going, over=over)
            yield Step(f"chooses {', '.join(map(shown, going))} to delete", who, here)

    # -- methods that the broken variants change ------------------------------------------------------------------

    def reads_afresh(self, world: World, who: int) -> View | None:
        """The slot that a new process takes for the tail; None if it finds that an entry was lost (65)."""
        return None if world.hole else seen_by(world.tail, who)

    def deletable(self, world: World, session: Session, view: View) -> tuple[File, ...]:
        return product.deleting(view, world.files)

    def rules(self, view: View, change: Change) -> View | None:
        """The view after an entry, None if it may not be."""
        return product.after(view, change)

    def finds_own(self, session: Session) -> bool:
        """Whether the slots since the first attempt hold the entry it is unsure of."""
        return session.landed > 0

    def may_pass(self, change: Change) -> bool:
        """Whether such an entry may pass over others: after it, epochs must not be lower than in these."""
        return change.kind == "lease"

    def kept(self, world: World, view: View) -> tuple[Key, ...]:
        """The files kept by an entry that passes over another."""
        return product.keeping(view, world.files)

    def sees_later_epoch(self, world: World, view: View) -> bool:
        """Whether files show that an unreadable entry has begun an epoch, so that it must not be passed over."""
        return any(epoch > view.epoch for _, epoch, _ in world.files)

    # -- appending ------------------------------------------------------------------------------------------------

    def appends(self, world: World, who: int, change: Change) -> Iterator[Step]:
        """Send one entry to the slot after the newest one seen, and hear how that went, or not."""
        session = world.sessions[who]
        if session.over is not None and session.over != seen_by(world.tail, who):
            yield from self.finds_taken(world, who, change, session.view)
            return
        if session.over is not None and not self.may_pass(change):
            yield Step("cannot read whether it still holds the lease, and ends (69)", who, without(world, who))
            return
        if session.over is not None and self.sees_later_epoch(world, session.view):
            yield Step("sees files of a later epoch than it can read of, and ends (65)", who, without(world, who))
            return
        if world.slot and change.kind == "commit" and change.keys[0] in session.view.retained:
            yield self.knows_won(world, who, change, session.view, f"reads that its {said(change)} is there after all")
            return
        after = self.result(world, session, change)
        if after is None:
            yield self.ends_refused(world, who, session.view)
        elif not self.slot_is_free(world, who, session.over or session.view):
            yield from self.finds_taken(world, who, change, after)
        else:
            there, landed = self.lands(world, who, change, after)
            text = f"appends {said(change)}{', which passes over the newest entry' if session.over else ''}"
            yield self.knows_won(there, who, change, after, text)._replace(landed=landed)
            if world.faults.answers and session.over is None:
                yield from self.hears_nothing(world, who, change, after)

    def result(self, world: World, session: Session, change: Change) -> View | None:
        """The view after its entry, None if it may not be."""
        if session.over is None:
            return self.rules(session.view, change)
        return product.passing(session.view, change, world.slot, self.kept(world, session.view))

    def lands(self, world: World, who: int, change: Change, after: View) -> tuple[World, Landed | None]:
        """Its entry takes the slot after the tail; in a broken variant perhaps to its own eyes only."""
        session = world.sessions[who]
        landed = Landed(session.view, who, change, session.over is not None)
        return lands(world, who, after, session.view if landed.passing else None), landed

    def slot_is_free(self, world: World, who: int, view: View) -> bool:
        """Whether the slot after that view is empty, and a put-if-absent to it succeeds."""
        return view == seen_by(world.tail, who)

    def knows_won(self, world: World, who: int, change: Change, after: View, text: str) -> Step:
        """The session goes on, sure that its entry is in the log."""
        if change.kind == "release":
            return Step(text, who, without(world, who))
        session = world.sessions[who]
        fields: dict[str, Any] = {"phase": "training", "view": after, "unsure": None, "landed": 0, "over": None}
        if change.kind == "lease":
            fields |= {"phase": "restoring", "epoch": change.epoch}
            if not self.bounds.faults.rot:  # then nothing can happen to a restore
                fields |= {"phase": "training", "step": after.step}
        if change.kind == "rewind":
            fields["step"] = after.step
        claims = change.keys[0] if change.kind == "commit" else None
        return Step(text, who, with_session(world, who, session._replace(**fields)), claims=claims)

    def hears_nothing(self, world: World, who: int, change: Change, after: View) -> Iterator[Step]:
        """The answer is lost: the entry is there, or is still under way and may never arrive."""
        world = world._replace(faults=world.faults._replace(answers=world.faults.answers - 1))
        there, landed = self.lands(world, who, change, after)
        there = updated(there, who, unsure=change, landed=there.slot or 1)
        yield Step(f"appends {said(change)} and gets no answer", who, there, landed, fault=True)
        flights = tuple(sorted({*world.flights, Flight(who, change, after)}))
        away = updated(world._replace(flights=flights), who, unsure=change, landed=0)
        yield Step(f"sends {said(change)}, which is under way, and gets no answer", who, away, fault=True)

    def finds_taken(self, world: World, who: int, change: Change, after: View) -> Iterator[Step]:
        """The slot holds another's entry: read to the tail; the change is rebuilt on the current state."""
        view = seen_by(world.tail, who)
        here = updated(world, who, view=view, unsure=None, landed=0, over=None)
        if world.sessions[who].phase != "looking" and view.holder != ME:
            yield self.ends_refused(world, who, view)
        else:
            yield Step(f"finds the slot for its {said(change)} taken and reads on", who, here)
        for there in self.blinded(world, who):
            if there.sessions[who].phase == "looking" or there.sessions[who].view.holder == ME:
                there = updated(there, who, unsure=None, landed=0)
                text = f"finds the slot for its {said(change)} taken and cannot read what is in the newest"
                yield Step(text, who, there, fault=True)

    def settles(self, world: World, who: int, session: Session, change: Change) -> Iterator[Step]:
        """Read the slots since the first attempt: its own entry, another's in its slot, or nothing yet."""
        after = self.result(world, session, change)
        assert after is not None, "it was allowed when it was sent"
        if self.finds_own(session):
            yield self.knows_won(world, who, change, after, f"reads that its {said(change)} has landed")
            if session.landed == world.slot:
                for here in self.blinded(world, who):
                    text = f"cannot read that its {said(change)} has landed"
                    yield Step(text, who, updated(here, who, unsure=None, landed=0), fault=True)
        elif self.slot_is_free(world, who, session.over or session.view):
            there, landed = self.lands(world, who, change, after)
            text = f"finds the slot empty and sends the same {said(change)} again"
            yield self.knows_won(there, who, change, after, text)._replace(landed=landed)
        else:
            yield from self.finds_taken(world, who, change, after)

    def gives_up(self, world: World, who: int, change: Change) -> Step:
        """A newer snapshot takes a commit's place; a retirement waits for the next one; other cases end the process."""
        text = f"gives up its {said(change)}"
        if change.kind in ("commit", "retire"):
            return Step(text, who, updated(world, who, phase="training", unsure=None, landed=0))
        return Step(f"{text} and ends (74)", who, without(world, who))

    def ends_refused(self, world: World, who: int, view: View) -> Step:
        if view.holder == ME:
            return Step("is refused though it holds the lease", who, without(world, who), refused=True)
        return Step("finds itself fenced and ends (76)", who, without(world, who))

    # -- the network and outsiders --------------------------------------------------------------------------------

    def of_network(self, world: World) -> Iterator[Step]:
        """A sent object lands late; a stored checkpoint rots."""
        for flight in world.flights:
            yield self.arrives(world, flight)
        for file in sorted(world.drifting):
            there = world._replace(files=world.files | {file}, drifting=world.drifting - {file})
            yield Step(f"{shown(file)} lands late", OTHER, there, fault=True)
        head = world.tail.sound[-1]
        if world.faults.rot and head not in world.rotten:
            faults = world.faults._replace(rot=world.faults.rot - 1)
            yield Step(
                f"{shown(head)} rots", OTHER, world._replace(rotten=world.rotten | {head}, faults=faults), fault=True
            )

    def arrives(self, world: World, flight: Flight) -> Step:
        """An entry under way takes the slot that it was sent to."""
        sender, change, after = flight
        base = seen_by(world.tail, sender)
        there = lands(world, sender, after)
        if sender != OTHER and world.sessions[sender].unsure == change:
            there = updated(there, sender, landed=there.slot or 1)
        return Step(f"{said(change)} lands late", sender, there, Landed(base, sender, change), fault=True)

    def stores_late(self, world: World, who: int, file: File) -> Iterator[Step]:
        """No answer, and the file is not there yet: it will be sent again, and may land twice."""
        if world.faults.files and file not in world.drifting:
            faults = world.faults._replace(files=world.faults.files - 1)
            there = world._replace(drifting=world.drifting | {file}, faults=faults)
            yield Step(f"sends {shown(file)}, which is under way, and gets no answer", who, there, fault=True)


def lands(world: World, who: int, after: View, base: View | None = None) -> World:
    """The entry is the tail; any other entry under way to its slot can never land.

    With `base` it builds on that and passes over the tail: a session that finds its own entry there has not landed.
    """
    tail, there = world.tail, world._replace(tail=placed(after, who), flights=())
    if not world.slot:
        return there
    there = trimmed(there._replace(slot=world.slot + 1, under=tail))
    if base is not None:
        fallen = world.fallen | (set(tail.retained) - {*base.retained, *base.retired})
        doubted = world.doubted | (set(base.retained) - set(tail.retained))
        there = there._replace(top=max(tail.epoch, world.top), fallen=fallen, doubted=doubted)
        for number, session in enumerate(there.sessions):
            if session.landed == world.slot:
                there = updated(there, number, landed=0)
    return there._replace(top=0) if there.tail.epoch >= there.top else there


def trimmed(world: World) -> World:
    """Without the fields that matter only to a process that cannot read the newest entry, if there can be none."""
    return world if world.faults.blind else world._replace(under=None)
