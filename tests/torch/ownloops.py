"""A small loop with and without a relay, each session in a forked process: the parent only imports torch."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relay
import relay.app.loops  # once, for all forked processes

TARGET = 24
Act = Callable[[Any], None]
"""Called in an iteration with the session."""


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


def relayed(account: str, act: Act | None = None, at: int = 0, workers: int = 0, **more: Any) -> dict[str, Any]:
    """One session; `act` is called in the iteration of step `at`."""
    loop = Loop(workers)
    with relay.session("ada/net", **{"target_steps": TARGET, "account": account, "every_steps": 5, **more}) as run:
        run.track(model=loop.net, optimizer=loop.opt, scheduler=loop.schedule)
        began = run.step
        for (x,) in run.batches(loop.loader):
            run.log(loss=loop.train(x))
            if act is not None and run.step + 1 == at:
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


def send(number: signal.Signals) -> Act:
    def act(run: Any) -> None:
        os.kill(os.getpid(), number)

    return act
