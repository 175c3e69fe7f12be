"""Chooses the next run of a study, and says why the others are left. Pure: the lease decides who really trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from relay.app.studies.experiments import Design, StudyRun
from relay.core.errors import Exit
from relay.core.ledger.atrest import RunHalted, stopped
from relay.core.ledger.state import RunState
from relay.core.runs.registered import RegisteredRun


class Why(StrEnum):
    """Why a run is not trained now."""

    DONE = "done"
    HELD = "held"
    WAITS = "waits"
    """For the run that it continues."""
    HALTED = "halted"
    UNREADABLE = "unreadable"
    ARCHIVED = "archived"
    CHANGED = "changed"
    """It pinned other settings than the study's file has now."""
    FAILED = "failed"
    """Its session failed in this command."""


CODES = {
    Why.DONE: Exit.OK,
    Why.ARCHIVED: Exit.OK,
    Why.HELD: Exit.LEASE_HELD,
    Why.WAITS: Exit.LEASE_HELD,
    Why.CHANGED: Exit.BAD_CONFIG,
}
"""Exit codes for runs that are left; BAD_DATA for others."""


@dataclass(frozen=True)
class Seen:
    """The runs of a study's project as a command read them."""

    runs: Mapping[str, RegisteredRun]
    now: float
    """Store's clock."""
    is_dead: Callable[[str], bool] = lambda session: False
    """Whether a session ran on this machine and is gone."""

    def state(self, run: StudyRun) -> RunState | None:
        """The run's newest state; None if it has not begun or cannot be read."""
        known = self.runs.get(run.name)
        return known.found.state if known and known.found else None

    def holder(self, run: StudyRun) -> str | None:
        """The account whose session trains the run."""
        known = self.runs.get(run.name)
        holder = known.found.state.holder if known and known.found else None
        if holder is None or known is None or known.found is None or self.is_dead(holder.session):
            return None
        return known.found.training(self.now)


@dataclass(frozen=True)
class Left:
    """A run that is not trained now."""

    run: StudyRun
    why: Why
    detail: str = ""
    """The account that holds it, the run for which it waits, or what is wrong."""
    step: int = 0
    code: int = Exit.OK


@dataclass(frozen=True)
class Turn:
    """A run to train now; `state` is None if it has not begun."""

    run: StudyRun
    state: RunState | None


@dataclass(frozen=True)
class Turns:
    """The runs that a session can take, in order, and the others."""

    free: tuple[Turn, ...]
    left: tuple[Left, ...]

    @property
    def exit_code(self) -> int:
        """When no run is free: 73 if others hold one, otherwise the first that is wrong; 0 if all are done."""
        codes = [one.code for one in self.left if one.code]
        return Exit.LEASE_HELD if Exit.LEASE_HELD in codes else next(iter(codes), Exit.OK)


@dataclass
class Passed:
    """Runs that this command does not try again, by name."""

    done: dict[str, int] = field(default_factory=dict)
    """At their target, with their step."""
    lost: dict[str, str] = field(default_factory=dict)
    """Another session took them first."""
    changed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Exit code and message."""


def turns(design: Design, runs: Iterable[StudyRun], seen: Seen, passed: Passed) -> Turns:
    """Order: runs that have begun, then by seed, then controls before the experiments that are compared with them."""
    free: list[tuple[bool, int, Turn]] = []
    left = list[Left]()
    for place, run in enumerate(runs):
        state = seen.state(run)
        if state and is_done(run, state):
            passed.done[run.name] = state.step
        if (found := _left(design, run, seen, passed)) is not None:
            left.append(found)
        else:
            free.append((state is None, place, Turn(run, state)))
    return Turns(tuple(turn for *_, turn in sorted(free, key=lambda one: one[:2])), tuple(left))


def is_done(run: StudyRun, state: RunState) -> bool:
    """Whether the run has reached its experiment's steps."""
    return state.step >= run.point.steps


def _left(design: Design, run: StudyRun, seen: Seen, passed: Passed) -> Left | None:
    """Why a run is left; None if a session can take it."""
    name, known, state = run.name, seen.runs.get(run.name), seen.state(run)
    step = state.step if state else 0

    def left(why: Why, detail: str = "", code: int | None = None) -> Left:
        return Left(run, why, detail, step, CODES.get(why, Exit.BAD_DATA) if code is None else code)

    if name in passed.done:
        return Left(run, Why.DONE, step=passed.done[name])
    if known and known.trouble:
        return left(Why.UNREADABLE, str(known.trouble))
    if state and (error := stopped(state)) is not None:
        return left(Why.HALTED, error.advice) if isinstance(error, RunHalted) else left(Why.ARCHIVED)
    if holder := seen.holder(run):
        return left(Why.HELD, holder)
    if name in passed.failed:
        code, message = passed.failed[name]
        return left(Why.FAILED, message, code)
    if name in passed.changed:
        return left(Why.CHANGED, passed.changed[name])
    if name in passed.lost:
        return left(Why.HELD, passed.lost[name])
    parent = design.parent(run)
    if state is None and parent and parent.name not in passed.done:
        before = seen.state(parent)
        if before is None or not is_done(parent, before):
            return left(Why.WAITS, parent.name)
    return None
