"""The loop of `study run`: pick a run, start a session of it as a process, read its exit code, go on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.app.messages.wording import counted
from relay.app.studies.experiments import Design, StudyRun
from relay.app.studies.picking import Left, Passed, Seen, Turn, Turns, turns
from relay.core.errors import Exit

KINDS = ("snapshot", "save", "upload", "append")
"""The parts of a commit whose durations a run's metrics hold (relay/core/budget.py)."""
GOES_ON = (Exit.OK, Exit.BAD_DATA, Exit.LEASE_HELD, Exit.FENCED, Exit.BUG)
"""Exit codes of a session that concern its run alone."""
REFUSALS = 2
"""After so many refusals (73) of runs that no session holds, the account itself is at another run."""


@dataclass(frozen=True)
class Ended:
    """A session's exit code, its document (relay.run/1 or relay.error/1, empty after a crash), and its seconds."""

    code: int
    document: dict[str, Any]
    seconds: float = 0.0

    @property
    def message(self) -> str:
        """What the session said at its end."""
        return str(self.document.get("message") or f"its process ended with code {self.code}")


Start = Callable[[Sequence[str]], Ended]
"""Runs one command of this program as a process."""


@dataclass
class Worker:
    """One `study run`."""

    design: Design
    runs: Sequence[StudyRun]
    account: str
    read: Callable[[Collection[str]], Seen]
    """Reads the project's runs, without those named."""
    differs: Callable[[StudyRun], str]
    """The settings in which a begun run differs from the study's file; '' for none."""
    start: Start
    left_s: Callable[[], float]
    """Seconds of the budget that are left; infinite without one."""
    tell: Callable[[str], None]
    relay: Sequence[str] = ()
    """Settings of the relay for every session."""
    filed: frozenset[str] = frozenset()
    """Settings of the model that a configuration file sets."""
    options: Sequence[str] = ()
    """More options of every session."""
    passed: Passed = field(default_factory=Passed)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    _overhead_s: float = 0.0
    """Seconds of the newest session outside training."""
    _refused: int = 0

    def work(self) -> tuple[int, Turns]:
        """Train until no run is free or the budget ends; the exit code and the runs that are left."""
        while True:
            seen = self.read(self.passed.done)
            found = turns(self.design, self.runs, seen, self.passed)
            if not found.free:
                return found.exit_code, found
            turn = found.free[0]
            if self.left_s() <= self._needed_s(turn):
                return Exit.HANDOFF, found
            if turn.state and (changed := self.differs(turn.run)):
                self.passed.changed[turn.run.name] = changed
                continue
            code = self._train(turn, len(found.free))
            if code is not None:
                return code, turns(self.design, self.runs, self.read(self.passed.done), self.passed)

    def _needed_s(self, turn: Turn) -> float:
        """Seconds of a start and two commits, as far as they were measured."""
        metrics = turn.state.metrics if turn.state else {}
        return self._overhead_s + sum(metrics.get(f"{kind}_s", 0.0) for kind in KINDS)

    def _train(self, turn: Turn, free: int) -> int | None:
        """Train one session; the code with which the command ends, None to go on."""
        run = turn.run
        step = turn.state.step if turn.state else 0
        self.tell(f"{run.name}: step {step:,} of {run.point.steps:,}; {counted(free, 'run')} can be trained now.")
        if turn.state is None and (parent := self.design.parent(run)):
            forked = self.start(self._fork(run, parent))
            if forked.code:  # another session may have begun it
                return None if self.read(self.passed.done).state(run) else self._failed(run, forked)
        ended = self.start(self._session(turn))
        document = ended.document
        reached = document.get("durable_step")
        self.sessions.append(
            {
                "run": run.name,
                "experiment": run.point.name,
                "seed": run.seed,
                "exit_code": ended.code,
                "from_step": document.get("from_step"),
                "durable_step": reached,
                "seconds": round(ended.seconds, 3),
                "message": ended.message,
            }
        )
        self.tell(f"{run.name}: {ended.message}")
        if "train_s" in document:
            self._overhead_s = max(0.0, ended.seconds - float(document["train_s"]))
        if ended.code == Exit.OK and isinstance(reached, int) and reached >= run.point.steps:
            self.passed.done[run.name] = reached
            self._refused = 0
            return None
        return self._failed(run, ended)

    def _failed(self, run: StudyRun, ended: Ended) -> int | None:
        """Pass by a run whose session did not reach its target; the code with which the command ends, if it must."""
        code, seen = ended.code, self.read(self.passed.done)
        if code == Exit.LEASE_HELD and seen.holder(run) is None:
            self._refused += 1
            if self._refused >= REFUSALS:
                return code
        if code in (Exit.LEASE_HELD, Exit.FENCED):
            self.passed.lost[run.name] = seen.holder(run) or "another session"
            return None
        rests = any(one.run is run and one.code == 0 for one in turns(self.design, [run], seen, self.passed).left)
        if code == Exit.POLICY and rests:  # archived meanwhile
            return None
        if code not in GOES_ON and code in set(Exit):
            return code
        known = code if code in set(Exit) and code else int(Exit.BUG)
        self.passed.failed[run.name] = known, ended.message
        return None

    def _session(self, turn: Turn) -> list[str]:
        run, steps = turn.run, turn.run.point.steps
        target = [] if turn.state and turn.state.target_steps >= steps else ["--target-steps", str(steps)]
        left = self.left_s()
        budget = [] if left == float("inf") else ["--budget-minutes", f"{left / 60:.4f}"]
        also = self.design.readings(run)
        return [
            *("run", "--run", run.name, "--account", self.account, "--new", *target, *budget, *self._common()),
            *(f"evaluation.test_rows={self.design.study.test_rows}", f"evaluation.test_also={','.join(also)}"),
            *self.design.overrides(run, self.filed),
        ]

    def _fork(self, run: StudyRun, parent: StudyRun) -> list[str]:
        at = str(parent.point.steps)
        return ["fork", "--run", parent.name, "--to", run.name, "--from-step", at, *self._common()]

    def _common(self) -> list[str]:
        return [*self.options, f"project={self.design.project}", *self.relay]


def left_lines(left: Sequence[Left]) -> list[str]:
    """The runs that are left, one line for each reason."""
    lines: dict[tuple[str, str], list[str]] = {}
    for one in left:
        lines.setdefault((one.why, one.detail), []).append(one.run.name)
    return [f"{why}{f' ({detail})' if detail else ''}: {', '.join(names)}" for (why, detail), names in lines.items()]


def left_rows(left: Sequence[Left]) -> list[dict[str, Any]]:
    """The runs that are left, for relay.study/1."""
    return [
        {
            "run": one.run.name,
            "experiment": one.run.point.name,
            "seed": one.run.seed,
            "why": str(one.why),
            "detail": one.detail or None,
            "step": one.step,
            "target_steps": one.run.point.steps,
        }
        for one in left
    ]
