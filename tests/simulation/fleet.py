"""Machines and the commands people start on them, each with the fate a seed has drawn for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from relay.app.checks import verify
from relay.app.providers import shipped
from relay.core.budget import Limits
from relay.core.checkpoint.local import local_folder_of
from relay.core.checkpoint.packing import Facts
from relay.core.checkpoint.retention import Keep
from relay.core.errors import RelayError
from relay.core.lease.heartbeat import request_stop
from relay.core.lease.signals import StopSignal
from relay.core.ledger.changes import Resume
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.registry import Registry
from relay.core.ledger.state import RunState
from relay.core.ledger.target import Rule
from relay.core.ledger.verified import FileMark
from relay.core.names import Names
from relay.core.runs import fork
from relay.core.runs.opening import Pair
from relay.core.session import session
from relay.core.session.context import Context, Outcome, Plan
from relay.people.accounts import Accounts
from relay.people.owners import Inference
from storage.base import StoreError
from storage.retry import RetryStore
from tests.core.fake_runtime import Process, World
from tests.core.lab import CONFIG_HASH, PROJECT, FakeLocks, genesis
from tests.simulation import resting
from tests.simulation.actor import Actor
from tests.simulation.fates import draw_fate
from tests.simulation.oracle import Oracle
from tests.simulation.trace import Summary, Trace
from tests.simulation.weather import Sky, Weathered
from tests.simulation.workload import Crash, SharingWorkload, SimWorkload


@dataclass
class Machine:
    """A computer: one disk, one wrong clock, one network."""

    name: str
    disk: Path
    skew: float
    delay_s: float
    locks: FakeLocks = field(default_factory=FakeLocks)


@dataclass(frozen=True)
class Order:
    """One command that a simulated person starts."""

    number: int
    at: float
    machine: int
    account: str
    run: int
    verb: str
    patience_s: float = 0.0
    """How long it waits for the lease."""


@dataclass
class Pace:
    """Properties that all sessions of one seed share."""

    target: int
    step_s: float
    every_steps: int
    ttl_s: float
    nan_at: int | None = None
    """A bad configuration: the state is not finite from that step on, for everybody."""
    crash_at: int | None = None
    """A bug: the training loop crashes at that step, for everybody."""
    target_rule: Rule = Rule.RAISE
    """The effect of `target` on a run that has another."""
    table_every: int = 0
    """Steps after which a checkpoint holds the table again that later ones share; 0: they share nothing."""


@dataclass
class Fleet:
    """Starts commands in a world, and records their results."""

    world: World
    sky: Sky
    oracle: Oracle
    trace: Trace
    summary: Summary
    machines: list[Machine]
    pace: Pace
    seed: int
    runs: list[str] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    registered: set[str] = field(default_factory=set)
    crew: dict[Process, Command] = field(default_factory=dict)

    def begin(self, run: str) -> None:
        """A run and the registry, begun in calm weather."""
        actor = Actor("begin", "home", "home", outsider=True)
        process = self.world.process()
        store = Weathered(self.sky, process, actor, Random(0), 0.0)
        registry = Registry(store, process, session=process.token())
        registry.begin("1" * 32)
        registry.enter_run(PROJECT, run, genesis(run).run_id)
        RunLedger(store, PROJECT, run, process).begin(genesis(run), session="0" * 32)
        self.runs.append(run)

    def here(self) -> Command | None:
        """Whose code runs right now."""
        fiber = self.world.current
        return self.crew.get(fiber.process) if fiber else None

    def start(self, order: Order, *, calm: bool = False) -> Actor:
        """Start a command now; `calm` spares it every fate."""
        machine = self.machines[order.machine % len(self.machines)]
        random = Random(f"{self.seed}/{order.number}")
        process = self.world.process(skew=machine.skew)
        actor = Actor(f"p{order.number}", machine.name, order.account, process.kill, began=self.world.now)
        actor.outsider = order.verb not in ("run", "push")
        run = self.runs[order.run % len(self.runs)]
        one = Command(self, order, machine, random, process, actor, run)
        if not calm:
            draw_fate(one)
        self.actors.append(actor)
        self.crew[process] = one
        self.trace.note(self.world.now, actor.name, f"starts {order.verb} of {run} on {machine.name}")
        process.start(one.body)
        return actor


@dataclass
class Command:
    """One process from its start to its end."""

    fleet: Fleet
    order: Order
    machine: Machine
    random: Random
    process: Process
    actor: Actor
    run: str
    signal: StopSignal = field(default_factory=StopSignal)
    workload: SimWorkload = field(init=False)
    budget_s: float | None = None
    full_disk: tuple[float, float] = (0.0, 0.0)
    """Between these times its disk takes nothing more."""

    def __post_init__(self) -> None:
        fleet, process = self.fleet, self.process
        self.weather = Weathered(fleet.sky, process, self.actor, self.random, self.machine.delay_s)
        self.store = RetryStore(self.weather, sleep=process.sleep, jitter=self.random.random)
        kind = SharingWorkload if fleet.pace.table_every else SimWorkload
        self.workload = kind(
            sleep=process.sleep,
            step_s=fleet.pace.step_s,
            actor=self.actor,
            clock=lambda: fleet.world.now,
            trained_one=fleet.oracle.trained,
            evaluate_s=2 * fleet.pace.step_s,
        )
        if isinstance(self.workload, SharingWorkload):
            self.workload.table_every = fleet.pace.table_every
        self.evaluate_every, self.keep, self.every = 0, Keep(2), fleet.pace.every_steps

    def touches_disk(self, how: str) -> None:
        """It is about to change something on its disk: a point at which it may die."""
        if self.actor.fate.strikes("disk", how, "before"):
            self.fleet.trace.note(self.fleet.world.now, self.actor.name, f"killed before disk {how}")
            self.fleet.summary.faults["kill-at-disk"] += 1
            self.actor.die(self.fleet.world.now)
        self.process.check()

    def disk_is_full(self) -> bool:
        return self.full_disk[0] <= self.fleet.world.now < self.full_disk[1]

    # -- actions
    def body(self) -> None:
        """The process's main thread."""
        told = "?"
        try:
            told = (getattr(type(self), f"_{self.order.verb}", None) or getattr(resting, self.order.verb))(self)
        except RelayError as error:
            self.fleet.oracle.verdict.refused(self.actor, error)
            told = f"{self.order.verb}-{int(error.exit_code)}"
        except StoreError as error:
            told = f"{self.order.verb}-{type(error).__name__}"
        except Crash:
            self.fleet.oracle.verdict.crashed(self)
            told = "1"
        self.actor.over = True
        self.fleet.summary.exits[told] += 1
        self.fleet.trace.note(self.fleet.world.now, self.actor.name, f"ends with {told}")

    def _run(self) -> str:
        if self.random.random() < 0.5:
            self.ledger().check_epochs(self.store)  # before all other work, as on the command line
        return self._told(session.run_session(self.context()))

    def _push(self) -> str:
        return self._told(session.push(self.context()))

    def _told(self, outcome: Outcome) -> str:
        self.fleet.oracle.verdict.ended(self, outcome)
        return str(int(outcome.exit_code))

    def _fork(self) -> str:
        ledger = self.ledger()
        view = ledger.read()
        if not view.state.undamaged:
            return "fork-nothing"
        chosen = self.random.choice(view.state.undamaged)
        name = f"fork-{self.random.randrange(4)}"
        names, run_id = Names(PROJECT, name), genesis(name).run_id
        scratch = self.machine.disk / f"scratch-{self.actor.name}"
        branch = fork.Branch(self.store, names, run_id, "test", scratch, self.process)
        head, origin = fork.copy_checkpoint(ledger, view, chosen.key, branch)
        stores = self.stores(self.process.token())
        stores.registry().enter_run(PROJECT, name, run_id)
        made = stores.run_ledger(PROJECT, name)
        change = genesis(name).model_copy(update={"head": head, "origin": origin})
        if made.begin(change, session=self.process.token())[1]:
            self.fleet.runs.append(name)
            return "fork-0"
        return "fork-taken"

    def _verify(self) -> str:
        found = verify.verify(self.ledger(), self.store)
        run = self.fleet.oracle.runs[PROJECT, self.run]
        excused = bool(run.damaged) or self.actor.misread or self.fleet.oracle.passed_over(run)
        self.fleet.oracle.require(found.ok or excused, f"verify finds damage where none is: {found}")
        return f"verify-{'whole' if found.ok else 'damaged'}"

    def _begin(self) -> str:
        """As a newcomer does who finds no run of that name."""
        begun = self.ledger().begin(genesis(self.run), session=self.process.token())[1]
        return f"begin-{'new' if begun else 'there'}"

    def _register(self) -> str:
        registry = self.stores(self.process.token()).registry()
        name = f"person-{self.random.randrange(6)}"
        inference = Inference(name, "--owner", "local", "--provider")
        Accounts(registry, shipped()).register(name, name, inference)
        self.fleet.registered.add(name)
        return "register-0"

    def _stop(self) -> str:
        holder = self.ledger().read().state.holder
        if holder is not None:
            request_stop(self.store, Names(PROJECT, self.run), holder.epoch, "please")
        return "stop-0"

    def _resume(self) -> str:
        ledger = self.ledger()
        if ledger.read().state.halted is None:
            return "resume-none"
        ledger.append("resume", lambda _: Resume(why="anyway"), session=self.process.token(), account=None)
        return "resume-0"

    def stores(self, session: str = "") -> Pair:
        """The store, as the command line opens it."""
        return Pair(self.store, self.store, self.process, session, patience_s=self.fleet.pace.ttl_s)

    def ledger(self) -> RunLedger:
        return self.stores().run_ledger(PROJECT, self.run)

    def context(self, **plan: Any) -> Context:
        """The session's surroundings, as the command line would build them."""
        ledger, home = self.ledger(), self.machine.disk / PROJECT / self.run
        run_id = genesis(self.run).run_id
        ledger.chain.mark = FileMark(home / f"judged.{run_id[:8]}.json")
        limits = Limits(started=self.process.monotonic(), budget_s=self.budget_s)
        defaults = {
            "target_steps": self.fleet.pace.target,
            "target_rule": self.fleet.pace.target_rule,
            "every_steps": self.every,
            "evaluate_every": self.evaluate_every,
            "keep": self.keep,
            "ttl_s": self.fleet.pace.ttl_s,
            "wait_s": self.order.patience_s,
            "workers": 1,
            "limits": limits,
        }
        chosen = Plan(**{**defaults, **plan})
        self.actor.every_steps, self.actor.every_s = chosen.every_steps, chosen.every_s
        self.actor.step_s = self.workload.step_s
        self.actor.evaluate_s = self.workload.evaluate_s if chosen.evaluate_every else 0.0
        return Context(
            runtime=self.process,
            ledger=ledger,
            heartbeat_store=self.weather,
            checkpoint_store=self.store,
            workload=self.workload,
            facts=Facts(CONFIG_HASH, self.workload.fingerprint(), "test"),
            session=self.process.token(),
            account=self.order.account,
            plan=chosen,
            local_folder=local_folder_of(home, run_id),
            locks=self.machine.locks.of(self.process),
            signal=self.signal,
            other_runs=self._other_runs,
        )

    def _other_runs(self) -> Iterator[RunState]:
        for project, run in Registry(self.store, self.process, session=self.process.token()).runs():
            if run != self.run and (view := RunLedger(self.store, project, run, self.process).peek()):
                yield view.state
