"""Demonstrates exact resume with real processes: a session is killed between two commits, resumed and compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import relay
from relay.app.messages.wording import counted
from relay.app.redact import redact
from relay.core.errors import BadConfig, BadData, RelayError, UsageError
from relay.core.names import FRAGMENT

RELAYED, UNBROKEN = "relayed", "unbroken"
PROGRESS = re.compile(r"step ([\d,]+)/")
COMMITTED = re.compile(r"Step ([\d,]+) is committed")
PATIENCE_S = 600
LEFT = ("relay_store", "sync", "data", "tasks", "submission.json")
"""Folders that sessions create."""
SETTINGS = "demo.yaml"
SETTINGS_OF, CREDENTIALS = ("RELAY_", "ACCOUNT_ID", "RUN_NAME"), "RELAY_DRIVE_"
"""Prefixes of variables for the user's own runs, and of those among them that are credentials, which are kept."""


@dataclass(frozen=True)
class Demo:
    """One demonstration in its own folder."""

    folder: Path
    steps: int
    overrides: tuple[str, ...]
    environ: Mapping[str, str]
    show: Callable[[str], None]
    remote: bool = False
    """Whether the runs are in a store outside the folder, where only `init` begins one."""

    @property
    def every(self) -> int:
        """Steps between commits: a quarter of the whole."""
        return max(1, self.steps // 4)

    def play(self) -> dict[str, Any]:
        """Run the demonstration; returns relay.demo/1. Raises RelayError if a session fails."""
        if self.remote:
            self._begin()
        for account, label in (("account_1", "Ana"), ("account_2", "Ben"), ("account_3", "uninterrupted")):
            self._relay("register", account, label, "--owner", account, "--provider", "local", "--yes", run=RELAYED)
        self.show(
            f"1. account_1 trains {RELAYED} to step {self.steps:,}, committing every {counted(self.every, 'step')}"
        )
        killed = self._killed_session()
        head = self._status(RELAYED)["step"]
        self.show(f"2. killed with SIGKILL at step {killed:,}; the newest commit is step {head:,}")
        self.show(f"3. account_2 resumes {RELAYED} and trains to the end")
        self._session(RELAYED, "account_2")
        self.show(f"4. account_3 trains {UNBROKEN}: the same run, never interrupted")
        self._session(UNBROKEN, "account_3")
        self.show("5. loading both final checkpoints and comparing their states with the hashes in the ledger")
        for run in (RELAYED, UNBROKEN):
            self._relay("verify", *self._settings_of_training(), "--deep", run=run)
        ends = {run: self._status(run) for run in (RELAYED, UNBROKEN)}
        heads = {run: ends[run]["head"] for run in ends}
        hashes = {run: heads[run]["state_hash"] for run in heads}
        return {
            "schema": "relay.demo/1",
            "steps": self.steps,
            "killed_at_step": killed,
            "resumed_from_step": head,
            "state_hash": hashes,
            "equal": len(set(hashes.values())) == 1 and all(h["step"] == self.steps for h in heads.values()),
            "links": ends[RELAYED]["links"],
            "folder": str(self.folder),
            "store": self.store,
        }

    @property
    def store(self) -> str | None:
        """Address of the store outside the folder, with its identity after `init`; None if there is none."""
        address: str | None = _settings(self.folder)["storage"]["url"] if self.remote else None
        return address

    def _begin(self) -> None:
        """Begin both runs, and write the store's address with its identity into the configuration."""
        for run in (RELAYED, UNBROKEN):
            begun = json.loads(self._relay("init", *self._settings_of_training(), "--json", run=run))
            configure(self.folder, begun["address"])
            self.show(f"0. begun {run} in {redact(begun['address'])}")

    def report(self, run: str = RELAYED) -> str:
        """Return the output of `report` for one run."""
        return self._relay("report", run=run)

    def _killed_session(self) -> int:
        """Train until half way between the second and the third commit, then send SIGKILL; returns the step."""
        aim = 2 * self.every + (self.every + 1) // 2
        seen, durable = "", 0
        with self._trained(RELAYED, "account_1") as child:
            for line, step in self._followed(child):
                seen, durable = line, max(durable, _number(COMMITTED, line))
                if step >= aim and durable >= 2 * self.every:
                    child.send_signal(signal.SIGKILL)
                    child.wait()
                    return step
        raise BadData(f"The first session ended before it could be killed (exit {child.returncode}): {seen.strip()}")

    def _session(self, run: str, account: str) -> None:
        """Train to the end. Raises RelayError with the session's last lines if it fails."""
        newest: deque[str] = deque(maxlen=5)
        with self._trained(run, account) as child:
            newest.extend(line for line, _ in self._followed(child))
            code = child.wait()
        if code:
            raise RelayError(f"`run` failed with exit code {code}: {''.join(newest).strip()[-400:]}")

    @contextmanager
    def _trained(self, run: str, account: str) -> Iterator[subprocess.Popen[str]]:
        """Yield a running session, which is killed at the end of the block."""
        with subprocess.Popen(
            self._command("run", "--account", account, *self._training(), run=run),
            env=self._environment(),
            cwd=self.folder,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as child:
            try:
                yield child
            finally:
                child.kill()

    def _followed(self, child: subprocess.Popen[str]) -> Iterator[tuple[str, int]]:
        """Yield a session's lines, each with its step or 0; shows every tenth of the target."""
        assert child.stderr is not None
        tenth = 0
        for line in child.stderr:
            step = _number(PROGRESS, line)
            if 10 * step // self.steps > tenth:
                tenth = 10 * step // self.steps
                self.show(f"   step {step:,} of {self.steps:,}")
            yield line, step

    def _training(self) -> tuple[str, ...]:
        return (
            *("--target-steps", str(self.steps), "--checkpoint-every", str(self.every), "--new"),
            *("--progress-seconds", "0.2", *self._settings_of_training()),
        )

    def _settings_of_training(self) -> tuple[str, ...]:
        return ("evaluation.every_commits=0", *self.overrides)

    def _status(self, run: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._relay("status", "--json", run=run))
        return document

    def _relay(self, *words: str, run: str) -> str:
        """Return the output of one command. Raises RelayError with its last lines if it fails."""
        done = subprocess.run(
            self._command(*words, run=run),
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise RelayError(
                f"`{' '.join(words)}` failed with exit code {done.returncode}: {done.stderr.strip()[-400:]}"
            )
        return done.stdout

    def _command(self, *words: str, run: str) -> list[str]:
        where = [] if words[0] == "register" else ["--run", run]
        return [
            sys.executable,
            "-m",
            "relay.app.cli",
            words[0],
            *where,
            "--config",
            str(self.folder / SETTINGS),
            *words[1:],
        ]

    def _environment(self) -> dict[str, str]:
        """Return the environment without the user's own settings, but with storage credentials."""
        kept = {k: v for k, v in self.environ.items() if k.startswith(CREDENTIALS) or not k.startswith(SETTINGS_OF)}
        root = str(Path(relay.__file__).parent.parent)
        path = os.pathsep.join(p for p in (root, self.environ.get("PYTHONPATH")) if p)
        return {
            **kept,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "RELAY_EPHEMERAL": "1",
            "PYTHONIOENCODING": "utf-8",
        }


def _number(pattern: re.Pattern[str], line: str) -> int:
    """Return the step in a line, 0 if there is none."""
    found = pattern.search(line)
    return int(found[1].replace(",", "")) if found else 0


def prepare(folder: Path, store: str | None = None) -> None:
    """Make an empty folder with its own configuration; removes files of an earlier demonstration only.

    The runs are in the folder, or in `store`. Raises UsageError (2) if the folder contains other files, BadConfig (78).
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / SETTINGS).is_file():
                raise UsageError(f"{folder} is not empty. Choose a folder that does not exist yet.")
            for name in (*LEFT, SETTINGS):
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        configure(folder, store)
    except OSError as error:
        raise BadConfig(f"Cannot write {folder}: {error.strerror}. Choose another folder with --folder.") from error


def configure(folder: Path, store: str | None) -> None:
    """Write the demonstration's configuration file."""
    settings: dict[str, Any] = {"project": "demo"} | ({"storage": {"url": store}} if store else {})
    (folder / SETTINGS).write_text(yaml.safe_dump(settings), encoding="utf-8")


def _settings(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / SETTINGS).read_text(encoding="utf-8")))


def place_beneath(url: str, token: str) -> str:
    """Return the address of a new folder for one demonstration inside a store; nothing else in the store changes.

    Raises UsageError for an existing store on Drive, whose folders have no addresses.
    """
    bare, mark, query = url.partition(FRAGMENT)[0].partition("?")
    if bare.startswith("drive://"):
        if not bare.startswith("drive://new"):
            raise UsageError("On Google Drive the demonstration creates its own folder. Pass --store drive://new.")
        return bare
    return f"{bare.rstrip('/')}/demo-{token[:12]}{mark}{query}"
