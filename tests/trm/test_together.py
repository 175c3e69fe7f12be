"""Several processes that share a batch: the bytes of one process with as many parts, and a label that says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from relay.core.lease.signals import REASONS
from relay.core.settings.origins import LEADER
from relay.core.workload import ProcessLost
from relay.torch import together
from relay.torch.faults import TaskError
from relay.torch.launch import is_follower, launched, meeting
from relay.torch.peers import PeerLost, Peers, _pack, _unpack
from relay.torch.snapshot import state_hash
from relay.torch.steps import groups
from relay.torch.together import dismiss
from relay.torch.workload import together as shared_batch
from tests.facts import raising
from tests.trm.small import small
from trm.journal import Journal
from trm.kernels.components import plain_components
from trm.kernels.fast_step import FastStep
from trm.optim import lr_scale
from trm.together import LeadingStep
from trm.train import EagerStep
from trm.workload import TrmWorkload

ROOT = Path(__file__).parent.parent.parent
TRAINING = """
import atexit, sys
from pathlib import Path
from relay.torch.launch import is_follower, launched
from relay.torch.together import dismiss, follow
from tests.trm import small
from trm.together import taken_over
from trm.train import EagerStep
from trm.workload import TrmWorkload
if is_follower():
    sys.exit(follow(taken_over))
if launched() > 1:
    atexit.register(dismiss)
root = Path(sys.argv[1])
work = TrmWorkload(small.SETTINGS(), root, "cpu", None if launched() > 1 else EagerStep(2))
work.start()
work.advance(3, lambda: False, lambda _: None)
folder = root / f"checkpoint{launched()}"
folder.mkdir()
work.snapshot().save(folder)
work.advance(5, lambda: False, lambda _: None)
work.load(folder)
work.advance(6, lambda: False, lambda _: None)
print(work.digest().path, work.digest().digest, *work.remarks)
"""


LOSING = """
import sys
from pathlib import Path
from relay.app import cli
from relay.torch.launch import is_follower
from relay.torch import together
from tests.trm.small import small
from trm.workload import TrmWorkload
if is_follower():
    cli.main()  # as a follower it runs no command
