"""A small loop with and without a relay, each session in a forked process: the parent only imports torch."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from psutil import NoSuchProcess, Process
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relay
from relay.core.clock import RealRuntime
from relay.core.lease.lease import LeaseRequest, acquire
from relay.core.ledger.changes import Release
from relay.core.ledger.ledger import RunLedger
from relay.core.session.driven import DrivenSession
from relay.torch.launch import meeting

TARGET = 40
Act = Callable[[Any], None]
"""Called in iterations with the session."""


class Loop:
    """Dropout, a schedule, and a shuffled loader whose epochs do not divide the commits."""

    def __init__(self, workers: int = 0) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 6))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, TARGET)
        self.loader = DataLoader(TensorDataset(torch.randn(27, 6)), 4, shuffle=True, num_workers=workers)

    def train(self, x: Tensor) -> Tensor:
        loss: Tensor = ((self.net(x) - x) ** 2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.schedule.step()
        return loss

    def digest(self) -> str:
        return hashlib.sha256(b"".join(t.numpy().tobytes() for t in self.net.state_dict().values())).hexdigest()


def plain(workers: int = 0) -> str:
    """The loop without a relay."""
    loop, steps = Loop(workers), 0
    while True:
        for (x,) in loop.loader:
            loop.train(x)
            steps += 1
            if steps == TARGET:
                return loop.digest()


def relayed(account: str, act: Act = lambda run: None, workers: int = 0, **more: Any) -> dict[str, Any]:
    """One session; `act` is called in each iteration."""
    loop = Loop(workers)
    with relay.session("ada/net", **{"target_steps": TARGET, "account": account, "every_steps": 5, **more}) as run:
        run.track(model=loop.net, optimizer=loop.opt, scheduler=loop.schedule)
        began = run.step
        for (x,) in run.batches(loop.loader):
            run.log(loss=loop.train(x))
            act(run)
    outcome = run.outcome
    return {
        "code": int(outcome.exit_code),
        "durable": outcome.durable_step,
        "began": began,
        "certified": run.certified,
        "digest": loop.digest(),
        "end": outcome.end,
    }


LIMIT_S = 180.0
"""Longest life of a forked process; most need a second."""
DUMP = signal.SIGQUIT
"""A process that gets it prints the stack of each of its threads. No session uses this signal."""
DUMP_S = 0.5
"""Time for that."""
LOOK_S = 0.01
LAST = 20_000
"""Characters of output that an error shows."""


class Hung(Exception):
    """A forked process did not end in time."""


def child(work: Callable[[], Any], folder: Path) -> Any:
    """The result of the work in a forked process; a text for an error, the negative signal if one ended it."""
    return results([Child(work, folder)])[0]


class Child:
    """A forked process that does some work."""

    def __init__(self, work: Callable[[], Any], folder: Path) -> None:
        preload()
        self._found = folder / f"found_{os.urandom(4).hex()}"
        self._output = self._found.with_suffix(".log")
        self._end: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._take_output()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.chdir(folder)
                found = work()
            except BaseException as error:  # noqa: BLE001 - reported to the parent
                traceback.print_exc()
                found = f"{type(error).__name__}: {error}"
            self._found.write_text(json.dumps(found))
            sys.stdout.flush()
            os._exit(0)

    def _take_output(self) -> None:
        """In the child: output and stacks go to a file of its own, by which an error can tell processes apart."""
        with self._output.open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        faulthandler.register(DUMP, sys.stderr)

    def lives(self) -> bool:
        """Whether it has not ended yet."""
        if self._end is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._end = os.waitstatus_to_exitcode(status) if pid else None
        return self._end is None

    def result(self) -> Any:
        """As of `child`, once it has ended."""
        os.write(2, self._output.read_bytes())  # pytest shows it if the test fails
        return self._end or json.loads(self._found.read_text())

    def kill(self) -> str:
        """End it with the processes that it has started; its last output, with the stacks of those that still ran."""
        family = [*Process(self.pid).children(recursive=True), Process(self.pid)] if self.lives() else []
        for one in family:
            with suppress(NoSuchProcess):
                one.send_signal(DUMP)
                time.sleep(DUMP_S)
        for one in family:
            with suppress(NoSuchProcess):
                one.kill()
        if family:
            self._end = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return f"{'still ran' if family else 'had ended'}:\n{self._output.read_text()[-LAST:]}"


def results(children: Sequence[Child]) -> list[Any]:
    """Of processes that run at once, when all have ended. Raises Hung if one lives longer than LIMIT_S."""
    until = time.monotonic() + LIMIT_S
    try:
        while any(each.lives() for each in children):
            if time.monotonic() > until:
                raise Hung(f"Not all {len(children)} processes have ended after {LIMIT_S:.0f} s.")
            time.sleep(LOOK_S)
    except BaseException as error:  # also the test's own limit, and Ctrl-C
        for rank, each in enumerate(children):
            error.add_note(f"Process {rank} {each.kill()}")
        raise
    return [each.result() for each in children]


@cache
def preload() -> None:
    """Import once, for all forked processes, what each of them would import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch._dynamo", "relay.app.loops"):
            import_module(name)


