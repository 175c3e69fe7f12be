"""Chooses the next run of a study, and says why the others are left. Pure: the lease decides who really trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
    **dict.fromkeys((Why.DONE, Why.ARCHIVED), Exit.OK),
    **dict.fromkeys((Why.HELD, Why.WAITS), Exit.LEASE_HELD),
    **dict.fromkeys((Why.HALTED, Why.UNREADABLE), Exit.BAD_DATA),
    Why.CHANGED: Exit.BAD_CONFIG,
}
"""Exit codes for runs that are left; a failed session has its own."""


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
        found = known.found if known else None
        dead = found and found.state.holder and self.is_dead(found.state.holder.session)
        return None if found is None or dead else found.training(self.now)


@dataclass(frozen=True)
class Left:
    """A run that is not trained now."""

    run: StudyRun
    why: Why
    detail: str = ""
    """The account that holds it, the run for which it waits, or what is wrong."""
    step: int = 0
    code: int = Exit.OK

    def document(self) -> dict[str, Any]:
        """One item of `left` in relay.study/1."""
        run = {"run": self.run.name, "experiment": self.run.point.name, "seed": self.run.seed}
        why = {"why": str(self.why), "detail": self.detail or None}
        return {**run, **why, "step": self.step, "target_steps": self.run.point.steps}


@dataclass(frozen=True)
class Turn:
    """A run to train now; `state` is None if it has not begun."""

    run: StudyRun
    state: RunState | None

    @property
    def trained(self) -> bool:
        """Whether only its test is missing."""
        return self.state is not None and self.state.step >= self.run.point.steps


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

    def lines(self) -> list[str]:
        """The runs that are left and not done, one line for each reason."""
        lines: dict[str, list[str]] = {}
        for one in self.left:
            if one.why is not Why.DONE:
                lines.setdefault(f"{one.why}{f' ({one.detail})' if one.detail else ''}", []).append(one.run.name)
        return [f"{why}: {', '.join(names)}" for why, names in lines.items()]


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
    """Order: runs that have begun, then by seed, then controls before the experiments that are compared with them.

    Runs that only lack their test come last: a budget that is too short for it must not keep the others from training.
    """
    free, left = list[Turn](), list[Left]()
    for run in runs:
        state = seen.state(run)
        if state and state.step >= run.point.steps and not design.untested(run, state):
            passed.done[run.name] = state.step
        found = _why_left(design, run, seen, passed)
        if found is None:
            free.append(Turn(run, state))
            continue
        why, detail = found
        code = passed.failed[run.name][0] if why is Why.FAILED else CODES[why]
        left.append(Left(run, why, detail, passed.done.get(run.name, state.step if state else 0), code))
    return Turns(tuple(sorted(free, key=lambda turn: (turn.trained, turn.state is None))), tuple(left))


def _why_left(design: Design, run: StudyRun, seen: Seen, passed: Passed) -> tuple[Why, str] | None:
    """Why a run is left, and the detail; None if a session can take it."""
    name, known, state, parent = run.name, seen.runs.get(run.name), seen.state(run), design.parent(run)
    if name in passed.done:
        return Why.DONE, ""
    if known and known.trouble:
        return Why.UNREADABLE, str(known.trouble)
    if state and (error := stopped(state)) is not None:
        return (Why.HALTED, error.advice) if isinstance(error, RunHalted) else (Why.ARCHIVED, "")
    if holder := seen.holder(run):
        return Why.HELD, holder
    if name in passed.failed:
        return Why.FAILED, passed.failed[name][1]
    if name in passed.changed:
        return Why.CHANGED, passed.changed[name]
    if name in passed.lost:
        return Why.HELD, passed.lost[name]
    if state is None and parent and parent.name not in passed.done:
        before = seen.state(parent)
        return (Why.WAITS, parent.name) if before is None or before.step < parent.point.steps else None
    return None
