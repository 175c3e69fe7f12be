"""Visits every world within bounds, breadth first, and returns the shortest way to a broken one; knows no protocol."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.invariants import broken_by, broken_in
from tests.model.protocol import Protocol
from tests.model.step import Bounds, Step, line
from tests.model.world import World, canonical


@dataclass
class Found:
    """The result of a search."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    broken: str | None = None
    """What does not hold, None if everything does."""
    trace: tuple[str, ...] = ()
    """The shortest way there."""

    def __str__(self) -> str:
        counts = f"{self.states:,} states, {self.transitions:,} transitions, depth {self.depth}"
        if self.broken is None:
            return f"{counts}: every invariant holds"
        return f"{counts}\n{self.broken}\n" + "\n".join(f"{n:3}. {line}" for n, line in enumerate(self.trace, 1))


@dataclass
class Teller:
    """Prints a search's progress in one line now and then: a search of an hour must not look like one that hangs."""

    say: Callable[[str], None]
    name: str = ""
    every: float = 30.0
    """Seconds between two lines."""
    _began: float = field(default_factory=time.monotonic)
    _said: float = field(default_factory=time.monotonic)

    def on_the_way(self, found: Found, states: int, waiting: int) -> None:
        """`states` were met so far; `waiting` of them are still to be followed, on this level and the next."""
        now = time.monotonic()
        if now - self._said >= self.every:
            self._said, seconds = now, max(1e-3, now - self._began)
            self.say(
                f"model, {self.name}: {seconds:,.0f} s: {states:,} states, {waiting:,} of them to follow,"
                f" {found.transitions:,} transitions, depth {found.depth}, {states / seconds:,.0f} states/s"
            )

    def at_the_end(self, found: Found, bounds: Bounds) -> None:
        """The result of the search."""
        self.say(f"model, {self.name} ({bounds}), {time.monotonic() - self._began:,.0f} s: {found}")


def search(
    model: Protocol,
    check: Callable[[World], str | None] = lambda world: None,
    most: int = 30_000_000,
    teller: Teller | None = None,
) -> Found:
    """Every world reachable from the first one, up to the names of equal sessions.

    `check` is asked once per world, after the invariants. Raises OverflowError past `most` worlds.
    """
    teller = teller or Teller(lambda line: None)
    gc.disable()  # nothing of a search is garbage, and looking for it takes a third of the time
    try:
        found = _search(model, check, most, teller)
    finally:
        gc.enable()
    teller.at_the_end(found, model.bounds)
    return found


def _search(model: Protocol, check: Callable[[World], str | None], most: int, teller: Teller) -> Found:
    first = canonical(model.first())
    came: dict[World, World | None] = {first: None}
    met: set[World] = set()  # as the steps left them: most are met again, and need no second sorting
    found, level = Found(), [first]
    while level:
        level, before = [], level
        for number, world in enumerate(before):
            teller.on_the_way(found, len(came), len(before) - number + len(level))
            for step in model.steps(world):
                found.transitions += 1
                found.broken = broken_by(world, step)
                if step.world not in met and found.broken is None:
                    met.add(step.world)
                    after = canonical(step.world)
                    if after not in came:
                        found.broken = broken_in(after) or check(after)
                        came[after] = world
                        level.append(after)
                if found.broken:
                    return _told(model, found, _way(came, world), check)
            if len(came) > most:
                raise OverflowError(f"more than {most:,} worlds")
        found.states, found.depth = len(came), found.depth + bool(level)
    return found


def _told(model: Protocol, found: Found, way: list[World], check: Callable[[World], str | None]) -> Found:
    """The broken invariant, and the shortest way to it."""
    found.trace = _trace(model, way, found.broken or "", check)
    return found


def _way(came: dict[World, World | None], world: World | None) -> list[World]:
    """The worlds from the first one to this one."""
    way: list[World] = []
    while world is not None:
        way.append(world)
        world = came[world]
    return way[::-1]


def _trace(model: Protocol, way: list[World], problem: str, check: Callable[[World], str | None]) -> tuple[str, ...]:
    """The steps along that way and into the broken world, each session under one name throughout."""
    world, lines = model.first(), []
    for target in way[1:]:
        step = next(step for step in model.steps(world) if canonical(step.world) == target)
        lines.append(line(step))
        world = step.world
    last = next(step for step in model.steps(world) if problem in _problems(world, step, check))
    return (*lines, line(last))


def _problems(world: World, step: Step, check: Callable[[World], str | None]) -> tuple[str | None, ...]:
    after = canonical(step.world)
    return broken_by(world, step), broken_in(after), check(after)
