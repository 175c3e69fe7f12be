"""Everything a run of the model can be in at one moment, as frozen tuples; knows no rule of the protocol."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from tests.model.product import ME, NOBODY, OTHER, Change, File, Key, View


class Session(NamedTuple):
    """One process. IDLE is also the next process in its place: nothing of the last one is remembered."""

    phase: str
    """idle, looking, restoring, training, sealing, naming, deleting."""
    epoch: int
    """Of its own lease; 0 before."""
    view: View
    """The newest view it has seen, which may be as old as it likes."""
    step: int
    """That it has trained to, or has a snapshot of."""
    unsure: Change | None
    """What it sent without being told whether that landed."""
    landed: int
    """The truth about `unsure`, found out by reading the slots since: 0, or that slot (1 if they have no numbers)."""
    going: tuple[File, ...]
    """What it will still delete."""
    over: View | None = None
    """What the newest entry, which it cannot read, has made of the run: its next entry passes over that."""


class Flight(NamedTuple):
    """An entry that was sent to the slot after the tail and may land at any time, also after its sender's death."""

    sender: int
    change: Change
    after: View


class Faults(NamedTuple):
    """How much may still go wrong. Deaths, sleep, wrong clocks and takeovers are free: they need no fault."""

    answers: int = 0
    """Appends whose answer is lost: landed at once, later, or never."""
    files: int = 0
    """Files that land later than their sender thinks, or lives."""
    rot: int = 0
    """Checkpoints that are damaged in the store."""
    holes: int = 0
    """Entries that an outsider removes."""
    blind: int = 0
    """Readings by which a session takes the newest entry for garbage, for as long as it likes."""


class World(NamedTuple):
    """The store and everybody who works on it.

    The log is its newest view: each entry changes the view for good (epoch, step, retired, holder never come back
    together), so "the slot I want is free" is "my view is the tail's".
    """

    tail: View
    files: frozenset[File]
    sessions: tuple[Session, ...]
    flights: tuple[Flight, ...]
    drifting: frozenset[File]
    """Files under way in the network."""
    rotten: frozenset[Key]
    hole: View | None
    """The view below a slot that is empty though later ones were used; a reader without care takes it for the tail."""
    faults: Faults
    slot: int = 0
    """The number of the newest one, where entries may be passed over; else 0, and so is all that follows."""
    under: View | None = None
    """The view below the newest slot: what whoever cannot read that takes for the tail."""
    top: int = 0
    """The newest epoch that an entry has begun which was passed over since, if none is newer."""
    healed: View | None = None
    """What whoever reads a slot whole that was passed over takes for the tail, in a protocol where that counts."""
    fallen: frozenset[Key] = frozenset()
    """Checkpoints whose commits were passed over."""
    doubted: frozenset[Key] = frozenset()
    """What an entry has retired that was passed over since: who has seen that may delete it for ever."""


NO_FAULTS = Faults()
NOTHING_SEEN = View(0, NOBODY, 0, (), (), (), False)
IDLE = Session("idle", 0, NOTHING_SEEN, 0, None, 0, ())


@cache
def seen_by(tail: View, who: int) -> View:
    """The tail as a session sees it."""
    if tail.holder == NOBODY:
        return tail
    return tail._replace(holder=ME if tail.holder == who else OTHER)


def placed(view: View, who: int) -> View:
    """A session's view as everybody's."""
    return view._replace(holder=who) if view.holder == ME else view


def with_session(world: World, who: int, session: Session) -> World:
    sessions = world.sessions
    return world._replace(sessions=(*sessions[:who], session, *sessions[who + 1 :]))


def updated(world: World, who: int, **fields: Any) -> World:
    return with_session(world, who, world.sessions[who]._replace(**fields))


def without(world: World, who: int) -> World:
    """The process is gone, but its requests in flight are not; no later process has its identity."""
    tail = world.tail._replace(holder=OTHER) if world.tail.holder == who else world.tail
    under, healed = (one and one._replace(holder=OTHER if one.holder == who else one.holder) for one in _below(world))
    flights = tuple(sorted(f._replace(sender=OTHER) if f.sender == who else f for f in world.flights))
    return with_session(world._replace(tail=tail, under=under, healed=healed, flights=flights), who, IDLE)


def _below(world: World) -> tuple[View | None, View | None]:
    return world.under, world.healed


def canonical(world: World) -> World:
    """The same world with its sessions in one order: which of equal processes is called A makes no difference."""
    sessions, holder, under, flights = world.sessions, world.tail.holder, world.under, world.flights
    keys = [
        (
            _order(session),
            who == holder,
            bool(under and who == under.holder),
            [f.change for f in flights if f.sender == who] if flights else 0,
        )
        for who, session in enumerate(sessions)
    ]
    if all(one <= other for one, other in pairwise(keys)):
        return world
    order = sorted(range(len(sessions)), key=keys.__getitem__)
    number = {who: place for place, who in enumerate(order)} | {OTHER: OTHER, NOBODY: NOBODY}
    return world._replace(
        sessions=tuple(sessions[who] for who in order),
        tail=world.tail._replace(holder=number[holder]),
        under=world.under and world.under._replace(holder=number[world.under.holder]),
        healed=world.healed and world.healed._replace(holder=number[world.healed.holder]),
        flights=tuple(sorted(f._replace(sender=number[f.sender]) for f in flights)),
    )


@cache
def _order(session: Session) -> str:
    return repr(tuple(session))
