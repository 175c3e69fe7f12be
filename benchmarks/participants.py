"""Participants of a run, on one machine: each has its own home, caches and working folder; all share a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, str(ROOT / "rotate_accounts.py")]


@dataclass(frozen=True)
class Participant:
    """One person's machine below `folder`; `gpu` is the number of its card, None for all visible ones.

    `processes`: how many share a training session, one a GPU.
    """

    folder: Path
    name: str
    gpu: int | None = None
    processes: int = 1

    def environment(self) -> dict[str, str]:
        """Without relay settings, and without a cache that another participant has filled."""
        home = self.folder / "machines" / self.name
        home.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RELAY_")}
        own = {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "TRITON_CACHE_DIR": str(home / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
            "RELAY_STORE": f"file://{self.folder / 'store'}",
            "RELAY_EPHEMERAL": "1",
            "RELAY_PROCESSES": str(self.processes),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
        }
        return kept | own | ({} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": str(self.gpu)})

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command in the background; its lines for people come through stderr."""
        env = self.environment()
        return subprocess.Popen(
            [*COMMAND, *words], cwd=env["HOME"], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def call(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """A command's standard output. Exits with the end of its stderr for an unexpected exit code."""
        process = self.start(*words)
        out, err = process.communicate()
        if process.returncode not in codes:
            sys.exit(f"{' '.join(words)} ended with {process.returncode}:\n{err[-2000:]}")
        return out

    def status(self, run: str) -> dict[str, Any]:
        """The run's status document."""
        return dict(json.loads(self.call("status", "--run", run, "--json")))
