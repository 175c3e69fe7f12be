"""RetryStore asks again when there was no answer, and only then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from storage.base import Denied, Exists, Missing, QuotaExceeded, Store, StoreError, Throttled, Unavailable
from storage.memory import MemoryStore
from storage.retry import RetryStore
from storage.wrapper import Wrapper
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore

VERBS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("a", b"new"),
    "get": lambda store: store.get(store.ref("a")),
    "read_range": lambda store: store.read_range(store.ref("a"), 1, 2),
    "stat": lambda store: store.stat(store.ref("a")).size,
    "delete": lambda store: store.delete(store.ref("a")),
    "list": lambda store: [stat.name for stat in store.list("")],
    "now": lambda store: store.now(),
}


class World:
    def __init__(self, jitter: float = 1.0) -> None:
        self.memory = MemoryStore(clock=lambda: 7.0)
        self.memory.put("a", b"data")
        self.faulty = FaultyStore(self.memory)
        self.counting = CountingStore(self.faulty)
        self.slept: list[float] = []
        self.store = RetryStore(self.counting, sleep=self.slept.append, jitter=lambda: jitter)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", ["before", "after", "throttled"])
def test_every_repeatable_verb_is_repeated(verb: str, fault: str) -> None:
    expected = VERBS[verb](World().memory)
    world = World()
    world.faulty.script(verb, fault, fault)
    assert VERBS[verb](world.store) == expected
    assert world.counting.counts[verb] == 3
    assert world.slept == ([3.0, 3.0] if fault == "throttled" else [0.5, 1.0])


@pytest.mark.parametrize("verb", VERBS)
def test_patience_ends_with_the_stores_own_error(verb: str) -> None:
    world = World(jitter=0.0)
    world.faulty.script(verb, *["before"] * 6)
    with pytest.raises(Unavailable):
        VERBS[verb](world.store)
    assert world.slept == [0.25, 0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("error", [Missing("gone"), Denied("no"), QuotaExceeded("full"), StoreError("odd")])
def test_an_answer_is_an_answer(error: StoreError) -> None:
    for verb, ask in VERBS.items():
        world = World()
        world.faulty.script(verb, error)
        with pytest.raises(type(error)):
            ask(world.store)
        assert world.slept == []


def test_put_if_absent_is_sent_once() -> None:
    world = World()
    world.faulty.script("put_if_absent", "after")
    with pytest.raises(Unavailable):
        world.store.put_if_absent("b", b"")
    assert world.counting.counts["put_if_absent"] == 1
    with pytest.raises(Exists):
        world.store.put_if_absent("b", b"")


class _BreaksOff(Wrapper):
    """Listings that break off after every third object."""

    def list(self, prefix, *, after=None):  # type: ignore[no-untyped-def]
        for number, stat in enumerate(self.inner.list(prefix, after=after)):
            if number == 3:
                raise Unavailable("the connection broke")
            yield stat


def test_a_listing_goes_on_where_it_broke_off() -> None:
    memory = MemoryStore()
    names = [f"n{number:03d}" for number in range(50)]
    for name in names:
        memory.put(name, b"")
    slept: list[float] = []
    store = RetryStore(_BreaksOff(memory), sleep=slept.append, jitter=Random(1).random, attempts=2)
    assert [stat.name for stat in store.list("n", after="n004")] == names[5:]
    assert len(slept) == 14
    assert max(slept) <= 0.5


def test_who_asks_for_no_wait_is_given_one_that_grows() -> None:
    world = World()
    world.faulty.script("now", *[Throttled("slow down", retry_after=after) for after in (0.0, 0.0, 90.0)])
    assert world.store.now() == 7.0
    usual, then, asked = world.slept
    assert 0 < usual < then < asked == 90.0


def test_waits_are_bounded() -> None:
    world = World()
    store = RetryStore(world.counting, sleep=world.slept.append, jitter=lambda: 1.0, attempts=12)
    world.faulty.script("now", *["before"] * 11)
    assert store.now() == 7.0
    assert max(world.slept) == 30.0
