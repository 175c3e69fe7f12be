"""Real sessions in real processes on a local store, forked from an interpreter that has imported torch already."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from relay.core.clock import RealRuntime
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from storage.local import LocalStore
from tests.rehash import held

ROOT = Path(__file__).parent.parent.parent
RELAY = [sys.executable, str(ROOT / "rotate_accounts.py")]
WARM = [sys.executable, "-m", "tests.acceptance.warm"]
PROJECT = "sudoku_pretrain_multiaccount"


class Running(Protocol):
    """The part of subprocess.Popen that the tests use."""

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def communicate(self, timeout: float | None = None) -> tuple[str, str]: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class Warm:
    """The process that the others are forked from (tests/acceptance/warm.py)."""

    def __init__(
        self, folder: Path, modules: Sequence[str] = (), program: Sequence[str] = WARM, cwd: Path = ROOT
    ) -> None:
        """`modules`: what its commands import, if that is not torch."""
        self.address = str(folder / "warm")
        self._process = subprocess.Popen(
            [*program, self.address, *modules],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(
        self, argv: Sequence[str], env: dict[str, str], cwd: str, out: Path, program: Sequence[str] = RELAY[1:]
    ) -> Forked:
        """A command; its output goes to the file `out`, and its errors to another next to it.

        program: the arguments of `python` before those of the command.
        """
        with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr, Path(os.devnull).open() as stdin:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.address)
            request = json.dumps({"argv": [*program, *argv], "env": env, "cwd": cwd}).encode()
            socket.send_fds(connection, [request], [stdin.fileno(), stdout.fileno(), stderr.fileno()])
        return Forked(connection, out)

    def python(self, folder: Path, instead: str | None = None) -> tuple[Path, dict[str, str]]:
        """`python` and `python3` in a new folder that fork our programs; the variables that they need.

        Every `python -m relay.app.cli` runs the module `instead`, if there is one.
        """
        folder.mkdir()
        words = f'shift 2; set -- -m {instead} "$@"\n' if instead else ""
        for name in ("python", "python3"):
            script = f'#!/bin/sh\n{words}exec {sys.executable} -I -S {ROOT}/tests/acceptance/python_of_docs.py "$@"\n'
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
        python = folder / "python"
        return python, {"WARM_ADDRESS": self.address, "WARM_PYTHON": sys.executable, "WARM_FORKING": str(python)}

    def close(self) -> None:
        """No more commands."""
        self._process.communicate(timeout=30)


class Forked:
    """A running command."""

    def __init__(self, connection: socket.socket, out: Path) -> None:
        self._connection, self._out = connection, out
        self._answers: IO[str] = connection.makefile()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for the signal that killed it; None while it runs."""
        return self._within(0.001)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Its output, once it has ended. Raises TimeoutExpired."""
        if self._within(timeout) is None:
            raise subprocess.TimeoutExpired("rotate_accounts.py", timeout or 0.0)
        return self._out.read_text(), self._out.with_suffix(".err").read_text()

    def send_signal(self, sig: int) -> None:
        os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(9)

    def _within(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._readable(timeout):
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def _readable(self, timeout: float | None) -> bool:
        return bool(select.select([self._connection], [], [], timeout)[0])


@dataclass
class Relay:
    """One shared folder, and a private scratch folder for each participant's machine."""

    folder: Path
    warm: Warm
    started: list[Running] = field(default_factory=list)

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

    def start(self, *args: str, machine: str = "one", anew: bool = False, **env: str) -> Running:
        """Start a command in the background; `anew` in an interpreter of its own, with a hash seed of its own."""
        env = self.environment(machine) | env
        if anew:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process: Running = subprocess.Popen([*RELAY, *args], cwd=env["HOME"], env=env, text=True, **pipes)
        else:
            process = self.warm.start(args, env, env["HOME"], self.folder / f"out-{len(self.started)}")
        self.started.append(process)
        return process

    def call(
        self, *args: str, machine: str = "one", code: int | tuple[int, ...] = 0, anew: bool = False, **env: str
    ) -> str:
        """Run a command to its end; its standard output. Fails the test on another exit code."""
        process = self.start(*args, machine=machine, anew=anew, **env)
        out, err = process.communicate(timeout=240)
        codes = code if isinstance(code, tuple) else (code,)
        assert process.returncode in codes, f"{args} ended with {process.returncode}\n{out}\n{err}"
        self.last_error = err
        return out

    def status(self, run: str = "sudoku_rotation") -> dict[str, Any]:
        """The status document."""
        return dict(json.loads(self.call("status", "--run", run, "--json")))

    def state_hash(self, run: str = "sudoku_rotation") -> str:
        """Of the head, from its files."""
        state = self.state(run)
        return held(LocalStore(self.folder / "store", read_only=True), state.head if state else None)

    def state(self, run: str) -> RunState | None:
        """The newest state, read here; None before the run began."""
        view = RunLedger(LocalStore(self.folder / "store", read_only=True), PROJECT, run, RealRuntime()).peek()
        return view.state if view else None

    def until_step(self, step: int, run: str, limit: float = 90) -> None:
        """Wait until so much is durable."""
        end = time.monotonic() + limit
        while (state := self.state(run)) is None or state.step < step:
            assert time.monotonic() < end, f"not within {limit} s: {self.status(run)}"
            time.sleep(0.2)


def run_args(run: str, account: str, target: int, every: int, *more: str) -> tuple[str, ...]:
    """Arguments of one session of `run` to its own target, lower or higher than the run's; it evaluates nothing.

    Few puzzles and small batches take little time.
    """
    return (
        *("run", "--account", account, "--run", run, "--new"),
        *("--new-target", str(target), "--checkpoint-every", str(every)),
        *("evaluation.every_commits=0", "batch_size=8", "data.train_rows=1000", *more),
    )
