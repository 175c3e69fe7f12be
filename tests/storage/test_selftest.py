"""The self-test refuses each way in which a store can break its promises, by name."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from storage.base import BadAddress, BlockHash, Denied, Exists, Ref, Stat, Unavailable
from storage.memory import MemoryStore
from storage.selftest import self_test
from storage.wrapper import Wrapper
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


def test_lost_replies_in_a_race_are_raced_again() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.script("put_if_absent", "ok", "ok", *["before"] * 8, *["after"] * 3)
    self_test(faulty)


def test_a_read_only_store_is_denied_and_a_dead_one_unavailable() -> None:
    with pytest.raises(Denied):
        self_test(MemoryStore(read_only=True))
    with pytest.raises(Unavailable):
        self_test(FaultyStore(MemoryStore(), before=1.0))