work = TrmWorkload(small(), Path(sys.argv[1]), "cpu")
work.start()
work.advance(2, lambda: False, None)
print("trains", flush=True)
work.advance(10**9, lambda: False, None)
"""
"""A leader that will be killed. tests/acceptance/test_several_processes.py has the other ends."""


class Twins:
    """Two processes as two threads: what relay/torch/peers.py promises, without a network."""

    def __init__(self) -> None:
        self.sent: dict[int, tuple] = {}
        self.barrier = threading.Barrier(2, timeout=60)

    def peer(self, rank: int) -> SimpleNamespace:
        def rows(batch: int) -> slice:
            return slice(rank * batch // 2, (rank + 1) * batch // 2)

        def exchange(sums, of_rows) -> None:
            self.sent[rank] = ([t.clone() for t in sums], [t[rows(len(t))].clone() for t in of_rows])
            self.barrier.wait()
            for index, total in enumerate(sums):
                total.copy_(self.sent[0][0][index] + self.sent[1][0][index])
            for index, tensor in enumerate(of_rows):
                tensor.copy_(torch.cat((self.sent[0][1][index], self.sent[1][1][index])))
            self.barrier.wait()

        return SimpleNamespace(size=2, rows=rows, exchange=exchange)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("mlp_t", [True, False])
def test_sharing_a_batch_gives_the_bytes_of_splitting_it(make, batch_at, fused: bool, mlp_t: bool) -> None:
    """The plain step and the hand-written one, each process holding the whole state after each step."""

    def step(**how):
        return FastStep(plain_components(), graph=False, **how) if fused else EagerStep(**how)

    changes = {"mlp_t": mlp_t, "pos_encodings": "none", "halt_exploration_prob": 0.5}
    split, shared, twins = make(0, **changes), [make(0, **changes), make(0, **changes)], Twins()
    table = shared[0].model.inner.puzzle_emb.weights
    before, journal = table.clone(), Journal(split.config.batch_size, table.shape[1], table.device, 0)
    shared[0].journal = journal  # the leader's alone

    decay = split.config.puzzle_emb_weight_decay

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        mine = step(peers=twins.peer(rank))
        for number in range(4):
            if rank == 0:
                journal.open(split.config.puzzle_emb_lr * lr_scale(split.config, number + 1), decay)
            mine(shared[rank], batch_at(number))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    alone = step(parts=2)
    for number in range(4):
        alone(split, batch_at(number))
    for thread in threads:
        thread.join(60)
    hashes = [state_hash(state.canonical(), state.step, 0) for state in (split, *shared)]
    assert hashes == [hashes[0]] * 3
    journal.take().record.replay(before)
    assert torch.equal(before, table), "its journal holds the signs of all processes' sums"


def test_groups_of_rows_are_named_for_the_path() -> None:
    two = Twins().peer(0)
    assert (groups(1, None), groups(3, None), groups(1, two), groups(3, two)) == ("", "/3", "/2", "/2x3")


def test_packing_keeps_bytes_shapes_and_types() -> None:
    tensors = [torch.arange(5.0), torch.tensor([True, False]), torch.randn(2, 3).bfloat16(), torch.zeros(0, 4)]
    found = _unpack(_pack(tensors), tensors)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(found, tensors, strict=True))


def test_a_batch_that_cannot_be_shared_evenly_is_refused() -> None:
    peers = Peers.__new__(Peers)
    peers.rank, peers.size = 1, 3
    assert peers.rows(9) == slice(3, 6)
    with raising(ValueError, 8, 3):
        peers.rows(8)
    with raising(TaskError, 8, 3):
        shared_batch(peers, 8)


@pytest.mark.parametrize("mark", ["TORCHELASTIC_RUN_ID", LEADER])
def test_only_a_launcher_makes_followers(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    """Clusters set RANK and WORLD_SIZE for their own purposes."""
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    for name in ("TORCHELASTIC_RUN_ID", LEADER):
        monkeypatch.delenv(name, raising=False)
    assert (launched(), is_follower()) == (1, False)
    monkeypatch.setenv(mark, "1")
    assert (launched(), is_follower()) == (4, True)
    monkeypatch.setenv("RANK", "0")
    assert not is_follower()


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["small", "small_arc"])
def test_two_processes_train_save_and_load_as_one_with_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], settings: str
) -> None:
    """Over gloo; a state that was loaded reaches the follower, and the follower ends with the leader."""
    training = TRAINING.replace("SETTINGS", settings)
    with _pair(tmp_path, training) as processes:
        said, errors = zip(*(process.communicate(timeout=90) for process in processes), strict=True)
    assert [process.returncode for process in processes] == [0, 0], errors
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path)])
    exec(training, {})  # noqa: S102 (the one process)
    together, alone = said[0].split(), capsys.readouterr().out.split()
    assert together[:6] == alone[:6]
    assert "batch=8/2" in together
    (line,) = [line for line in said[0].splitlines() if "TOGETHER" in line]
    assert all(number in line for number in "284"), "processes, the batch, rows each"


class Broken:
    """Peers of whom one is gone: from the first order on, or once the sums are exchanged."""

    size, answer_s = 2, 0.0

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once

    def rows(self, batch: int) -> slice:
        return slice(0, batch // 2)

    def order(self, what: object) -> None:
        if self.at_once:
            raise PeerLost("gone")

    def share(self, tensors: object) -> None: ...

    def exchange(self, sums: object, rows: object) -> None:
        raise PeerLost("gone")


@pytest.mark.parametrize("mlp_t", [True, False])
@pytest.mark.parametrize(
    ("fused", "at_once", "whole"), [(False, True, True), (False, False, True), (True, True, True), (True, False, False)]
)
def test_a_lost_process_leaves_the_step_before_whole_or_says_so(
    make, batch_at, mlp_t: bool, fused: bool, at_once: bool, whole: bool
) -> None:
    changes = {"mlp_t": mlp_t, "pos_encodings": "none", "halt_exploration_prob": 0.5}
    state, peers = make(0, **changes), Broken(at_once)
    alone = FastStep(plain_components(), graph=False) if fused else EagerStep()
    for number in range(3):
        alone(state, batch_at(number))
    before = state_hash(state.canonical(), state.step, 0)
    step = FastStep(plain_components(), graph=False, peers=peers) if fused else EagerStep(peers=peers)
    with pytest.raises(ProcessLost) as lost:
        LeadingStep(step, peers)(state, batch_at(3))
    assert lost.value.whole is whole
    assert state.step == 3 and (state_hash(state.canonical(), state.step, 0) == before or not whole)


def test_a_step_with_an_open_journal_is_never_whole(tmp_path: Path) -> None:
    """Its snapshot would name changes that were not made."""

    def lost(state: object, batch: object) -> None:
        raise ProcessLost("gone", whole=True)

    step = EagerStep()
    for shared, whole in ((None, True), (0, False)):
        work = TrmWorkload(small(), tmp_path, "cpu", step, shared_from=shared)
        work.start()
        work._step = lost  # type: ignore[assignment]
        with pytest.raises(ProcessLost) as found:
            work.advance(1, lambda: False, None)
        assert found.value.whole is whole


def test_a_leader_without_followers_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "meet", lambda: Broken(at_once=True))
    assert not dismiss()


@pytest.mark.slow
def test_a_follower_ends_shortly_after_a_leader_that_was_killed(tmp_path: Path) -> None:
    with _pair(tmp_path, LOSING) as (leader, follower):
        assert leader.stdout and leader.stdout.readline() == "trains\n"
        leader.kill()
        _, errors = follower.communicate(timeout=60)
    assert follower.returncode == 75 and "Traceback" not in errors and len(errors.splitlines()) <= 4, errors


@contextmanager
def _pair(folder: Path, program: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Leader and follower, which end with the block; pytest shows their output if the test fails."""
    with meeting(2) as ranks:
        processes = [_start(folder, rank | {"TORCHELASTIC_RUN_ID": "t"}, program) for rank in ranks]
        try:
            yield processes
        finally:
            for rank, process in enumerate(processes):
                process.kill()
                print(f"process {rank}:", *process.communicate(), file=sys.stderr)


def _start(folder: Path, environ: dict[str, str], program: str) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", program, str(folder)], subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | environ, stdout=pipe, stderr=pipe, text=True)


def test_a_follower_leaves_every_signal_to_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler sends SIGUSR1 to all processes of a job; unheard, it would end those that only follow."""
    heard: dict[int, object] = {}
    monkeypatch.setattr(signal, "signal", heard.__setitem__)
    monkeypatch.setattr(together, "meet", lambda: SimpleNamespace(obey=lambda: {"do": "stop"}, close=lambda: None))
    together.follow(lambda order, peers: None)  # type: ignore[arg-type,return-value]
    assert heard == dict.fromkeys(REASONS, signal.SIG_IGN)
