"""The tour of ARC: train on embedded tasks, kill the session, resume under a second account, solve, check and score."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from relay.app.demo import PATIENCE_S, RELAYED, SETTINGS, Demo
from relay.app.models import competition
from relay.core.errors import RelayError

OUT = "submission.json"


class Tour(Demo):
    """One tour in its own folder."""

    def play(self) -> dict[str, Any]:
        """Run the tour; returns relay.arc/1 of the solve with its scores. Raises RelayError if a command fails."""
        for account, label in (("account_1", "Ana"), ("account_2", "Ben")):
            self._relay("register", account, label, "--owner", account, "--provider", "local", "--yes", run=RELAYED)
        tasks, solutions = competition.small_tasks(self.folder / "tasks")
        self.show(f"1. account_1 trains to step {self.steps:,} and is killed half way")
        killed = self._killed_session()
        head = self._status(RELAYED)["step"]
        self.show(f"2. killed with SIGKILL at step {killed:,}; account_2 resumes from step {head:,}")
        self._session(RELAYED, "account_2")
        links = self._status(RELAYED)["links"]
        self.show(f"3. their link is {links[-1]['certified']}; solving the tasks of {tasks.name} into {OUT}")
        config = ("--config", str(self.folder / SETTINGS))
        solved = self._arc("solve", "--run", RELAYED, *config, "--tasks", str(tasks), "--out", OUT, *self.overrides)
        self.show("4. checking it as a competition would, and scoring it")
        self._arc("check", OUT, "--tasks", str(tasks))
        scored = self._arc("score", OUT, "--solutions", str(solutions))
        scores = {key: scored[key] for key in ("score_outputs", "score_tasks", "pass_at", "right", "outputs")}
        training = {"steps": self.steps, "killed_at_step": killed, "resumed_from_step": head, "links": links}
        return solved | scores | training | {"command": "tour", "folder": str(self.folder)}

    def _arc(self, *words: str) -> dict[str, Any]:
        """The document of one command. Raises RelayError with its last lines if it fails."""
        command = [sys.executable, "-m", "relay.app.cli", "arc", *words, "--json"]
        done = subprocess.run(
            command, env=self._environment(), cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if done.returncode:
            raise RelayError(f"`arc {words[0]}` failed with exit code {done.returncode}: {done.stderr.strip()[-400:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found
