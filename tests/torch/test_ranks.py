"""Two processes of one loop (DDP over gloo) that sessions share have the bytes of the same loop without a relay."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import relay
from relay.core.clock import RealRuntime
from relay.core.errors import Exit
from relay.core.ledger import frozen
from relay.core.ledger.ledger import RunLedger
from relay.core.runs.opening import ConfigDiffers
from relay.torch import ranks
from relay.torch.peers import LONGEST_ORDER
from storage.local import LocalStore
from tests.torch import ownloops

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TARGET = 20
Act = Callable[[Any, int], None]
"""Called in an iteration with the session and the rank."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path


def state(here: Path) -> Any:
    return RunLedger(LocalStore(here / "relay_store"), "ada", "net", RealRuntime()).read().state


class Loop:
    """Each process drops other neurons, sees other rows, and draws from a generator of its own."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(42, 6))
        net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 6))
        self.net = DistributedDataParallel(net)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.loader = DataLoader(data, 3, sampler=DistributedSampler(data, seed=2))
        self.dice = torch.Generator().manual_seed(rank)
        torch.manual_seed(rank)

    def train(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=self.dice)
        loss: Tensor = ((self.net(x + 0.1 * noise) - x) ** 2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss

    def digest(self) -> str:
        """Of everything that decides the next step here, and that no other process holds."""
        moments = [value for one in self.net.parameters() for _, value in sorted(self.opt.state[one].items())]
        tensors = [*self.net.parameters(), *moments, self.dice.get_state(), torch.get_rng_state()]
        return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()


def pair(here: Path, work: Callable[[int], Any]) -> list[Any]:
    """The results of two connected processes."""

    def connected() -> Any:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        return work(dist.get_rank())

    return ownloops.pair(connected, here)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of the loop without a relay."""
    return pair(tmp_path_factory.mktemp("plain"), plain)


def plain(rank: int) -> str:
    loop, steps, epoch = Loop(rank), 0, 0
    while True:
        loop.loader.sampler.set_epoch(epoch)
        epoch += 1
        for (x,) in loop.loader:
            loop.train(x)
            steps += 1
            if steps == TARGET:
                return loop.digest()


def relayed(account: str, act: Act | None = None, at: int = 0, **more: Any) -> Callable[[int], dict[str, Any]]:
    """One session; `act` is called in the iteration of step `at`, after that step if `at` is negative."""

    def work(rank: int) -> dict[str, Any]:
        loop = Loop(rank)
        with relay.session("ada/net", **{"target_steps": TARGET, "account": account, "every_steps": 5, **more}) as run:
            run.track(model=loop.net, optimizer=loop.opt, dice=loop.dice)
            began = run.step
            for (x,) in run.batches(loop.loader):
                if act is not None and run.step + 1 == at:
                    act(run, rank)
                run.log(loss=loop.train(x))
                if act is not None and run.step + 1 == -at:
                    act(run, rank)
        found = {"code": int(run.outcome.exit_code), "began": began, "durable": run.outcome.durable_step}
        return found | {"certified": run.certified, "digest": loop.digest()}

    return work


def only(rank: int, number: signal.Signals) -> Act:
    """The signal reaches only that process."""

    def act(run: Any, me: int) -> None:
        if me == rank:
            os.kill(os.getpid(), number)

    return act


def terminated(run: Any, rank: int) -> None:
    """A scheduler, or a terminal, signals every process."""
    os.kill(os.getpid(), signal.SIGTERM)


def stop(run: Any, rank: int) -> None:
    run.stop()


def test_three_sessions_have_the_bytes_of_the_plain_loop(here: Path, unbroken: list[str]) -> None:
    first = pair(here, relayed("ana", terminated, 8))
    assert [(one["code"], one["durable"]) for one in first] == [(143, 8)] * 2
    second = pair(here, relayed("ben", stop, 13))
    assert [(one["code"], one["began"], one["durable"]) for one in second] == [(75, 8, 13)] * 2
    third = pair(here, relayed("cem"))
    assert [(one["code"], one["certified"], one["durable"]) for one in third] == [(0, "exact", TARGET)] * 2
    assert [one["digest"] for one in third] == unbroken
    assert len(set(unbroken)) == 2, "each process has its own streams"
    again = pair(here, relayed("ana"))
    assert [(one["code"], one["began"]) for one in again] == [(0, TARGET)] * 2, "a reached target loads the state"
    with pytest.raises(ConfigDiffers) as alone, relay.session("ada/net", target_steps=TARGET) as run:
        run.track(model=nn.Linear(1, 1))
    assert [one.key for one in alone.value.changed] == ["processes"]


