"""Breaks a session's report of a checkpoint it could not send, in one place each (P5, P6); holds the worlds for it."""

from __future__ import annotations

from contextlib import nullcontext

from relay.core.errors import BadData, Exit
from relay.core.session import ends, session
from relay.core.session.assembly import SessionParts
from relay.core.session.ending import NotSent
from relay.core.session.starting import push_unsent
from tests.simulation.fleet import Fleet
from tests.simulation.mutations.base import Patches, mutation, patch
from tests.simulation.mutations.stage import Broken, calm_world, start
from tests.simulation.weather import Episode


def asleep_at_the_end(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A session that cannot send its last step sleeps at its end; another on the same disk goes on, to the target."""
    with mutation(), calm_world(seed) as fleet:
        begin = fleet.world.now
        ann = start(fleet, 0, "ann")
        fleet.sky.episodes.append(Episode("down", begin + 20.0, begin + 300.0, "m0"))
        fleet.world.at(begin + 25.0, lambda: ann.signal.ask("sigterm"))
        fleet.world.at(begin + 26.0 + 2.0 * seed, lambda: ann.process.suspend(3600.0))
        fleet.world.at(begin + 600.0, lambda: start(fleet, 2, "ben"))  # the same machine: there are two
        fleet.world.run(to_the_end=True)


def leave_unsent(fleet: Fleet) -> float:
    """Ann's session leaves a step on the first machine's disk. A time when its lease has run out."""
    begin = fleet.world.now
    ann = start(fleet, 0, "ann")
    fleet.sky.episodes.append(Episode("down", begin + 20.0, begin + 300.0, "m0"))
    fleet.world.at(begin + 25.0, lambda: ann.signal.ask("sigterm"))
    fleet.world.run(to_the_end=True)
    return fleet.world.now + 600.0


def pushed_twice(seed: int, *, mutation: Broken = nullcontext) -> None:
    """Two sessions want to send a checkpoint that an earlier one left on their disk: one trains, the other waits."""
    with mutation(), calm_world(seed) as fleet:
        again = leave_unsent(fleet)
        fleet.world.at(again, lambda: start(fleet, 2, "ann"))
        fleet.world.at(again + 0.02 * seed, lambda: start(fleet, 4, "ben", "push"))
        fleet.world.run(to_the_end=True)


def asleep_while_sending(seed: int, *, mutation: Broken = nullcontext) -> None:
    """A session sleeps while it sends an earlier session's checkpoint; others go on and clear away the sent files."""
    with mutation(), calm_world(seed) as fleet:
        again = leave_unsent(fleet)
        fleet.world.at(again, lambda: start(fleet, 2, "ann"))  # the same machine: there are two
        fleet.world.at(again + 0.02 * seed, lambda: [*fleet.crew][-1].suspend(4 * 3600.0))
        fleet.world.at(again + 2 * 3600.0, lambda: start(fleet, 3, "ben"))
        fleet.world.run(to_the_end=True)


@mutation(
    "taken-over-and-not-told",
    "P5: a session whose run others took over meanwhile tells what it meets as damage",
    "P5: it had read that others took its lease",
    scene=asleep_while_sending,
    pinned=23,
)
def _taken_over_and_not_told() -> Patches:
    return [patch(ends, "meant", lambda lease, error: error)]


@mutation(
    "pushed-already-and-not-seen",
    "P6: a push does not ask whether the step was sent while it waited",
    "p4 ends with 65: The unsent checkpoint does not fit",
    scene=pushed_twice,
    pinned=2,
)
def _pushed_already_and_not_seen() -> Patches:
    def push(parts: SessionParts) -> tuple[Exit, str]:
        packed = parts.ctx.local_folder.pushable(parts.lease.state)
        if packed is None or not push_unsent(parts, packed):
            raise BadData("The unsent checkpoint does not fit this training; it stays where it is.")
        return Exit.OK, "pushed"

    return [patch(session, "_push", push)]


@mutation(
    "kept-and-not-looked-for",
    "P6: what was kept once is told as kept, whoever has taken it since",
    "P6: what it calls kept is not there",
    scene=asleep_at_the_end,
    pinned=3,
)
def _kept_and_not_looked_for() -> Patches:
    return [patch(NotSent, "folder", property(lambda error: error._local_folder.folder(error._key)))]


@mutation(
    "kept-and-called-gone", "P6: what is kept is told as taken by others", "P6: nobody took its step over", pinned=1
)
def _kept_and_called_gone() -> Patches:
    return [patch(NotSent, "folder", property(lambda error: None))]
