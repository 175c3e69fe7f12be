"""Two people work off a study in short sessions that are killed at random; every run has the bytes of an unbroken one.

    python -m tests.study_proof [--steps 400] [--budget-minutes 1.5] [--folder DIR]

Part of `make accept`. RELAY_SEED repeats the budgets and kills of an earlier proof.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from relay.app.models.trm import Trm
from relay.app.studies.experiments import Design, StudyRun, resolve
from relay.app.studies.studyfile import load
from relay.core.clock import RealRuntime
from relay.core.ledger.state import RunState
from relay.core.runs.opening import Pair
from relay.core.runs.registered import listed_runs
from storage.base import open_store

ROOT = Path(__file__).parents[1]
STUDY = "sudoku4_ablation"
PEOPLE = ("ana", "ben")
TTL_S = 20
"""A killed session keeps its run for this long: another person does not know that it is dead."""


@dataclass
class Proof:
    """The store, and what was done to it."""

    folder: Path
    steps: int
    budget_minutes: float
    dice: random.Random
    kills: int = 0
    turns: int = 0
    sessions: list[dict[str, object]] = field(default_factory=list)

    @property
    def store(self) -> str:
        return (self.folder / "store").as_uri()

    def command(self, person: str, *words: str) -> subprocess.Popen[str]:
        """A command on that person's own machine, in a process group of its own."""
        home = self.folder / person
        home.mkdir(parents=True, exist_ok=True)
        environ = {"HOME": str(home), "RELAY_STORE": self.store, "RELAY_EPHEMERAL": "1", "PYTHONPATH": str(ROOT)}
        given = {key: value for key, value in os.environ.items() if not key.startswith(("RELAY_", "XDG_"))}
        return subprocess.Popen(
            [sys.executable, "-m", "relay.app.cli", *words, "--steps", str(self.steps), "--json"],
            cwd=home,
            env={**given, **environ},
            stdout=subprocess.PIPE,
            stderr=(home / "log.txt").open("a"),
            text=True,
            start_new_session=True,
        )

    def answer(self, *words: str) -> dict[str, object]:
        """The document of a command that must succeed."""
        with self.command(PEOPLE[0], *words) as process:
            out = process.communicate()[0]
        assert process.returncode == 0, (words, out)
        return dict(json.loads(out))

    def turn(self, person: str) -> int:
        """One `study run`, killed at a random moment in two of three turns; its exit code."""
        self.turns += 1
        budget = self.dice.uniform(0.5, 1.0) * self.budget_minutes
        kill_s = self.dice.uniform(5, 60 * budget) if self.turns % 3 else None
        settings = (f"lease.ttl_s={TTL_S}", "checkpoint.every_steps=50", "evaluation.every_commits=2", "device=cpu")
        words = ("study", "run", STUDY, *settings, "--account", person, "--budget-minutes", f"{budget:.3f}")
        with self.command(person, *words) as process:
            try:
                out = process.communicate(timeout=kill_s)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                self.kills += 1
                return -signal.SIGKILL
        document = json.loads(out)
        self.sessions += document.get("sessions", [])
        return process.returncode

    def states(self, project: str) -> dict[str, RunState]:
        """The runs' newest states."""
        store = open_store(self.store, read_only=True)
        found = listed_runs(Pair(store, store, RealRuntime(), "0" * 32), project)
        return {name: one.found.state for name, one in found.items() if one.found}


def unbroken(run: StudyRun, design: Design, folder: Path) -> str:
    """The digest of the run's target, trained in one go in this process, a continuation from step 0."""
    config = run.point.config.model_copy(update={"seed": run.seed})
    workload = design.plugin.build(config, "cpu", folder)
    workload.start()
    workload.advance(run.point.steps, lambda: False, None)
    return workload.digest().digest


def prove(proof: Proof) -> str:
    """Work off the study, compare each run, and draw the table; a line for the record."""
    began = time.monotonic()
    design = resolve(load(STUDY, ROOT), Trm(), steps=proof.steps)
    runs = {run.name: run for run in design.runs(design.points.values())}
    code = -1
    while code != 0:
        person = PEOPLE[proof.turns % len(PEOPLE)]
        code = proof.turn(person)
        done = sum(state.step >= runs[name].point.steps for name, state in proof.states(design.project).items())
        print(f"{time.monotonic() - began:5.0f} s  {person}: exit {code}, {done} of {len(runs)} runs done", flush=True)
        assert code in (0, 73, 75, -signal.SIGKILL), (proof.folder / person / "log.txt").read_text()[-3000:]
        if code == 73:
            time.sleep(TTL_S / 4)
    states = proof.states(design.project)
    assert states.keys() == runs.keys(), "each point is one run"
    for name, run in runs.items():
        state, digest = states[name], unbroken(run, design, proof.folder / "data")
        assert state.head and state.step == run.point.steps, name
        assert state.head.state_hash == digest, f"{name}: {state.head.state_hash} is not the unbroken {digest}"
        print(
            f"{time.monotonic() - began:5.0f} s  {name}: {digest[:16]} after {state.links_total} sessions", flush=True
        )
    links = [link for state in states.values() for link in state.links]
    assert not [link for link in links if link.certified == "not-exact"]
    assert len({link.account for link in links}) == len(PEOPLE)
    report = proof.answer("study", "report", STUDY)
    rows = report["rows"]
    assert isinstance(rows, list) and not report["missing"]
    assert not report["apart"], "a run whose session ended in its test is tested by a later one"
    assert all(row["n"] == len(design.seeds) for row in rows)
    picture = proof.folder / "study.svg"
    proof.answer("study", "plot", STUDY, "--out", str(picture))
    assert picture.stat().st_size > 10_000
    verdicts = Counter(row["verdict"] for row in rows if row["verdict"])
    seconds = f"{time.monotonic() - began:.0f} s"
    return (
        f"{len(runs)} runs of {STUDY} at {proof.steps} steps, {len(links)} sessions, {proof.kills} kills in "
        f"{proof.turns} turns, every state_hash that of the unbroken run, each with its result, {seconds}; "
        f"verdicts {dict(verdicts)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--budget-minutes", type=float, default=1.5)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    seed = os.environ.get("RELAY_SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"RELAY_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        print(prove(Proof(folder, args.steps, args.budget_minutes, random.Random(seed))))


if __name__ == "__main__":
    main()
