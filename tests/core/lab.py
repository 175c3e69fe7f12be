"""Builds sessions over a virtual clock: a shared memory store, any number of processes, faults by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relay.app.messages import endings
from relay.app.messages.events import line
from relay.core.budget import Limits
from relay.core.checkpoint.local import local_folder_of
from relay.core.checkpoint.packing import Facts
from relay.core.checkpoint.passedover import guard
from relay.core.events import SessionEvent
from relay.core.lease.signals import StopSignal
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.changes import Genesis
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule
from relay.core.session.context import Context, Listener, Outcome, Plan
from relay.core.session.session import run_session
from storage.base import Ref, Stat, Unavailable
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.fake_runtime import Process, World
from tests.core.toy import ToyWorkload
from tests.rehash import held

PROJECT, RUN = "toys", "chain"


class ProcessStore(Wrapper):
    """A store as one process sees it: it takes time, it dies with its process, and it fails on demand."""

    def __init__(self, inner: MemoryStore, process: Process, delay_s: float = 0.01) -> None:
        super().__init__(inner)
        self.process, self.delay_s = process, delay_s
        self.fail: Callable[[str, str], None] = lambda verb, name: None
        """Called before and, with the verb 'after-…', after each effect; raises to fail there."""
        self.calls: list[tuple[str, str]] = []

    def _do(self, verb: str, name: str, act: Callable[[], Any]) -> Any:
        self.process.sleep(self.delay_s)
        self.process.check()
        self.calls.append((verb, name))
        self.fail(verb, name)
        result = act()
        self.fail(f"after-{verb}", name)
        self.process.check()
        return result

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self._do("put", name, lambda: self.inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self._do("put_if_absent", name, lambda: self.inner.put_if_absent(name, data))

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self._do("put", name, lambda: self.inner.put_new(name, data))

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        return self._do("get", ref, lambda: self.inner.get(ref, limit=limit))

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self._do("read_range", ref, lambda: self.inner.read_range(ref, start, length))

    def stat(self, ref: Ref) -> Stat:
        return self._do("stat", ref, lambda: self.inner.stat(ref))

    def delete(self, ref: Ref) -> None:
        return self._do("delete", ref, lambda: self.inner.delete(ref))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[Stat]:
        return iter(self._do("list", prefix, lambda: list(self.inner.list(prefix, after=after))))

    def now(self) -> float:
        return self._do("now", "", self.inner.now)


class FakeLocks:
    """Host locks of one virtual machine: a session is dead when its process is."""

    def __init__(self) -> None:
        self.held: dict[str, Process] = {}

    def of(self, process: Process) -> ProcessLocks:
        return ProcessLocks(self, process)


@dataclass
class ProcessLocks:
    locks: FakeLocks
    process: Process

    def hold(self, session: str) -> None:
        self.locks.held[session] = self.process

    def is_dead(self, session: str) -> bool:
        return session in self.locks.held and self.locks.held[session].dead

    def drop(self, session: str) -> None:
        self.locks.held.pop(session, None)


class NoLocks:
    """Every machine is another one."""

    def hold(self, session: str) -> None: ...
    def is_dead(self, session: str) -> bool:
        return False

    def drop(self, session: str) -> None: ...


@dataclass
class Heard:
    """A session's events, and the lines that people read of them."""

    events: list[SessionEvent] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def event(self, event: SessionEvent) -> None:
        self.events.append(event)
        if text := line(event):
            self.lines.append(text)


@dataclass
class Session:
    """A process with one session in it, and handles to hurt it."""

    process: Process
    store: ProcessStore
    ctx: Context
    workload: ToyWorkload
    heard: Heard
    """What it reported."""

    @property
    def told(self) -> list[str]:
        """The lines that people read."""
        return self.heard.lines

    @property
    def outcome(self) -> Outcome:
        assert self.process.outcome is not None, "the session has not ended"
        return self.process.outcome

    def start(self, run: Callable[[Context], Outcome] = run_session) -> Session:
        self.process.start(lambda: run(self.ctx))
        return self


