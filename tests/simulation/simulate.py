"""One seed, one world: draws machines, weather and commands, lets them run, and asks whether anything was lost."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from unittest import mock

from relay.core.ledger import rules
from tests.core.fake_runtime import World
from tests.core.lab import PROJECT
from tests.simulation import resting
from tests.simulation.disk import disks_of
from tests.simulation.fleet import Fleet, Machine, Order, Pace
from tests.simulation.memo import once
from tests.simulation.oracle import Oracle
from tests.simulation.reads import draw
from tests.simulation.reckoning import reckon
from tests.simulation.seeds import Kind
from tests.simulation.stores import MEMORY, STORES
from tests.simulation.trace import Summary, Trace, Violation
from tests.simulation.weather import Episode, Sky

VERBS = {
    "run": 24, "push": 2, "fork": 2, "verify": 1, "register": 2, "stop": 1, "resume": 2, "damage": 3,
}  # fmt: skip
"""How often people do what."""
Mutate = Callable[[], AbstractContextManager[object]]
ACCOUNTS = ("ann", "ben", "cyd")


def simulate(seed: int, *, mutation: Mutate = nullcontext, on: str = MEMORY) -> Summary:
    """Live through one seed on a store of a backend. Raises Violation.

    `mutation` is entered around all of it, to show that the judge catches it.
    """
    return play(seed, mutation, on)[0]


def sharing(seed: int, *, mutation: Mutate = nullcontext, on: str = MEMORY) -> Summary:
    """The same seed, where checkpoints share tables."""
    return play(seed, mutation, on, "sharing")[0]


def misreading(seed: int, *, mutation: Mutate = nullcontext, on: str = MEMORY) -> Summary:
    """The same seed, where much is read wrongly."""
    return play(seed, mutation, on, "misreading")[0]


def play(seed: int, mutation: Mutate = nullcontext, on: str = MEMORY, kind: Kind = "") -> tuple[Summary, Trace]:
    """As `simulate`, with the trace of all actions."""
    summary = Summary(store=on, seeds=1)
    with tempfile.TemporaryDirectory(dir=_fast_disk()) as folder, mutation():
        fleet = _scene(seed, on, Path(folder), summary, kind)
        fleet.pace.table_every = (
            Random(f"tables {seed}").choice((1, 2, 4)) * fleet.pace.every_steps if kind == "sharing" else 0
        )
        try:
            with once(), disks_of(fleet), mock.patch.object(rules, "MAX_LINKS", 6):
                fleet.world.run(to_the_end=True)
                reckon(fleet)
        except Violation:
            raise
        except Exception as error:
            raise fleet.trace.violation(f"{type(error).__name__}: {error}") from error
        finally:
            fleet.world.close()
    if fleet.trace.broken:
        raise fleet.trace.broken
    return summary, fleet.trace


def _scene(seed: int, on: str, folder: Path, summary: Summary, kind: Kind) -> Fleet:
    random = Random(f"scene {seed}")
    world = World(seed)
    trace = Trace(seed, world.now, on)
    sky = Sky(world, Random(f"sky {seed}"), trace, summary, STORES[on](folder))
    oracle = Oracle(sky, trace)
    machines = [
        Machine(f"m{n}", folder / f"m{n}", random.choice((0.0, 0.0, -5 * 3600.0, 7200.0)), random.choice((0.01, 0.2)))
        for n in range(random.choice((1, 2, 3)))
    ]
    fleet = Fleet(world, sky, oracle, trace, summary, machines, _pace(random), seed)
    for name in ("chain", "other")[: random.choice((1, 1, 2))]:
        fleet.begin(name)
    length = fleet.pace.target * fleet.pace.step_s * random.choice((1.5, 3.0, 8.0))
    _weather(random, sky, length)
    orders = (*_orders(random, world.now, length, fleet.pace), *_after_a_halt(random, world.now, length, fleet.pace))
    for order in orders:
        world.at(order.at, lambda one=order: _carry_out(fleet, one))
    _put_away(fleet, world.now, length)
    if kind == "misreading":
        _crowd(fleet, world.now, length)
    for told in draw(seed, sky.reads, world.now, length, fleet.pace, kind == "misreading"):
        summary.faults[f"bad-{told}"] += 1
    return fleet


def _pace(random: Random) -> Pace:
    every = random.choice((3, 5, 8))
    target = every * random.randrange(3, 7) + random.choice((0, 1))
    return Pace(
        target=target,
        nan_at=random.randrange(1, target) if random.random() < 0.08 else None,
        crash_at=random.randrange(target) if random.random() < 0.06 else None,
        step_s=random.choice((0.3, 3.0, 20.0, 90.0)),
        every_steps=every,
        ttl_s=random.choice((30.0, 60.0, 180.0)),
    )


def _weather(random: Random, sky: Sky, length: float) -> None:
    sky.rough = random.choice((0.0, 0.0, 0.02, 0.1))
    sky.lag_s = random.choice((0.0, 60.0, 3600.0))
    begin = sky.world.now
    if random.random() < 0.12:
        sky.offset_s = random.choice((-7200.0, -300.0, 300.0, 7200.0))
        sky.world.at(begin + random.uniform(0.0, length), sky.correct_clock)
    for _ in range(random.choice((0, 1, 2, 4))):
        kind = random.choice(("down", "full", "throttled", "rough", "hiding"))
        at = begin + random.uniform(0.0, length)
        lasts = random.choice((20.0, 120.0, 600.0, 3600.0))
        machine = random.choice((None, None, "m0", "m1"))
        sky.episodes.append(Episode(kind, at, at + lasts, machine))
        sky.summary.faults[f"weather-{kind}"] += 1


def _orders(random: Random, begin: float, length: float, pace: Pace) -> Iterator[Order]:
    """Commands in the order of their numbers; now and then the same one is started twice."""
    number = 0
    for _ in range(random.randrange(3, 8)):
        number += 1
        order = Order(
            number,
            begin + random.uniform(0.0, length),
            random.randrange(3),
            random.choice(ACCOUNTS),
            random.randrange(4),
            random.choices([*VERBS], [*VERBS.values()])[0],
            random.choice((0.0, 0.0, pace.ttl_s * 2, 1800.0)),
        )
        yield order
        if order.verb == "damage":  # and a person comes across it
            number += 1
            yield Order(number, order.at + 1.0, random.randrange(3), random.choice(ACCOUNTS), order.run, "run", 7200.0)
        elif random.random() < 0.15:
            number += 1
            machine = random.choice((order.machine, order.machine + 1))
            later = order.at + random.choice((0.0, 0.5, pace.ttl_s))
            yield Order(number, later, machine, order.account, order.run, order.verb, order.patience_s)


def _after_a_halt(random: Random, begin: float, length: float, pace: Pace) -> Iterator[Order]:
    """Where training itself fails on every machine, one person resumes the run and another tries again."""
    if pace.nan_at is None and pace.crash_at is None:
        return
    for number, (share, verb) in enumerate(((0.5, "run"), (1.0, "run"), (1.5, "resume"), (1.6, "run")), 500):
        yield Order(number, begin + share * length, random.randrange(3), random.choice(ACCOUNTS), 0, verb, 1800.0)


def _crowd(fleet: Fleet, begin: float, length: float) -> None:
    """Where many reads are bad, more people start commands, so that some command meets a bad read."""
    random = Random(f"crowd {fleet.seed}")
    for number in range(700, 700 + random.choice((4, 8))):
        at = begin + random.uniform(0.0, length) + random.choice((0.0, 0.0, 1800.0, 2 * 3600.0))
        verb = random.choice(("run", "run", "run", "run", "register", "verify", "push"))
        order = Order(number, at, random.randrange(3), random.choice(ACCOUNTS), random.randrange(4), verb, 7200.0)
        fleet.world.at(at, lambda one=order: _carry_out(fleet, one))


def _put_away(fleet: Fleet, begin: float, length: float) -> None:
    """In some worlds a person archives a run, and deletes it a day later while others sleep."""
    random = Random(f"away {fleet.seed}")
    for number, (at, verb, run) in enumerate(resting.wishes(fleet.seed, begin, length), 600):
        order = Order(number, at, random.randrange(3), random.choice(ACCOUNTS), run, verb, 600.0)
        fleet.world.at(at, lambda one=order: _carry_out(fleet, one))
        if number == 600:
            fleet.world.at(at - 1.0, lambda: resting.send_to_sleep(fleet, fleet.seed))


def _carry_out(fleet: Fleet, order: Order) -> None:
    if order.verb != "damage":
        fleet.start(order)
        return
    random = Random(f"{fleet.seed}/{order.number}")
    run = fleet.oracle.runs[PROJECT, fleet.runs[order.run % len(fleet.runs)]]
    if not run.retained:
        return
    key = run.retained[-1] if random.random() < 0.85 else random.choice(run.retained)
    fleet.oracle.damage(run, random.choice(sorted(run.named[key])), random.choice((b"", b"{}", None)))


def _fast_disk() -> str | None:
    """Memory as a disk where there is one: the simulation cuts no power, so nothing need be durable."""
    shm = Path("/dev/shm")
    return str(shm) if shm.is_dir() and os.access(shm, os.W_OK) else None