def pair(work: Callable[[], Any], folder: Path) -> list[Any]:
    """The results of two processes that a launcher might have started."""

    def ranked(rank: dict[str, str]) -> Any:
        os.environ.update(rank)
        return work()

    with meeting(2) as ranks:
        return results([Child(partial(ranked, rank), folder) for rank in ranks])


def at(step: int, act: Act) -> Act:
    """In the iteration of that step."""
    return lambda run: act(run) if run.step + 1 == step else None


def stop(run: Any) -> None:
    run.stop()


def send(number: signal.Signals) -> Act:
    def act(run: Any) -> None:
        os.kill(os.getpid(), number)

    return act


def fail(run: Any) -> None:
    raise ZeroDivisionError


def kill(run: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def use_up(run: Any) -> None:
    """Its budget, with time for the last commit."""
    run._driven._parts.budget.should_stop = lambda now, rest: True


class Dead:
    """Every session of this machine seems to be dead."""

    def hold(self, session: str) -> None: ...

    def drop(self, session: str) -> None: ...

    def is_dead(self, session: str) -> bool:
        return True


def take_over(run: Any) -> None:
    """Another session takes the lease, and gives it back; this one learns it at its next commit."""
    ctx, runtime = run._driven.ctx, RealRuntime()
    ledger = RunLedger(ctx.ledger_store, ctx.names.project, ctx.names.run, runtime)
    taken = acquire(ledger, runtime, Dead(), LeaseRequest(runtime.token(), "eve", 180.0, ctx.plan.target_steps))
    taken.append("release", lambda state: Release(reason="taken over", next=None, seconds=0.0))
    run.commit()


ENDS: dict[str, tuple[Act, Any]] = {
    "SIGKILL": (kill, -9),
    "budget": (use_up, 75),
    "SIGTERM": (send(signal.SIGTERM), 143),
    "Ctrl-C": (send(signal.SIGINT), 130),
    "lost lease": (take_over, "LeaseOver"),
    "stop": (stop, 75),
    "planned": (send(signal.SIGUSR1), 75),
    "crash": (fail, "ZeroDivisionError"),
}
"""How a session is ended, and its exit code, signal or error."""


@dataclass
class Ending:
    """Called in each iteration: ends the session `gap` steps after its first, when the step before is committed."""

    end: str
    gap: int
    at: int = -1

    def __call__(self, run: Any) -> None:
        self.at = run.step + self.gap if self.at < 0 else self.at
        if not isinstance(run._driven, DrivenSession):
            return
        parts = run._driven._parts
        if run.step == self.at - 2:
            run.commit()
        if run.step == self.at - 1:
            while parts.committer._waiting is not None:  # a commit after the next step would replace it
                time.sleep(LOOK_S)
        if run.step == self.at:
            while parts.lease.state.step < self.at - 1:
                time.sleep(LOOK_S)
            ENDS[self.end][0](run)