@dataclass
class Lab:
    """One shared store and everything around it."""

    tmp: Path
    world: World = field(default_factory=World)
    shared: MemoryStore | None = None
    count: int = 0
    heard: Heard = field(default_factory=lambda: Heard())
    """What the newest session reported."""

    def __post_init__(self) -> None:
        self.shared = self.shared or MemoryStore(clock=lambda: self.world.now)
        self.begin(RUN)

    @property
    def told(self) -> list[str]:
        """The lines that people read of the newest session."""
        return self.heard.lines

    def begin(self, run: str) -> None:
        ledger = RunLedger(self.shared, PROJECT, run, self.world.process())
        ledger.begin(genesis(run), session="0" * 32)

    def session(
        self,
        account: str = "alice",
        *,
        run: str = RUN,
        machine: str | None = None,
        locks: Any = None,
        others: tuple[str, ...] = (),
        budget_s: float | None = None,
        skew: float = 0.0,
        delay_s: float = 0.01,
        workload: ToyWorkload | None = None,
        **plan: Any,
    ) -> Session:
        """A session that has not started; `machine` names a disk that several sessions share.

        Each has a target of its own, also a lower one than the run's, unless a `target_rule` is given.
        """
        self.count += 1
        process = self.world.process(skew=skew)
        store = ProcessStore(self.shared, process, delay_s)
        workload = workload or ToyWorkload()
        workload.sleep = process.sleep
        heard = self.heard = Heard()
        limits = Limits(started=process.monotonic(), budget_s=budget_s)
        defaults = {"target_steps": 100, "every_steps": 10, "evaluate_every": 0, "workers": 1, "limits": limits}
        ahead = plan.get("target_steps", 100) >= self.state(run).step
        defaults["target_rule"] = Rule.REPLACE if ahead else Rule.KEEP
        ledger = RunLedger(store, PROJECT, run, process)
        guard(ledger, store)
        ctx = Context(
            runtime=process,
            ledger=ledger,
            heartbeat_store=store,
            checkpoint_store=store,
            workload=workload,
            facts=Facts(CONFIG_HASH, workload.fingerprint(), "test"),
            session=process.token(),
            account=account,
            plan=Plan(**{**defaults, **plan}),
            local_folder=local_folder_of(
                self.tmp / (machine or f"machine-{self.count}") / PROJECT / run, self.state(run).run_id
            ),
            locks=locks or NoLocks(),
            signal=StopSignal(),
            listener=Listener(heard.event),
            other_runs=lambda: [RunLedger(store, PROJECT, other, process).read().state for other in others],
        )
        return Session(process, store, ctx, workload, heard)

    def run(self, session: Session) -> Outcome:
        """Start one session and drive the world until it ends."""
        session.start()
        self.world.run()
        return session.outcome

    def state(self, run: str = RUN) -> RunState:
        return RunLedger(self.shared, PROJECT, run, self.world.process()).read().state

    def held(self, run: str = RUN) -> str:
        """Hash of the head's state, from its files."""
        return held(self.shared, self.state(run).head)

    def kinds(self) -> list[str]:
        """Kinds of all entries."""
        ledger = RunLedger(self.shared, PROJECT, RUN, self.world.process())
        return [slot.entry.kind for slot in ledger.entries(0, ledger.read().seq + 1) if slot.entry]

    def damage(self, name_part: str, how: Callable[[bytes], bytes | None]) -> str:
        """Change or (None) remove the stored object whose name ends with `name_part`."""
        (stat,) = [s for s in self.shared.list("") if s.name.endswith(name_part)]
        changed = how(self.shared.get(stat.ref))
        if changed is None:
            self.shared.delete(stat.ref)
        else:
            self.shared.put(stat.name, changed)
        return stat.name


CONFIG_HASH = digest(dumps({"seed": 1}))


def genesis(run: str = RUN) -> Genesis:
    return Genesis(
        project=PROJECT,
        run=run,
        run_id=digest(run.encode())[:32],
        ledger_store="1" * 32,
        checkpoint_store="1" * 32,
        config_hash=CONFIG_HASH,
        config={"seed": 1},
    )


def down(verb: str, name: str) -> None:
    """A store that answers nothing."""
    if not verb.startswith("after-"):
        raise Unavailable("the store is down")


def said(outcome: Outcome) -> str:
    """The lines that people read about it."""
    return endings.message(outcome)


def with_plan(session: Session, **changes: Any) -> Session:
    session.ctx.plan = replace(session.ctx.plan, **changes)
    return session
