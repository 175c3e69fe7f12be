"""Waits for other processes are bounded, and end at once when a process is gone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch

from relay.torch import peers as module
from relay.torch.peers import PeerLost, Peers


class Work:
    """A collective that is `done` after some waits, or fails then."""

    def __init__(self, waits: float, error: str = "") -> None:
        self.left, self.error, self.slices = waits, error, list[timedelta]()

    def wait(self, slice_s: timedelta) -> None:
        self.slices.append(slice_s)
        self.left -= 1
        if self.left > 0:
            raise RuntimeError("Operation timed out!")
        if self.error:
            raise RuntimeError(self.error)

    def is_completed(self) -> bool:
        return self.left <= 0


@pytest.fixture
def leader() -> Iterator[Peers]:
    """Without a network."""
    peers = Peers.__new__(Peers)
    peers.rank, peers.size, peers.lost, peers.answer_s, peers._watches = 0, 2, "", 120.0, []
    peers._orders = None
    yield peers


def collective(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    def begun(*_: object, **__: object) -> Work:
        return work

    monkeypatch.setattr(module, "dist", SimpleNamespace(broadcast=begun, all_gather=begun))


def test_a_slow_answer_is_awaited_in_parts(leader: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(waits=100)
    collective(monkeypatch, work)
    leader.share([torch.zeros(3)])
    assert len(work.slices) == 100 and max(work.slices) <= timedelta(seconds=1), "signals are heard in between"


@pytest.mark.parametrize("verb", ["share", "order", "exchange"])
def test_no_answer_ends_the_wait_and_every_later_one(leader: Peers, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def call() -> None:
        match verb:
            case "share":
                leader.share([torch.zeros(3)])
            case "order":
                leader.order({"do": "step"})
            case _:
                leader.exchange([torch.zeros(3)], [torch.zeros(4)])

    work = Work(waits=float("inf"))
    collective(monkeypatch, work)
    with pytest.raises(PeerLost) as lost:
        call()
    assert len(work.slices) == 120 and lost.value.exit_code == 75 and "120" in str(lost.value)
    with pytest.raises(PeerLost):
        call()
    assert len(work.slices) == 120, "nothing is sent any more"


def test_a_closed_connection_ends_the_wait_at_once(leader: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(waits=3, error="Connection closed by peer")
    collective(monkeypatch, work)
    with pytest.raises(PeerLost):
        leader.order({"do": "step"})
    assert len(work.slices) == 3


def test_a_watch_that_sees_a_process_go_ends_a_wait(leader: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise RuntimeError("Connection closed by peer")

    work = Work(waits=float("inf"))
    collective(monkeypatch, work)
    monkeypatch.setattr(module.dist, "recv", gone, raising=False)
    leader._signs = None
    leader._watch(1)
    with pytest.raises(PeerLost, match="2 of 2"):
        leader.check()
    with pytest.raises(PeerLost):
        leader.share([torch.zeros(3)])
