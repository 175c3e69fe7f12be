"""What a session tells of the checkpoint it could not send broken in one place each (P6), and the world for it."""

from __future__ import annotations

from contextlib import nullcontext

from relay.ending import NotSent
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


@mutation(
    "kept-and-not-looked-for",
    "P6: what was kept once is told as kept, whoever has taken it since",
    "P6: what it calls kept is not there",
    scene=asleep_at_the_end,
    pinned=4,
)
def _kept_and_not_looked_for() -> Patches:
    return [patch(NotSent, "folder", property(lambda error: error._outbox.folder(error._key)))]


@mutation(
    "kept-and-called-gone", "P6: what is kept is told as taken by others", "P6: nobody took its step over", pinned=1
)
def _kept_and_called_gone() -> Patches:
    return [patch(NotSent, "folder", property(lambda error: None))]
