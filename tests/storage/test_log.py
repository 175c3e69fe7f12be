"""PROTOCOL P2: one winner a slot whatever the answers say, a tail found in few reads, and no hole taken for a tail."""

from __future__ import annotations

import json
from random import Random

import pytest

from storage.base import (
    BadAddress,
    Denied,
    Exists,
    LostEntry,
    Missing,
    OutcomeUnknown,
    QuotaExceeded,
    StoreError,
    Throttled,
    TooLong,
    Unavailable,
)
from storage.log import ENTRY_LIMIT, Hint, Log, Lost, Won
from storage.memory import MemoryStore
from storage.wrapper import CountingStore
from tests.storage.faulty import FaultyStore

PREFIX = "runs/p/r/ledger/"
DIGEST = "0123456789abcdef" * 4


class World:
    """A log over a faulty store, what it slept, and a second, undisturbed client."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.faulty = FaultyStore(self.memory)
        self.counting = CountingStore(self.faulty)
        self.slept: list[float] = []
        self.log = Log(self.counting, PREFIX, sleep=self.slept.append)
        self.other = Log(self.memory, PREFIX, sleep=self.slept.append)

    def fill(self, slots: range) -> None:
        for seq in slots:
            self.memory.put_if_absent(self.log.name(seq), b"%d" % seq)

    def lose(self, seq: int) -> None:
        self.memory.delete(self.log.ref(seq))


@pytest.fixture
def world() -> World:
    return World()


# --- append -----------------------------------------------------------------------------------------------------


def test_slots_have_twenty_digits(world: World) -> None:
    world.log.append(42, b"entry")
    assert [stat.name for stat in world.memory.list("")] == ["runs/p/r/ledger/00000000000000000042.json"]


def test_first_wins_second_is_told_the_winner(world: World) -> None:
    assert world.other.append(0, b"theirs") == Won(world.log.ref(0))
    assert world.log.append(0, b"ours") == Lost(b"theirs")
    assert world.slept == []


@pytest.mark.parametrize("reply", ["after", Exists("a re-send met the first send")])
def test_a_lost_reply_is_won_when_the_slot_holds_our_bytes(world: World, reply: object) -> None:
    if reply != "after":
        world.fill(range(0))
        world.memory.put_if_absent(world.log.name(0), b"ours")
    world.faulty.script("put_if_absent", reply)
    assert world.log.append(0, b"ours") == Won(world.log.ref(0))
    assert world.counting.counts["put_if_absent"] == 1


def test_a_lost_reply_over_anothers_entry_is_lost(world: World) -> None:
    world.other.append(0, b"theirs")
    world.faulty.script("put_if_absent", "before")
    assert world.log.append(0, b"ours") == Lost(b"theirs")


def test_the_same_bytes_are_sent_again_until_the_slot_is_taken(world: World) -> None:
    world.faulty.script("put_if_absent", "before", Exists("a conflict nobody won"), "throttled")
    assert isinstance(world.log.append(0, b"ours"), Won)
    assert world.log.read(0) == b"ours"
    assert world.slept == [0.5, 1.0, 3.0], "a throttled send waits as long as it was asked to"


def test_a_send_that_lands_late_is_ours_when_it_is_sent_again(world: World) -> None:
    world.faulty.script("put_if_absent", "late", "before")
    world.log._sleep = lambda _: world.faulty.land()
    assert isinstance(world.log.append(0, b"ours"), Won)
    assert world.log.tail() == 0


def test_a_send_that_lands_too_late_changes_nothing(world: World) -> None:
    world.faulty.script("put_if_absent", "late", "before")
    world.log._sleep = lambda _: world.other.append(0, b"theirs")
    assert world.log.append(0, b"ours") == Lost(b"theirs")
    world.faulty.land()
    assert world.log.read(0) == b"theirs"


def test_giving_up_is_outcome_unknown_and_never_skips_a_slot(world: World) -> None:
    world.faulty.script("put_if_absent", *["before"] * 7, "late")
    with pytest.raises(OutcomeUnknown, match=r"00000\.json was sent 8 times"):
        world.log.append(0, b"ours")
    assert world.slept == [0.5, 1, 2, 4, 8, 16, 30], "nobody waits after the last attempt"
    assert list(world.memory.list("")) == []
    world.faulty.land()
    assert world.log.append(0, b"ours") == Won(world.log.ref(0)), "the next try finds what landed"


def test_the_caller_can_give_up_earlier(world: World) -> None:
    world.faulty.script("put_if_absent", *["before"] * 8)
    with pytest.raises(OutcomeUnknown):
        world.log.append(0, b"ours", give_up=lambda: len(world.slept) == 2)
    assert world.counting.counts["put_if_absent"] == 3


@pytest.mark.parametrize("answer", [Denied("no"), QuotaExceeded("full"), BadAddress("no links")])
def test_a_plain_refusal_is_raised_as_it_is_and_not_repeated(world: World, answer: StoreError) -> None:
    world.faulty.script("put_if_absent", answer)
    with pytest.raises(type(answer)):
        world.log.append(0, b"ours")
    assert world.counting.counts["put_if_absent"] == 1


def test_a_refusal_after_a_send_that_may_have_landed_is_outcome_unknown(world: World) -> None:
    world.faulty.script("put_if_absent", "late", Denied("the token has expired"))
    with pytest.raises(OutcomeUnknown, match="expired"):
        world.log.append(0, b"ours")


def test_denied_reading_after_a_conflict_is_not_missing(world: World) -> None:
    world.faulty.script("put_if_absent", Exists("taken"))
    world.faulty.script("read_range", Denied("not yours to read"))
    with pytest.raises(OutcomeUnknown, match="not yours"):
        world.log.append(0, b"ours")
    assert world.counting.counts["put_if_absent"] == 1


def test_a_write_refused_after_its_effect_is_won(world: World) -> None:
    world.memory.put_if_absent(world.log.name(0), b"ours")
    world.faulty.script("put_if_absent", QuotaExceeded("while making the folder durable"))
    assert isinstance(world.log.append(0, b"ours"), Won)


def test_entries_are_bounded_both_ways(world: World) -> None:
    with pytest.raises(ValueError, match="longer"):
        world.log.append(0, b"x" * (ENTRY_LIMIT + 1))
    world.memory.put(world.log.name(0), b"y" * (ENTRY_LIMIT + 1000))
    assert world.log.append(0, b"ours") == Lost(b"y" * (ENTRY_LIMIT + 1))
    with pytest.raises(TooLong):
        world.log.read(0)
    for seq in (-1, 2**53):
        with pytest.raises(ValueError, match="no log has"):
            world.log.append(seq, b"")
    with pytest.raises(ValueError, match="ends in"):
        Log(world.memory, "ledger", sleep=world.slept.append)


@pytest.mark.parametrize("seed", range(150))
def test_two_clients_under_every_fault_agree_on_every_slot(seed: int) -> None:
    chance, memory = Random(seed), MemoryStore()
    stores = [FaultyStore(memory, chance, before=0.15, after=0.15, throttled=0.1) for _ in range(2)]
    logs = [Log(store, PREFIX, sleep=lambda _: None) for store in stores]
    for seq in range(10):
        entries = [b"%d-%d" % (seq, client) for client in range(2)]
        outcomes = [logs[client].append(seq, entries[client], attempts=60) for client in chance.sample(range(2), 2)]
        won = [outcome for outcome in outcomes if isinstance(outcome, Won)]
        lost = [outcome.data for outcome in outcomes if isinstance(outcome, Lost)]
        assert len(won) == 1
        assert lost == [memory.get(logs[0].ref(seq))]


# --- tail -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 255, 256, 257, 1000])
def test_the_tail_is_found_from_any_honest_hint(world: World, count: int) -> None:
    world.fill(range(count))
    assert world.log.tail() == count - 1
    for hint in {0, count // 2, count - 2, count - 1} & set(range(count)):
        assert world.log.tail(hint) == count - 1


def test_ten_thousand_entries_cost_under_thirty_reads_and_two_with_a_fresh_hint(world: World) -> None:
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
def test_only_missing_is_a_tail(world: World, error: StoreError) -> None:
    world.fill(range(5))
    world.faulty.script("stat", "ok", error)
    with pytest.raises(type(error)):
        world.log.tail()


def test_a_hint_beyond_the_tail_is_a_lost_entry_and_names_it(world: World) -> None:
    world.fill(range(10))
    world.lose(9)
    with pytest.raises(LostEntry, match=r"0009\.json is missing.*hint names entry 9.*delete nothing") as caught:
        world.log.tail(9)
    assert caught.value.seq == 9


def test_a_hint_over_an_emptied_log_is_a_lost_entry(world: World) -> None:
    with pytest.raises(LostEntry) as caught:
        world.log.tail(3)
    assert caught.value.seq == 0


# --- holes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hole", range(19))
def test_a_hole_is_never_taken_for_the_tail(world: World, hole: int) -> None:
    world.fill(range(20))
    world.lose(hole)
    tail = world.log.tail()
    assert tail in (hole - 1, 19)
    assert world.log.listed_beyond(tail) == (list(range(hole + 1, 20)) if tail < 19 else [])
    assert world.log.gaps(tail) == [hole]


def test_several_holes_are_found(world: World) -> None:
    world.fill(range(20))
    world.lose(5)
    world.lose(12)
    assert world.log.gaps(world.log.tail()) == [5, 12]


def test_a_log_that_grows_meanwhile_has_no_hole(world: World) -> None:
    world.fill(range(10))
    tail = world.log.tail()
    world.fill(range(10, 13))
    assert world.log.listed_beyond(tail) == []
    assert world.log.gaps(tail) == []
    empty = World()
    assert empty.log.listed_beyond(-1) == empty.log.gaps(-1) == []


def test_a_listing_that_hides_shows_no_hole_and_costs_bounded_reads(world: World) -> None:
    world.fill(range(500))
    world.faulty.hide = 0.9
    assert world.log.gaps(499, confirm=16) == []
    assert world.counting.reads == 16
    assert world.log.listed_beyond(499) == []


def test_foreign_names_beside_the_entries_are_ignored(world: World) -> None:
    world.fill(range(3))
    for name in ("x.json", "9" * 20 + ".json", "0" * 19 + ".json", "0" * 18 + "50.json.tmp", "0" * 18 + "50/x.json"):
        world.memory.put(PREFIX + name, b"")
    assert world.log.listed_beyond(2) == world.log.gaps(2) == []


# --- hints ------------------------------------------------------------------------------------------------------


def test_a_hint_is_read_back_and_replaced(world: World) -> None:
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
        json.dumps(GOOD | {"digest": "A" * 64}).encode(), json.dumps(GOOD | {"digest": DIGEST + "\n"}).encode(),
        json.dumps(GOOD | {"more": 1}).encode(), json.dumps({"seq": 7}).encode(),
    ],
)  # fmt: skip
def test_a_garbled_hint_is_no_hint(world: World, garbage: bytes) -> None:
    world.memory.put("runs/p/r/ledger.hint", garbage)
    assert world.log.hint() is None


def test_a_hint_that_cannot_be_read_is_not_an_absent_one(world: World) -> None:
    world.faulty.script("get", Unavailable("no answer"))
    with pytest.raises(Unavailable):
        world.log.hint()


def test_reading_an_empty_slot_is_missing(world: World) -> None:
    with pytest.raises(Missing):
        world.log.read(0)
