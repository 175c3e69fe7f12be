"""A small loop with and without a relay, each session in a forked process: the parent only imports torch."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relay
from relay.core.clock import RealRuntime
from relay.core.lease.lease import LeaseRequest, acquire
from relay.core.ledger.changes import Release
from relay.core.ledger.ledger import RunLedger
from relay.core.session.driven import DrivenSession

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


def child(work: Callable[[], Any], folder: Path) -> Any:
    """The result of the work in a forked process; a text for an error, the negative signal if one ended it."""
    return Child(work, folder).result()


class Child:
    """A forked process that does some work."""

    def __init__(self, work: Callable[[], Any], folder: Path) -> None:
        preload()
        self.told = folder / f"told_{os.urandom(4).hex()}"
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.chdir(folder)
                found = work()
            except BaseException as error:  # noqa: BLE001 - reported to the parent
                traceback.print_exc()
                found = f"{type(error).__name__}: {error}"
            self.told.write_text(json.dumps(found))
            sys.stderr.flush()
            os._exit(0)

    def result(self) -> Any:
        """Waits for the end."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return json.loads(self.told.read_text()) if status == 0 else status


@cache
def preload() -> None:
    """Import once, for all forked processes, what each of them would import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch._dynamo", "relay.app.loops"):
            import_module(name)


def pair(work: Callable[[], Any], folder: Path) -> list[Any]:
    """The results of two processes that torchrun might have started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}

    def ranked(rank: int) -> Any:
        os.environ.update(meeting, RANK=str(rank), LOCAL_RANK=str(rank))
        return work()

    children = [Child(partial(ranked, rank), folder) for rank in range(2)]
    return [each.result() for each in children]


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
        if run.step == self.at - 2:
            run.commit()
        if run.step == self.at and isinstance(run._driven, DrivenSession):
            while run._driven._parts.lease.state.step < self.at - 1:
                time.sleep(0.01)
            ENDS[self.end][0](run)
