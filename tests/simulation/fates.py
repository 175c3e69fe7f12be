"""Draws the faults of one simulated process when it starts; does not follow its actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from relay.core.checkpoint.retention import Keep
from tests.simulation.actor import Fate
from tests.simulation.workload import Crash

if TYPE_CHECKING:
    from tests.simulation.fleet import Command


def draw_fate(one: Command) -> None:
    """All of it is drawn at the start, so that a seed repeats it."""
    if one.fleet.pace.nan_at is not None:
        one.workload.nan_at = one.fleet.pace.nan_at
    if one.fleet.pace.crash_at is not None:
        one.workload.crash = {one.fleet.pace.crash_at: Crash("a bug")}
    random, likely = one.random, one.fleet.pace.target * one.fleet.pace.step_s
    for odds, befall in (
        (0.18, _killed_at_a_time),
        (0.25, _killed_at_a_call),
        (0.22, _suspended),
        (0.15, _signalled),
        (0.20, _budgeted),
        (0.05, _non_finite),
        (0.05, _crashes),
        (0.08, _impure),
        (0.06, _out_of_disk),
    ):
        if random.random() < odds:
            befall(one, likely)
    if random.random() < 0.3:
        one.evaluate_every = random.choice((1, 2, 4))
    one.keep = Keep(random.choice((2, 2, 3, 5)), random.choice((0, 0, one.every * 2)))
    if random.random() < 0.2:
        one.every = max(1, one.every // 2)


def _later(one: Command, most_s: float, what: str, do: Callable[[], None]) -> None:
    def happen() -> None:
        if one.actor.alive:
            one.fleet.trace.note(one.fleet.world.now, one.actor.name, what)
            one.fleet.summary.faults[what.partition(" ")[0]] += 1
            do()

    one.fleet.world.at(one.fleet.world.now + one.random.uniform(0.0, most_s), happen)


def _killed_at_a_time(one: Command, likely: float) -> None:
    _later(one, likely, "killed", lambda: one.actor.die(one.fleet.world.now))


def _killed_at_a_call(one: Command, likely: float) -> None:
    one.actor.fate = Fate.drawn(one.random)


def _suspended(one: Command, likely: float) -> None:
    for _ in range(one.random.choice((1, 1, 3))):
        seconds = one.random.choice((20.0, one.fleet.pace.ttl_s, 3 * one.fleet.pace.ttl_s, 3600.0, 4 * 3600.0))
        _later(one, likely, f"sleeps {seconds:.0f} s", lambda s=seconds: _sleep(one, s))


def _sleep(one: Command, seconds: float) -> None:
    one.process.suspend(seconds)
    one.actor.troubled_at = one.actor.woke_at = one.fleet.world.now + seconds


def _signalled(one: Command, likely: float) -> None:
    reason = one.random.choice(("sigterm", "sigint", "stop"))
    for _ in range(one.random.choice((1, 2))):
        _later(one, likely, f"signal-{reason}", lambda: one.signal.ask(reason))


def _budgeted(one: Command, likely: float) -> None:
    one.budget_s = one.random.uniform(20.0, max(60.0, likely))
    one.fleet.summary.faults["budget"] += 1


def _non_finite(one: Command, likely: float) -> None:
    one.workload.nan_at = one.random.randrange(1, one.fleet.pace.target)
    one.fleet.summary.faults["non-finite"] += 1


def _crashes(one: Command, likely: float) -> None:
    step = one.random.randrange(one.fleet.pace.target)
    one.workload.crash = {step: Crash("as planned")}
    one.fleet.summary.faults["crashes"] += 1


def _impure(one: Command, likely: float) -> None:
    one.fleet.summary.faults["other-device"] += 1
    if one.random.random() < 0.5:
        one.workload.impure = one.actor.impure = 1
    else:
        one.workload.path = one.actor.path = "other"
    one.workload.environment = {"device": "other"}


def _out_of_disk(one: Command, likely: float) -> None:
    begin = one.fleet.world.now + one.random.choice((0.0, one.random.uniform(0.0, likely)))
    one.full_disk = (begin, begin + one.random.choice((10.0, 300.0, 1e6)))
