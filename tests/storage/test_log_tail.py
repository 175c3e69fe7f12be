"""PROTOCOL P2, tail: found in few reads, with or without a hint, and no hole is taken for it."""

from __future__ import annotations

import json

import pytest

from storage.base import (
    Denied,
    LostEntry,
    Missing,
    StoreError,
    Throttled,
    Unavailable,
)
from storage.log import Hint
from storage.slots import LAST_SEQ, listed
from tests.facts import raising
from tests.storage.helpers import PREFIX, LogWorld

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 255, 256, 257, 1000])
def test_the_tail_is_found_from_any_honest_hint(world: LogWorld, count: int) -> None:
    world.fill(range(count))
    assert world.log.tail() == count - 1
    for hint in {0, count // 2, count - 2, count - 1} & set(range(count)):
        assert world.log.tail(hint) == count - 1


def test_ten_thousand_entries_cost_under_thirty_reads_and_two_with_a_fresh_hint(world: LogWorld) -> None:
    world.fill(range(10_000))
    assert world.log.tail() == 9_999
    assert world.counting.reads < 30
    world.counting.counts.clear()
    assert world.log.tail(9_999) == 9_999
    assert world.counting.reads == 2
    world.counting.counts.clear()
    assert world.log.tail(9_900) == 9_999
    assert world.counting.reads <= 15
    assert world.counting.counts.keys() == {"stat"}, "the tail never lists"


@pytest.mark.parametrize("error", [Denied("403"), Unavailable("timeout"), Throttled("slow down")])
def test_only_missing_is_a_tail(world: LogWorld, error: StoreError) -> None:
    world.fill(range(5))
    world.faulty.script("stat", "ok", error)
    with pytest.raises(type(error)):
        world.log.tail()


def test_a_hint_beyond_the_tail_is_a_lost_entry_and_names_it(world: LogWorld) -> None:
    world.fill(range(10))
    world.lose(9)
    with raising(LostEntry, world.log.name(9)) as caught:
        world.log.tail(9)
    assert caught.value.seq == 9


def test_a_hint_over_an_emptied_log_is_a_lost_entry(world: LogWorld) -> None:
    with pytest.raises(LostEntry) as caught:
        world.log.tail(3)
    assert caught.value.seq == 0


@pytest.mark.parametrize("hole", range(19))
def test_a_hole_is_never_taken_for_the_tail(world: LogWorld, hole: int) -> None:
    world.fill(range(20))
    world.lose(hole)
    tail = world.log.tail()
    assert tail in (hole - 1, 19)
    assert world.log.gaps(tail) == [hole]


def test_several_holes_are_found(world: LogWorld) -> None:
    world.fill(range(20))
    world.lose(5)
    world.lose(12)
    assert world.log.gaps(world.log.tail()) == [5, 12]


def test_a_log_that_grows_meanwhile_has_no_hole(world: LogWorld) -> None:
    world.fill(range(10))
    tail = world.log.tail()
    world.fill(range(10, 13))
    assert world.log.gaps(tail) == []
    empty = LogWorld()
    assert empty.log.gaps(-1) == []


def test_a_listing_that_hides_shows_no_hole_and_costs_bounded_reads(world: LogWorld) -> None:
    world.fill(range(500))
    world.faulty.hide = 0.9
    assert world.log.gaps(499, confirm=16) == []
    assert world.counting.reads == 16


def test_foreign_names_beside_the_entries_are_ignored(world: LogWorld) -> None:
    world.fill(range(3))
    for name in ("x.json", "9" * 20 + ".json", "0" * 19 + ".json", "0" * 18 + "50.json.tmp", "0" * 18 + "50/x.json"):
        world.memory.put(PREFIX + name, b"")
    assert world.log.gaps(2) == []


def test_a_name_with_the_number_after_the_last_slot_is_no_slot(world: LogWorld) -> None:
    world.memory.put(f"{PREFIX}{LAST_SEQ:020d}.json", b"x")
    assert listed(world.memory, PREFIX) == [] and world.log.gaps(-1) == []
    world.memory.put(f"{PREFIX}{LAST_SEQ - 1:020d}.json", b"x")
    assert listed(world.memory, PREFIX) == [LAST_SEQ - 1]


def test_a_hint_is_read_back_and_replaced(world: LogWorld) -> None:
    assert world.log.hint() is None
    world.log.publish_hint(1, "a" * 64)
    world.log.publish_hint(7, DIGEST)
    assert world.other.hint() == Hint(7, world.log.ref(7), DIGEST)
    assert [stat.name for stat in world.memory.list("")] == ["runs/p/r/ledger.hint"]


GOOD = {"seq": 7, "ref": "x", "digest": DIGEST}


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"\xff\xfe", b"null", b"[]", b"7", b"{", b"[" * 4000, b" " * 10_000, b"NaN",
        json.dumps(GOOD | {"seq": True}).encode(), json.dumps(GOOD | {"seq": "7"}).encode(),
        json.dumps(GOOD | {"seq": -1}).encode(), json.dumps(GOOD | {"seq": 2**53}).encode(),
        json.dumps(GOOD | {"seq": 7.0}).encode(), json.dumps(GOOD | {"ref": None}).encode(),
        json.dumps(GOOD | {"digest": 5}).encode(),
        json.dumps(GOOD | {"digest": "A" * 64}).encode(), json.dumps(GOOD | {"digest": DIGEST + "\n"}).encode(),
        json.dumps(GOOD | {"more": 1}).encode(), json.dumps({"seq": 7}).encode(),
    ],
)  # fmt: skip
def test_a_garbled_hint_is_no_hint(world: LogWorld, garbage: bytes) -> None:
    world.memory.put("runs/p/r/ledger.hint", garbage)
    assert world.log.hint() is None


def test_a_hint_that_cannot_be_read_is_not_an_absent_one(world: LogWorld) -> None:
    world.faulty.script("get", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        world.log.hint()


def test_reading_an_empty_slot_is_missing(world: LogWorld) -> None:
    with pytest.raises(Missing):
        world.log.read(0)
