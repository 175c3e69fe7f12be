"""The self-test refuses each way in which a store can break its promises, by name."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from relay.core.runs.opening import ensure_tested, passed
from storage.base import BadAddress, BlockHash, Denied, Exists, Ref, Stat, Unavailable
from storage.capabilities import Doubt
from storage.memory import MemoryStore
from storage.selftest import FEW, MANY, self_test
from storage.wrapper import Wrapper
from tests.core.making import QuietRuntime
from tests.facts import raising
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore

RACE = threading.Barrier(8)


class Overwrites(Wrapper):
    """Accepts the condition and ignores it."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.inner.put(name, data)


class ChecksThenActs(Wrapper):
    """Refuses when the name was taken a moment ago: several racers win."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        if any(stat.name == name for stat in list(self.inner.list(name))):
            raise Exists(name)
        if "race" in name:
            RACE.wait(timeout=5)
        return self.inner.put(name, data)


class MixesUpBodies(Wrapper):
    """One winner, but another's bytes are stored."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.inner.put_if_absent(name, b"racer 99" if "race" in name else data)


class RefusesButWrites(Wrapper):
    def put_if_absent(self, name: str, data: bytes) -> Ref:
        try:
            return self.inner.put_if_absent(name, data)
        except Exists:
            self.inner.put(name, data)
            raise


class IgnoresRanges(Wrapper):
    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self.inner.get(ref)


class KeepsDeleted(Wrapper):
    def delete(self, ref: Ref) -> None:
        pass


class Truncates(Wrapper):
    def put(self, name: str, data: bytes | Path) -> Ref:
        assert isinstance(data, bytes)
        return self.inner.put(name, data[:-1])


class Miscounts(Wrapper):
    """Tells hashes that are not those of what it stores."""

    def stat(self, ref: Ref) -> Stat:
        return replace(self.inner.stat(ref), sha256="0" * 64)


class MiscountsBlocks(Wrapper):
    def stat(self, ref: Ref) -> Stat:
        return replace(self.inner.stat(ref), block_hash=BlockHash(1000, "0" * 64))


@pytest.mark.parametrize(
    "broken",
    [
        Miscounts,
        MiscountsBlocks,
        Overwrites,
        ChecksThenActs,
        MixesUpBodies,
        RefusesButWrites,
        IgnoresRanges,
        KeepsDeleted,
        Truncates,
    ],
)
def test_a_store_that_breaks_a_promise_is_refused_by_name(broken: type[Wrapper]) -> None:
    with raising(BadAddress, "memory://broken"):
        self_test(broken(MemoryStore("broken")))


def test_it_writes_only_under_selftest_with_unique_names_and_cleans_up() -> None:
    written: list[str] = []

    class Notes(Wrapper):
        def put(self, name: str, data: bytes | Path) -> Ref:
            written.append(name)
            return self.inner.put(name, data)

        def put_if_absent(self, name: str, data: bytes) -> Ref:
            written.append(name)
            return self.inner.put_if_absent(name, data)

    memory = MemoryStore()
    self_test(Notes(memory))
    first = set(written)
    written.clear()
    self_test(Notes(memory))
    assert all(name.startswith("selftest/") for name in first)
    assert first.isdisjoint(written)
    assert list(memory.list("")) == []


def test_two_at_once_do_not_disturb_each_other_and_cost_few_requests() -> None:
    counting = CountingStore(MemoryStore())
    self_test(counting)
    assert sum(counting.counts.values()) < 30


class Anyones(MemoryStore):
    """On a server of which nothing is known."""

    known = Doubt(unknown=True)

    def doubt(self) -> Doubt:
        return self.known


class LetsTwoWin(Anyones):
    """In three races of a hundred, by a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = Random(seed)
        self.again: dict[str, bool] = {}
        self.lock = threading.Lock()

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        with self.lock:
            if self.again.setdefault(name, "race" in name and self.chance.random() < 0.03):
                self.again[name] = any(stat.name == name for stat in self.list(name)) is False
                return self.put(name, data)
        return super().put_if_absent(name, data)


def test_a_server_that_lets_two_win_in_three_of_a_hundred_races_is_refused() -> None:
    assert (1 - 0.03) ** MANY < 0.01
    for seed in range(10):
        with raising(BadAddress):
            self_test(LetsTwoWin(seed), sleep=lambda _: None)


def test_an_unknown_server_races_more_than_a_documented_one_and_both_leave_nothing() -> None:
    raced = []
    for store in (Anyones(), MemoryStore()):
        counting = CountingStore(store)
        self_test(counting)
        raced.append(counting.counts["put_if_absent"])
        assert list(store.list("")) == []
    assert raced == [2 + 8 * MANY, 2 + 8 * FEW]


def test_a_server_known_to_break_the_promise_is_refused_by_its_name() -> None:
    store = Anyones()
    store.known = Doubt(unknown=True, refused="moto")
    with raising(BadAddress, "moto"):
        self_test(store)


def test_a_store_that_passed_fewer_races_is_tested_again() -> None:
    """The note of one race does not count where many are needed; folders and AWS keep theirs."""
    store, few = Anyones(), MemoryStore()
    store.put(passed(few), b"{}")
    assert passed(store) != passed(few)
    ensure_tested(store, QuietRuntime(1))
    counting = CountingStore(store)
    ensure_tested(counting, QuietRuntime(2))
    assert counting.writes == 0


def test_lost_replies_in_a_race_are_raced_again() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.script("put_if_absent", "ok", "ok", *["before"] * 8, *["after"] * 3)
    self_test(faulty)


def test_a_read_only_store_is_denied_and_a_dead_one_unavailable() -> None:
    with pytest.raises(Denied):
        self_test(MemoryStore(read_only=True))
    with pytest.raises(Unavailable):
        self_test(FaultyStore(MemoryStore(), before=1.0))
