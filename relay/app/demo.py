"""Shows the relay's promise with real processes: a session killed between two commits, resumed, and compared."""

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
from relay.app.redact import redact
from relay.core.errors import BadData, RelayError, UsageError
from relay.core.names import FRAGMENT

RELAYED, UNBROKEN = "relayed", "unbroken"
PROGRESS = re.compile(r"step ([\d,]+)/")
COMMITTED = re.compile(r"Step ([\d,]+) is committed")
PATIENCE_S = 600
LEFT = ("relay_store", "sync", "data")
"""What sessions leave in a folder."""
SETTINGS = "demo.yaml"
SETTINGS_OF, CREDENTIALS = ("RELAY_", "ACCOUNT_ID", "RUN_NAME"), "RELAY_DRIVE_"
"""Beginnings of variables that a person's own runs use, and of those among them that only say who somebody is."""


@dataclass(frozen=True)
class Demo:
    """One demonstration in a folder of its own."""

    folder: Path
    steps: int
    overrides: tuple[str, ...]
    environ: Mapping[str, str]
    tell: Callable[[str], None]
    remote: bool = False
    """Whether the runs live in a store outside the folder, where only `init` begins one."""

    @property
    def every(self) -> int:
        """Steps between commits: a quarter of the whole."""
        return max(1, self.steps // 4)

    def play(self) -> dict[str, Any]:
        """All acts; relay.demo/1. Raises RelayError if a session fails."""
        if self.remote:
            self._begin()
        for account, label in (("account_1", "Ana"), ("account_2", "Ben"), ("account_3", "nobody interrupted")):
            self._relay("register", account, label, "--owner", account, "--provider", "local", "--yes", run=RELAYED)
        self.tell(f"1. account_1 trains {RELAYED} to step {self.steps:,}, committing every {self.every:,} steps")
        killed = self._killed_session()
        head = self._status(RELAYED)["step"]
        self.tell(f"2. killed with SIGKILL at step {killed:,}; the newest commit is step {head:,}")
        self.tell(f"3. account_2 resumes {RELAYED} and trains to the end")
        self._session(RELAYED, "account_2")
        self.tell(f"4. account_3 trains {UNBROKEN}: the same thing, never interrupted")
        self._session(UNBROKEN, "account_3")
        self.tell("5. both ends are loaded from their files, and their states compared with the hashes in the ledger")
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
        """Address of the store outside the folder, with its identity once it has begun; None if there is none."""
        address: str | None = _settings(self.folder)["storage"]["url"] if self.remote else None
        return address

    def _begin(self) -> None:
        """Both runs, in a store that is told by its whole address from then on."""
        for run in (RELAYED, UNBROKEN):
            begun = json.loads(self._relay("init", *self._settings_of_training(), "--json", run=run))
            configure(self.folder, begun["address"])
            self.tell(f"0. begun {run} in {redact(begun['address'])}")

    def report(self, run: str = RELAYED) -> str:
        """The box of one run."""
        return self._relay("report", run=run)

    def _killed_session(self) -> int:
        """Train until half way between the second and the third commit, then SIGKILL; the step it was at."""
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
        said: deque[str] = deque(maxlen=5)
        with self._trained(run, account) as child:
            said.extend(line for line, _ in self._followed(child))
            code = child.wait()
        if code:
            raise RelayError(f"`run` ended with exit {code}: {''.join(said).strip()[-400:]}")

    @contextmanager
    def _trained(self, run: str, account: str) -> Iterator[subprocess.Popen[str]]:
        """A session that is gone afterwards."""
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
        """A session's lines, each with its step or 0; every tenth of the way is told as it passes."""
        assert child.stderr is not None
        tenth = 0
        for line in child.stderr:
            step = _number(PROGRESS, line)
            if 10 * step // self.steps > tenth:
                tenth = 10 * step // self.steps
                self.tell(f"   step {step:,} of {self.steps:,}")
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
        """The output of one command. Raises RelayError with its last lines if it fails."""
        done = subprocess.run(
            self._command(*words, run=run),
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise RelayError(f"`{' '.join(words)}` ended with exit {done.returncode}: {done.stderr.strip()[-400:]}")
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
        """Nobody's settings but the demonstration's own, with whatever the storage knows them by."""
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
    """The step that a line tells, 0 if it tells none."""
    found = pattern.search(line)
    return int(found[1].replace(",", "")) if found else 0


def prepare(folder: Path, store: str | None = None) -> None:
    """An empty folder with a configuration of its own; only what an earlier demonstration left is removed.

    The runs live in the folder, or in `store`. Raises UsageError if the folder holds anything else.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / SETTINGS).is_file():
            raise UsageError(f"{folder} is not empty. Name a folder that does not exist yet.")
        for name in (*LEFT, SETTINGS):
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    configure(folder, store)


def configure(folder: Path, store: str | None) -> None:
    """Write the demonstration's own configuration."""
    settings: dict[str, Any] = {"project": "demo"} | ({"storage": {"url": store}} if store else {})
    (folder / SETTINGS).write_text(yaml.safe_dump(settings), encoding="utf-8")


def _settings(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / SETTINGS).read_text(encoding="utf-8")))


def place_beneath(url: str, token: str) -> str:
    """Address of a new folder for one demonstration beneath a store's, of which nothing else is touched.

    Raises UsageError for a store of Drive that exists: its folders have no address of their own.
    """
    bare, mark, query = url.partition(FRAGMENT)[0].partition("?")
    if bare.startswith("drive://"):
        if not bare.startswith("drive://new"):
            raise UsageError("On Google Drive the demonstration makes a folder of its own. Say --store drive://new.")
        return bare
    return f"{bare.rstrip('/')}/demo-{token[:12]}{mark}{query}"
