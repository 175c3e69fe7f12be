"""Parts of killed uploads are found and given up through every wrapper; other stores have none."""

from __future__ import annotations

from collections.abc import Iterator

from relay.core.checkpoint.collect import sweep_parts
from relay.core.names import Names
from storage.base import Unavailable
from storage.capabilities import give_up, unfinished
from storage.memory import MemoryStore
from storage.retry import RetryStore
from tests.storage.counting import CountingStore

NAMES = Names("p", "r")


class KeepsPartsInMemory(MemoryStore):
    """Has the parts of `names`."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.left = list(names)

    def unfinished(self, prefix: str) -> Iterator[tuple[str, float]]:
        return iter([(name, 0.0) for name in self.left if name.startswith(prefix)])

    def give_up(self, name: str) -> None:
        self.left = [left for left in self.left if left != name]


def test_they_are_found_and_given_up_through_wrappers() -> None:
    inner = KeepsPartsInMemory("a/x", "a/x", "a/y", "b")
    store = RetryStore(CountingStore(inner), sleep=lambda _: None, jitter=lambda: 0.0)
    assert unfinished(store, "a/") == ["a/x", "a/y"]
    give_up(store, "a/x")
    assert inner.left == ["a/y", "b"]


def test_other_stores_have_none() -> None:
    store = CountingStore(MemoryStore())
    assert unfinished(store, "") == []
    give_up(store, "a")
    assert sum(store.counts.values()) == 0


def test_only_those_of_this_run_and_of_superseded_epochs_go() -> None:
    """Those of the newest epoch may still become a file that an entry names (P8)."""
    old, new, strange = NAMES.checkpoint(5, 2) + "x", NAMES.checkpoint(5, 3) + "x", NAMES.checkpoints + "strange"
    other = Names("p", "other").checkpoint(1, 1) + "x"
    store = KeepsPartsInMemory(old, new, strange, other)
    sweep_parts(store, NAMES, 3)
    assert store.left == [new, strange, other]


def test_a_server_that_does_not_answer_costs_nothing() -> None:
    class Silent(KeepsPartsInMemory):
        def unfinished(self, prefix: str) -> Iterator[tuple[str, float]]:
            raise Unavailable("no answer")

    sweep_parts(Silent(), NAMES, 3)
