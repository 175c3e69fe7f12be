"""From every world, with no more faults: each session alone comes to its end, and a newcomer alone gets work done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.model.invariants import broken_by, broken_in
from tests.model.product import NOBODY, OTHER
from tests.model.protocol import Protocol
from tests.model.step import Step
from tests.model.world import IDLE, Session, World, seen_by

LONGEST = 40
"""Steps after which a session that is alone counts as one that never ends: what is left of several sessions to delete
takes one each."""


class Progress:
    """Asks this of worlds, and remembers the answers: they depend on little of a world."""

    def __init__(self, model: Protocol) -> None:
        bounds = model.bounds
        self.model = type(model)(
            replace(bounds, epochs=bounds.epochs + 2, step=bounds.step + 2, slots=bounds.slots + LONGEST)
        )
        self._known: dict[Any, str | None] = {}

    def __call__(self, world: World) -> str | None:
        """The reason why something cannot go on in this world, None if everything can."""
        return self._newcomer(world) or next(
            (text for who in range(len(world.sessions)) if (text := self._alone(world, who))), None
        )

    def _alone(self, world: World, who: int) -> str | None:
        session = world.sessions[who]
        if session is IDLE:
            return None
        files = world.files if session.phase in ("looking", "restoring") else None
        over = (world.files, world.slot) if session.over else None
        key = session, seen_by(world.tail, who), files, world.rotten, bool(world.hole), over
        return self._remembered(key, lambda: self._ends(world, who))

    def _ends(self, world: World, who: int) -> str | None:
        """No other session moves: it releases its lease, or finds that it has lost it."""
        for _ in range(LONGEST):
            session = world.sessions[who]
            if session.phase == "idle":
                return None
            steps = [step for step in self.model.of_session(world, who) if not step.fault]
            world = steps[0 if session.unsure else -1].world
        return f"progress: session {who} alone, in phase {session.phase}, never ends"

    def _newcomer(self, world: World) -> str | None:
        if world.hole:
            return None  # an entry was lost: a person has to restore it, and every newcomer reports that (65)
        tail = world.tail if world.tail.holder == NOBODY else world.tail._replace(holder=OTHER)
        alone = world._replace(tail=tail, under=None, sessions=(IDLE,), flights=(), drifting=frozenset())
        return self._remembered((tail, world.files, world.rotten), lambda: self._works(alone))

    def _works(self, world: World) -> str | None:
        """A fresh process takes the lease, restores, commits a step, retires and deletes due files, and releases."""
        begun = world.tail
        for _ in range(LONGEST):
            step = self._next(world, world.sessions[0], begun.epoch)
            problem = broken_by(world, step) or broken_in(step.world)
            if problem:
                return f"progress: a newcomer alone: {step.text}: {problem}"
            world = step.world
            if world.sessions[0] is IDLE:
                break
        if world.tail.holder != NOBODY or not world.tail.committed or world.tail.epoch <= begun.epoch:
            return "progress: a newcomer alone cannot commit and release"
        return None

    def _next(self, world: World, session: Session, begun: int) -> Step:
        """One step, first of all one that trains; after its commit, one that does not."""
        steps = [step for step in self.model.of_session(world, 0) if not step.fault]
        done = world.tail.epoch > begun and world.tail.committed
        if done and session.phase == "training":
            return steps[1]
        return steps[0]

    def _remembered(self, key: Any, answer: Callable[[], str | None]) -> str | None:
        if key not in self._known:
            self._known[key] = answer()
        return self._known[key]