def killed(rank: int) -> Act:
    """Once step 5 is committed."""

    def act(run: Any, me: int) -> None:
        while me == 0 and run._driven._parts.lease.state.step < 5:
            time.sleep(0.01)
        if me == rank:
            os.kill(os.getpid(), signal.SIGKILL)

    return act


@pytest.mark.parametrize(
    ("rank", "at", "other"), [(0, 8, "PeerLost|RuntimeError"), (1, 8, "RuntimeError.*gloo"), (1, -8, "")]
)
def test_a_killed_process_costs_the_steps_since_the_last_commit(
    here: Path, unbroken: list[str], rank: int, at: int, other: str
) -> None:
    """In a step, and between two steps."""
    found = pair(here, relayed("ana", killed(rank), at))
    assert found[rank] == -signal.SIGKILL
    known, left = state(here), found[1 - rank]
    assert re.match(other, left) if other else left["code"] == 75
    assert (known.step, known.incidents, known.links[0].end == frozen.PROCESS_LOST) == (5, (), rank == 1)
    last = pair(here, relayed("ben", wait_minutes=1))
    assert [(one["began"], one["certified"], one["code"]) for one in last] == [(5, "exact", 0)] * 2
    assert [one["digest"] for one in last] == unbroken


def other_config(rank: int) -> dict[str, Any]:
    return {"config": {"lr": rank}}


def other_target(rank: int) -> dict[str, Any]:
    return {"target_steps": TARGET + rank}


@pytest.mark.parametrize(("change", "name"), [(other_config, "config.lr"), (other_target, "target_steps")])
def test_processes_that_differ_are_refused(here: Path, change: Callable[[int], dict[str, Any]], name: str) -> None:
    found = pair(here, lambda rank: relayed("ana", **change(rank))(rank))
    assert found[0].startswith("RanksDiffer") and found[1].startswith("EndedByFirst")
    assert all(name in one for one in found) and not (here / "relay_store").exists()


def other_weights(rank: int) -> str:
    """They do not exchange their gradients."""
    torch.manual_seed(rank)
    net = nn.Linear(2, 2)
    with relay.session("ada/net", target_steps=3, every_steps=2) as run:
        run.track(net=net)
        for _ in run.steps():
            pass
    return "ended"


def test_processes_with_other_weights_are_refused_before_the_first_commit(here: Path) -> None:
    first, second = pair(here, other_weights)
    assert "RanksDiffer: Process 1 differs from process 0: net" in first and "net" in second
    assert state(here).head is None


def test_an_error_before_the_lease_ends_every_process(here: Path) -> None:
    pair(here, relayed("ana", stop, 3))
    found = pair(here, relayed("ana", config={"lr": 3}))
    assert found[0].startswith("ConfigDiffers") and found[1].startswith("EndedByFirst")


def test_an_error_of_any_length_fits_into_an_order() -> None:
    told: list[dict[str, Any]] = []
    ranks.end(cast(Any, SimpleNamespace(order=told.append)), None, ValueError("\0" * 10**6))
    assert len(json.dumps(told[0])) < LONGEST_ORDER and told[0]["code"] == Exit.BUG


def several_hosts(rank: int) -> Any:
    ranks.read_boot_id = lambda: f"host {rank}"  # type: ignore[assignment]
    return relayed("ana")(rank)


def test_several_hosts_are_refused(here: Path) -> None:
    assert [one.split(":")[0] for one in pair(here, several_hosts)] == ["SeveralHosts"] * 2


def evaluated(rank: int) -> Any:
    """The metric comes from all processes."""
    loop, seen = Loop(rank), []
    with relay.session("ada/net", target_steps=TARGET, every_steps=5, monitor="score") as run:
        run.track(model=loop.net, optimizer=loop.opt, dice=loop.dice)

        def score() -> dict[str, float]:
            total = torch.rand(1) * 0 + rank + 1
            dist.all_reduce(total)
            seen.append(run.step)
            return {"score": float(total)}

        run.evaluate(score, every_commits=2)
        for (x,) in run.batches(loop.loader):
            loop.train(x)
    return seen, loop.digest()


def test_every_process_evaluates_the_committed_state(here: Path, unbroken: list[str]) -> None:
    assert pair(here, evaluated) == [[[10, TARGET], digest] for digest in unbroken]
    assert state(here).metrics["eval/score"] == 3.0


def left_alone(rank: int) -> Any:
    """Only one leaves its loop."""
    with relay.session("ada/net", target_steps=TARGET) as run:
        run.track(net=nn.Linear(2, 2))
        for _ in run.steps():
            if rank == 1:
                break
    return int(run.outcome.exit_code)


def test_a_process_that_leaves_the_loop_alone_ends_the_session(here: Path) -> None:
    first, second = pair(here, left_alone)
    assert first == 75 and second.startswith("RanksDiffer")
