"""Real sessions in real processes on a local store, as a person would start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RELAY = [sys.executable, str(ROOT / "rotate_accounts.py")]


@dataclass
class Relay:
    """One shared folder, and a private scratch folder for each participant's machine."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def environment(self, machine: str) -> dict[str, str]:
        """Nothing of the caller's relay settings; a home and a working folder of the machine's own."""
        home = self.folder / "machines" / machine
        home.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RELAY_", "ACCOUNT_", "RUN_"))}
        return kept | {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "RELAY_STORE": f"file://{self.folder / 'store'}",
            "RELAY_EPHEMERAL": "1",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
        }

    def start(self, *args: str, machine: str = "one", **env: str) -> subprocess.Popen[str]:
        """Start a command in the background."""
        surroundings = self.environment(machine)
        process = subprocess.Popen(
            [*RELAY, *args],
            cwd=surroundings["HOME"],
            env=surroundings | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def call(self, *args: str, machine: str = "one", code: int | tuple[int, ...] = 0, **env: str) -> str:
        """Run a command to its end; its standard output. Fails the test on another exit code."""
        process = self.start(*args, machine=machine, **env)
        out, err = process.communicate(timeout=240)
        codes = code if isinstance(code, tuple) else (code,)
        assert process.returncode in codes, f"{args} ended with {process.returncode}\n{out}\n{err}"
        self.last_error = err
        return out

    def status(self, run: str = "sudoku_rotation") -> dict[str, Any]:
        """The status document."""
        return dict(json.loads(self.call("status", "--run", run, "--json")))

    def state_hash(self, run: str = "sudoku_rotation") -> str:
        return str(self.status(run)["head"]["state_hash"])

    def wait_for(self, what: Callable[[dict[str, Any]], bool], run: str = "sudoku_rotation", limit: float = 90) -> None:
        """Poll the status until `what` holds of it."""
        end = time.monotonic() + limit
        while not what(self.status(run)):
            assert time.monotonic() < end, f"not within {limit} s: {self.status(run)}"
            time.sleep(0.2)


def run_args(run: str, account: str, target: int, every: int, *more: str) -> tuple[str, ...]:
    """Arguments of one session of `run`, which evaluates nothing."""
    return (
        *("run", "--account", account, "--run", run, "--new"),
        *("--target-steps", str(target), "--checkpoint-every", str(every)),
        *("evaluation.every_commits=0", *more),
    )
