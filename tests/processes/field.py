"""A shared folder, machines with a disk of their own, and real sessions on them; asserts nothing of the product."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from relay.app.checks.verification import Verification
from relay.app.checks.verify import verify
from relay.core.clock import RealRuntime
from relay.core.ledger.frozen import RETENTION, TARGET
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from storage.local import LocalStore
from tests.core.toy import hash_of, state_at
from tests.rehash import held

ROOT = Path(__file__).parent.parent.parent
PROJECT, RUN = "toys", "chain"


class Note(NamedTuple):
    """One line of a session's notes."""

    at: float
    """Monotonic seconds, one clock for all processes of this machine."""
    what: str
    number: int


class Nursery:
    """The process that forks the others."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request, one answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it and all that it started."""
        self._process.communicate(timeout=30)


@dataclass
class Session:
    """A running process."""

    nursery: Nursery
    pid: int
    out: Path
    notes_path: Path
    code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for the signal that killed it; None while it runs."""
        if self.code is None:
            self.code = self.nursery.ask(poll=self.pid)["code"]
        return self.code

    def wait(self, limit: float = 60) -> int:
        """Its exit code, once it has ended by itself."""
        if self.poll() is None:
            end = os.pidfd_open(self.pid)
            try:
                assert select.select([end], [], [], limit)[0], f"still runs after {limit} s\n{self.err}"
            finally:
                os.close(end)
        code = self.poll()
        assert code is not None
        return code

    def send(self, number: signal.Signals) -> None:
        """A signal to the process alone."""
        os.kill(self.pid, number)

    def kill(self) -> float:
        """SIGKILL; the monotonic second."""
        at = time.monotonic()
        self.send(signal.SIGKILL)
        self.wait()
        return at

    @property
    def notes(self) -> list[Note]:
        """Its notes so far."""
        if not self.notes_path.exists():
            return []
        lines = (line.split() for line in self.notes_path.read_text().splitlines())
        return [Note(float(at), what, int(number)) for at, what, number in lines]

    def noted(self, what: str) -> list[Note]:
        """Its notes of one kind."""
        return [note for note in self.notes if note.what == what]

    def until(self, what: str, count: int = 1, limit: float = 60) -> None:
        """Wait for it to note something."""
        until(
            lambda: len(self.noted(what)) >= count or self.poll() is not None,
            limit,
            lambda: f"no {what}\n{self.err}",
        )
        assert self.code is None, f"ended with {self.code} before {what}\n{self.err}"

    @property
    def err(self) -> str:
        """Its output for people."""
        return self.out.with_name(self.out.name + ".err").read_text()

    def document(self) -> dict[str, Any]:
        """relay.run/1 or relay.error/1."""
        return dict(json.loads(self.out.read_text()))

    def memory(self, what: str = "VmRSS") -> int:
        """Bytes of memory it holds now (VmRSS), or has held at most (VmHWM)."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith(what))
        return int(line.split()[1]) * 1024


@dataclass
class Field:
    """Everything of one test."""

    folder: Path
    nursery: Nursery
    humble: bool = False
    """Sessions obey permissions, also where the tests run as root."""
    started: list[Session] = field(default_factory=list)
    store: Path = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.folder / "store"

    def home(self, machine: str) -> Path:
        """A machine's own disk: home, working folder and sync/."""
        home = self.folder / "machines" / machine
        home.mkdir(parents=True, exist_ok=True)
        return home

    def sync(self, machine: str, run: str = RUN) -> Path:
        """Where a machine keeps its copies of a run."""
        return self.home(machine) / "sync" / PROJECT / run

    def environment(self, machine: str) -> dict[str, str]:
        """Of one machine; nothing of the caller's settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RELAY_", "ACCOUNT_", "RUN_", "TOY_"))}
        return kept | {
            "HOME": str(self.home(machine)),
            "RELAY_STORE": f"file://{self.store}",
            "RELAY_PROJECT": PROJECT,
            "RELAY_EPHEMERAL": "1",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
        }

    def start(self, *words: str, machine: str = "one", **toy: object) -> Session:
        """Any command; `toy` become TOY_… variables."""
        home = self.home(machine)
        out = home / f"out-{len(self.started)}"
        notes = out.with_name(out.name + ".notes")
        env = self.environment(machine) | {f"TOY_{name.upper()}": str(value) for name, value in toy.items()}
        reply = self.nursery.ask(
            argv=[*words], env=env | {"TOY_NOTES": str(notes)}, cwd=str(home), out=str(out), humble=self.humble
        )
        session = Session(self.nursery, int(reply["pid"]), out, notes)
        self.started.append(session)
        return session

    def train(
        self,
        target: int,
        *words: str,
        account: str = "account_1",
        machine: str = "one",
        run: str = RUN,
        every: int = 10,
        ttl_s: float = 30.0,
        wait_s: float = 0.0,
        evaluate: int = 0,
        **toy: object,
    ) -> Session:
        """Start one session that trains to `target`, a target of its own, also a lower one than the run's."""
        asked = ("run", "--run", run, "--account", account, "--new-target", str(target), "--new", "--json")
        asked += ("--checkpoint-every", str(every), "--wait", str(wait_s / 60))
        settings = (f"lease.ttl_s={ttl_s}", f"evaluation.every_commits={evaluate}", "checkpoint.keep_last=2")
        return self.start(*asked, *settings, *words, machine=machine, **toy)

    def call(self, session: Session, code: int = 0, limit: float = 60) -> Session:
        """Wait for the end, which must have this exit code."""
        assert session.wait(limit) == code, f"{session.code}\n{session.out.read_text()}\n{session.err}"
        return session

    def ledger(self, run: str = RUN) -> RunLedger:
        return RunLedger(LocalStore(self.store, read_only=True), PROJECT, run, RealRuntime())

    def state(self, run: str = RUN) -> RunState | None:
        """The newest state; None before the run began."""
        view = self.ledger(run).peek()
        return view.state if view else None

    def step(self, run: str = RUN) -> int:
        """The durable step."""
        state = self.state(run)
        return state.step if state else 0

    def verify(self, run: str = RUN) -> Verification:
        """Every entry and every retained file, read in full."""
        return verify(self.ledger(run), LocalStore(self.store, read_only=True))

    def assert_whole(self, run: str = RUN) -> RunState:
        """Clean, and at the state an unbroken run has at this step."""
        found = self.verify(run)
        assert found.ok and {one.cause for one in found.incidents} <= {TARGET, RETENTION}, found.document()
        state = self.state(run)
        assert state is not None
        if state.head is not None:
            store = LocalStore(self.store, read_only=True)
            assert held(store, state.head) == hash_of(state.step, state_at(state.step))
        return state

    def end(self) -> None:
        """Kill every process that still runs."""
        for session in self.started:
            if session.poll() is None:
                session.kill()


def until(what: Callable[[], bool], limit: float = 60, why: Callable[[], str] = lambda: "") -> None:
    """Poll until it holds; fails the test after `limit` seconds."""
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, f"not within {limit} s: {why()}"
        time.sleep(0.01)
