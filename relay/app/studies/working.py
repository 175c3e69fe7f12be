"""The loop of `study run`: pick a run, start a session of it as a process, read its exit code, go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.app.messages.wording import counted
from relay.app.studies.experiments import Design, StudyRun
from relay.app.studies.picking import Passed, Seen, Turn, Turns, turns
from relay.core.errors import Exit

KINDS = ("snapshot", "save", "upload", "append")
"""The parts of a commit whose durations a run's metrics hold (relay/core/budget.py)."""
OF_THE_RUN = (Exit.OK, Exit.BAD_DATA, Exit.BUG)
"""Exit codes that pass by one run. Codes that are none of the relay's, such as a kill's, do so too."""
LEAST_S = 5.0
"""No session begins with less time, even if no start was measured yet."""
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
    start: Callable[[Sequence[str]], Ended]
    """Runs one command of this program as a process."""
    left_s: Callable[[], float]
    """Seconds of the budget that are left; infinite without one."""
    tell: Callable[[str], None]
    relay: Sequence[str] = ()
    """Options and settings of the relay for every session."""
    filed: frozenset[str] = frozenset()
    """Settings of the model that a configuration file sets."""
    inits: bool = False
    """Whether a run of this store must be begun before its first session."""
    passed: Passed = field(default_factory=Passed)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    _overhead_s: float = 0.0
    """Seconds of the newest session outside training."""
    _refused: int = 0

    def work(self) -> tuple[int, Turns]:
        """Train until no run is free or the budget ends; the exit code and the runs that are left."""
        while True:
            found = self._turns()
            if not found.free:
                return found.exit_code, found
            turn, run = found.free[0], found.free[0].run
            if self.left_s() <= self._needed_s(turn):
                return Exit.HANDOFF, found
            if turn.state and (changed := self.differs(run)):
                self.passed.changed[run.name] = changed
                continue
            step = turn.state.step if turn.state else 0
            free = counted(len(found.free), "run")
            todo = ", its test is missing" if turn.trained else ""
            self.tell(f"{run.name}: step {step:,} of {run.point.steps:,}{todo}; {free} can be trained now.")
            if (code := self._train(turn)) is not None:
                return code, self._turns()

    def _turns(self) -> Turns:
        return turns(self.design, self.runs, self.read(self.passed.done), self.passed)

    def _needed_s(self, turn: Turn) -> float:
        """Seconds of a start and two commits, as far as they were measured."""
        metrics = turn.state.metrics if turn.state else {}
        return max(LEAST_S, self._overhead_s + sum(metrics.get(f"{kind}_s", 0.0) for kind in KINDS))

    def _train(self, turn: Turn) -> int | None:
        """Train one session; the code with which the command ends, None to go on."""
        run = turn.run
        if turn.state is None and (words := self._beginning(run)):
            begun = self.start(words)
            if begun.code:  # another session may have begun it
                return None if self.read(self.passed.done).state(run) else self._failed(run, begun)
        ended = self.start(self._session(turn))
        document, reached = ended.document, ended.document.get("durable_step")
        of = {"run": run.name, "experiment": run.point.name, "seed": run.seed, "exit_code": ended.code}
        steps = {"from_step": document.get("from_step"), "durable_step": reached, "train_s": document.get("train_s")}
        self.sessions.append({**of, **steps, "seconds": round(ended.seconds, 3), "message": ended.message})
        self.tell(f"{run.name}: {ended.message}")
        if "train_s" in document:
            self._overhead_s = max(0.0, ended.seconds - float(document["train_s"]))
        if turn.trained and ended.code == Exit.BAD_CONFIG and document.get("untested"):
            code = Exit.HANDOFF if len(self.sessions) > 1 else ended.code  # a new command has more time for this test
            self.passed.failed[run.name] = code, ended.message
            return None
        if ended.code == Exit.OK and isinstance(reached, int) and reached >= run.point.steps:
            self.passed.done[run.name], self._refused = reached, 0
            return None
        return self._failed(run, ended)

    def _failed(self, run: StudyRun, ended: Ended) -> int | None:
        """Pass by a run whose session did not reach its target; the code with which the command ends, if it must."""
        code, seen = ended.code, self.read(self.passed.done)
        holder = seen.holder(run)
        if code in (Exit.LEASE_HELD, Exit.FENCED):
            self._refused += code == Exit.LEASE_HELD and holder is None
            self.passed.lost[run.name] = holder or "another session"
            return code if self._refused >= REFUSALS else None
        archived = any(not one.code for one in turns(self.design, [run], seen, self.passed).left)
        if code == Exit.POLICY and archived:
            return None
        if code in set(Exit) - set(OF_THE_RUN):
            return code
        self.passed.failed[run.name] = code if code == Exit.BAD_DATA else Exit.BUG, ended.message
        return None

    def _beginning(self, run: StudyRun) -> list[str]:
        """The command that begins a run; none where its first session does."""
        if parent := self.design.parent(run):
            step = str(parent.point.steps)
            return ["fork", "--run", parent.name, "--to", run.name, "--from-step", step, *self._common()]
        if self.inits:
            return ["init", "--run", run.name, *self._common(), *self.design.overrides(run, self.filed)]
        return []

    def _session(self, turn: Turn) -> list[str]:
        run, steps, left, study = turn.run, turn.run.point.steps, self.left_s(), self.design.study
        reaches = turn.state is not None and turn.state.target_steps >= steps
        return [
            *("run", "--run", run.name, "--account", self.account, "--new"),
            *(() if reaches else ("--target-steps", str(steps))),
            *(() if math.isinf(left) else ("--budget-minutes", f"{left / 60:.4f}")),
            *self._common(),
            f"evaluation.test_rows={study.test_rows}",
            f"evaluation.test_also={','.join(self.design.readings(run))}",
            *self.design.overrides(run, self.filed),
        ]

    def _common(self) -> list[str]:
        return [*self.relay, f"project={self.design.project}"]
