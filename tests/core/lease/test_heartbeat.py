"""A heartbeat is only sent while work is being done; after a silence the session checks its lease first (P5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from relay.core.lease.heartbeat import Heartbeat, read_stop_request, request_stop, sign_of_life
from relay.core.lease.signals import StopSignal
from relay.core.ledger.canonical import dumps
from relay.core.names import Names
from storage.base import Unavailable
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.fake_runtime import Process, World
from tests.core.lab import ProcessStore

TTL = 180.0
NAMES = Names("toys", "chain")


@dataclass
class Bench:
    """One process with nothing but a heartbeat and a clock."""

    world: World = field(default_factory=World)
    superseded: bool = False
    looks: int = 0

    def __post_init__(self) -> None:
        self.process: Process = self.world.process()
        self.store = ProcessStore(MemoryStore(clock=lambda: self.world.now), self.process)
        self.signal = StopSignal()
        self.heart = Heartbeat(self.process, self.store, NAMES, 3, TTL, self._look, self.signal)

    def _look(self) -> bool:
        self.looks += 1
        return self.superseded

    def live(self, body: object) -> None:
        def main() -> None:
            self.heart.start()
            body()

        self.process.start(main)
        self.world.run()

    @property
    def beats(self) -> int:
        return sum(call == ("put", NAMES.heartbeat(3)) for call in self.store.calls)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.world.close()


def steps(bench: Bench, count: int, seconds: float) -> None:
    for step in range(1, count + 1):
        bench.process.sleep(seconds)
        bench.heart.progress(step)


def test_a_training_session_beats_every_sixth_of_the_ttl(bench: Bench) -> None:
    bench.live(lambda: steps(bench, 600, 1.0))
    assert bench.beats == pytest.approx(600 / (TTL / 6), abs=1)
    assert bench.looks == 0, "no gap, no look at the tail"
    assert bench.world.now - sign_of_life(bench.store.inner, NAMES, 3) <= TTL / 6 + 1


def test_without_progress_it_falls_silent(bench: Bench) -> None:
    bench.live(lambda: bench.process.sleep(2000))
    assert bench.beats <= 3


def test_a_bounded_phase_counts_as_work_until_its_bound(bench: Bench) -> None:
    def body() -> None:
        with bench.heart.phase(600.0):
            bench.process.sleep(3000)

    bench.live(body)
    assert 600 / 30 - 2 <= bench.beats <= 600 / 30 + 1


def test_slow_steps_are_no_silence_once_they_are_known(bench: Bench) -> None:
    bench.live(lambda: steps(bench, 20, 150.0))
    assert bench.beats >= 20 * 150 / 30 - 10


def test_after_a_gap_it_looks_at_the_tail_before_the_next_beat(bench: Bench) -> None:
    bench.world.at(bench.world.now + 100, lambda: bench.process.suspend(500))
    bench.live(lambda: steps(bench, 300, 1.0))
    assert bench.looks >= 1 and bench.signal.reason is None and bench.beats > 5


def test_who_found_the_lease_its_own_need_not_look_again_at_once(bench: Bench) -> None:
    bench.world.now += TTL
    assert bench.heart.still_ours() and bench.heart.still_ours()
    assert bench.looks == 1


def test_superseded_in_the_gap_it_never_beats_again_and_tells_the_session(bench: Bench) -> None:
    def asleep() -> None:
        bench.process.suspend(500)
        bench.superseded = True

    bench.world.at(bench.world.now + 100, asleep)
    bench.live(lambda: steps(bench, 900, 1.0))
    assert bench.signal.reason == "fenced"
    assert bench.beats == 3, "those before it slept"
    assert not bench.heart.still_ours(), "and nothing may be deleted either"


def test_a_tail_that_cannot_be_read_keeps_it_silent(bench: Bench) -> None:
    def refuse() -> bool:
        raise Unavailable("down")

    bench.heart._superseded = refuse
    bench.world.at(bench.world.now + 100, lambda: bench.process.suspend(500))
    bench.live(lambda: steps(bench, 300, 1.0))
    assert bench.beats == 3 and bench.signal.reason is None


def test_where_a_listing_is_asked_another_epoch_is_no_sign_of_life() -> None:
    """As on a store whose names are not unique; `heartbeat.12` begins as `heartbeat.1` does."""
    memory = MemoryStore(clock=lambda: 7.0)
    store = Wrapper(memory)
    store.unique_names = False
    memory.put(NAMES.heartbeat(12), b"")
    assert sign_of_life(store, NAMES, 1) is None
    assert sign_of_life(store, NAMES, 12) == 7.0


def test_a_request_to_stop_is_for_one_epoch_and_read_as_a_strangers_word() -> None:
    store = MemoryStore()
    assert read_stop_request(store, NAMES, 3) is None
    request_stop(store, NAMES, 3, "x" * 1000)
    assert read_stop_request(store, NAMES, 3) == "x" * 200
    assert read_stop_request(store, NAMES, 4) is None
    for hostile in (b"", b"[]", dumps({"format": 2, "epoch": 3}), dumps({"format": 1, "epoch": 4}), b"x" * 100_000):
        store.put(NAMES.stop(3), hostile)
        assert read_stop_request(store, NAMES, 3) is None
