"""A calm world in which a scene is set: one run, two machines, and only the faults that the scene brings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

from tests.core.fake_runtime import World
from tests.core.lab import PROJECT
from tests.simulation.disk import disks_of
from tests.simulation.fleet import Command, Fleet, Machine, Order, Pace
from tests.simulation.memo import once
from tests.simulation.oracle import Oracle, Run
from tests.simulation.stores import MEMORY, STORES
from tests.simulation.trace import Summary, Trace, Violation
from tests.simulation.weather import Sky

Broken = Callable[[], AbstractContextManager[object]]
"""The product with a mutation in it."""


def waits(fleet: Fleet) -> None:
    """A session on the second machine wants the lease, from now on."""
    fleet.start(Order(2, fleet.world.now, 1, "ben", 0, "run", patience_s=7200.0), calm=True)


def start(fleet: Fleet, number: int, account: str, verb: str = "run") -> Command:
    """A command on machine `number`, started now and driven by the next `fleet.world.run()`."""
    fleet.start(Order(number, fleet.world.now, number, account, 0, verb, patience_s=7200.0), calm=True)
    return [*fleet.crew.values()][-1]


def train(fleet: Fleet, number: int, account: str, target: int) -> Run:
    """The run after a whole session on machine `number`."""
    fleet.pace.target = target
    start(fleet, number, account)
    fleet.world.run()
    return fleet.oracle.runs[PROJECT, "chain"]


@contextmanager
def calm_world(seed: int, on: str = MEMORY) -> Iterator[Fleet]:
    """One run, two machines, no weather; any other fault is a violation too."""
    world, summary = World(seed), Summary(seeds=1)
    trace = Trace(seed, world.now, on)
    sky = Sky(world, Random(f"sky {seed}"), trace, summary, STORES[on](Path()))
    with tempfile.TemporaryDirectory() as folder:
        machines = [Machine(f"m{n}", Path(folder) / f"m{n}", 0.0, 0.01) for n in range(2)]
        pace = Pace(target=12, step_s=3.0, every_steps=3, ttl_s=60.0)
        fleet = Fleet(world, sky, Oracle(sky, trace), trace, summary, machines, pace, seed)
        try:
            with once(), disks_of(fleet):
                fleet.begin("chain")
                yield fleet
        except Violation:
            raise
        except Exception as error:
            raise trace.violation(f"{type(error).__name__}: {error}") from error
        finally:
            world.close()
        if trace.broken:
            raise trace.broken
