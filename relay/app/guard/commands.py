"""A machine that two shell commands of its user delete and look for."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relay.app.guard.rented import Answer

TIMEOUT_S = 120.0
"""Longest time for one of the commands."""


@dataclass(frozen=True)
class ByCommands:
    """Any machine. Both commands must find out by themselves which machine they run on.

    Their output is dropped: it could hold a key.
    """

    end_command: str = field(repr=False)
    gone_command: str = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    cwd: Path
    title: str = "Your command"
    name: str = "this machine"
    console: str = "your provider's page"

    def delete(self) -> Answer:
        """Run the command that ends the machine."""
        code = self._run(self.end_command)
        return Answer("accepted", "deletion accepted") if code == 0 else Answer("failed", f"--end-command: {code}")

    def look(self) -> Answer:
        """Run the command that exits with 0 once the machine is gone."""
        code = self._run(self.gone_command)
        return Answer("gone", "--gone-command: 0") if code == 0 else Answer("there", f"--gone-command: {code}")

    def _run(self, command: str) -> int | str:
        silent = subprocess.DEVNULL
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                env=dict(self.environ),
                cwd=self.cwd if self.cwd.is_dir() else "/",  # the guarded command may have removed it
                stdin=silent,
                stdout=silent,
                stderr=silent,
                timeout=TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return type(error).__name__
        return done.returncode
