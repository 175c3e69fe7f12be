"""PROTOCOL P2, append: one winner a slot, whatever the answers say."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from storage.base import (
    BadAddress,
    Denied,
    Exists,
    OutcomeUnknown,
    QuotaExceeded,
    Ref,
    StoreError,
    TooLong,
)
from storage.capabilities import Doubt
from storage.log import ENTRY_LIMIT, Log, Lost, Won
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.facts import raising
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore
from tests.storage.helpers import PREFIX, LogWorld


def test_slots_have_twenty_digits(world: LogWorld) -> None:
    world.log.append(42, b"entry")
    assert [stat.name for stat in world.memory.list("")] == ["runs/p/r/ledger/00000000000000000042.json"]


def test_first_wins_second_is_told_the_winner(world: LogWorld) -> None:
    assert world.other.append(0, b"theirs") == Won(world.log.ref(0))
    assert world.log.append(0, b"ours") == Lost(b"theirs")
    assert world.slept == []


@pytest.mark.parametrize("reply", ["after", Exists("a re-send met the first send")])
def test_a_lost_reply_is_won_when_the_slot_holds_our_bytes(world: LogWorld, reply: object) -> None:
    if reply != "after":
        world.fill(range(0))
        world.memory.put_if_absent(world.log.name(0), b"ours")
    world.faulty.script("put_if_absent", reply)
    assert world.log.append(0, b"ours") == Won(world.log.ref(0))
    assert world.counting.counts["put_if_absent"] == 1


def test_a_lost_reply_over_anothers_entry_is_lost(world: LogWorld) -> None:
    world.other.append(0, b"theirs")
    world.faulty.script("put_if_absent", "before")
    assert world.log.append(0, b"ours") == Lost(b"theirs")


def test_the_same_bytes_are_sent_again_until_the_slot_is_taken(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", "before", Exists("a conflict nobody won"), "throttled")
    assert isinstance(world.log.append(0, b"ours"), Won)
    assert world.log.read(0) == b"ours"
    assert world.slept == [0.5, 1.0, 3.0], "a throttled send waits as long as it was asked to"


def test_a_send_that_lands_late_is_ours_when_it_is_sent_again(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", "late", "before")
    world.log._sleep = lambda _: world.faulty.land()
    assert isinstance(world.log.append(0, b"ours"), Won)
    assert world.log.tail() == 0


def test_a_send_that_lands_too_late_changes_nothing(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", "late", "before")
    world.log._sleep = lambda _: world.other.append(0, b"theirs")
    assert world.log.append(0, b"ours") == Lost(b"theirs")
    world.faulty.land()
    assert world.log.read(0) == b"theirs"


def test_giving_up_is_outcome_unknown_and_never_skips_a_slot(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", *["before"] * 7, "late")
    with raising(OutcomeUnknown, world.log.name(0), 8):
        world.log.append(0, b"ours")
    assert world.slept == [0.5, 1, 2, 4, 8, 16, 30], "nobody waits after the last attempt"
    assert list(world.memory.list("")) == []
    world.faulty.land()
    assert world.log.append(0, b"ours") == Won(world.log.ref(0)), "the next try finds what landed"


def test_the_caller_can_give_up_earlier(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", *["before"] * 8)
    with pytest.raises(OutcomeUnknown):
        world.log.append(0, b"ours", give_up=lambda: len(world.slept) == 2)
    assert world.counting.counts["put_if_absent"] == 3


@pytest.mark.parametrize("answer", [Denied("no"), QuotaExceeded("full"), BadAddress("no links")])
def test_a_plain_refusal_is_raised_as_it_is_and_not_repeated(world: LogWorld, answer: StoreError) -> None:
    world.faulty.script("put_if_absent", answer)
    with pytest.raises(type(answer)):
        world.log.append(0, b"ours")
    assert world.counting.counts["put_if_absent"] == 1


def test_a_refusal_after_a_send_that_may_have_landed_is_outcome_unknown(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", "late", Denied("TOKEN_7"))
    with pytest.raises(OutcomeUnknown, match="TOKEN_7"):
        world.log.append(0, b"ours")


def test_denied_reading_after_a_conflict_is_not_missing(world: LogWorld) -> None:
    world.faulty.script("put_if_absent", Exists("taken"))
    world.faulty.script("read_range", Denied("OWNER_7"))
    with pytest.raises(OutcomeUnknown, match="OWNER_7"):
        world.log.append(0, b"ours")
    assert world.counting.counts["put_if_absent"] == 1


def test_a_write_refused_after_its_effect_is_won(world: LogWorld) -> None:
    world.memory.put_if_absent(world.log.name(0), b"ours")
    world.faulty.script("put_if_absent", QuotaExceeded("while making the folder durable"))
    assert isinstance(world.log.append(0, b"ours"), Won)


def test_entries_are_bounded_both_ways(world: LogWorld) -> None:
    with raising(ValueError, ENTRY_LIMIT, ENTRY_LIMIT + 1):
        world.log.append(0, b"x" * (ENTRY_LIMIT + 1))
    longest = b"x" * ENTRY_LIMIT
    assert world.log.append(1, longest) and world.log.read(1) == longest
    world.memory.put(world.log.name(0), b"y" * (ENTRY_LIMIT + 1000))
    assert world.log.append(0, b"ours") == Lost(b"y" * (ENTRY_LIMIT + 1))
    with pytest.raises(TooLong):
        world.log.read(0)
    for seq in (-1, 2**53):
        with raising(ValueError, seq):
            world.log.append(seq, b"")
    with raising(ValueError, "'ledger'"):
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


class Anyones(MemoryStore):
    """On a server of which nothing is known."""

    def doubt(self) -> Doubt:
        return Doubt(unknown=True)


def test_a_slot_won_on_an_unknown_server_is_read_once() -> None:
    """Two that were both told they won: the slot's bytes decide (P2)."""
    memory = Anyones()
    counting = CountingStore(memory)
    log = Log(counting, PREFIX, sleep=lambda _: None)
    assert isinstance(log.append(0, b"ours"), Won)
    assert counting.reads == 1

    class Overwritten(Wrapper):
        def put_if_absent(self, name: str, data: bytes) -> Ref:
            ref = self.inner.put_if_absent(name, data)
            self.inner.put(name, b"of another that won too")
            return ref

    assert Log(Overwritten(memory), PREFIX, sleep=lambda _: None).append(1, b"ours") == Lost(b"of another that won too")


def test_a_slot_won_elsewhere_is_not_read(world: LogWorld) -> None:
    world.log.append(0, b"ours")
    assert world.counting.reads == 0


@pytest.mark.parametrize(
    "damaged", [lambda d: d[:-7], lambda d: d[:9], lambda d: d[:40] + b"#" + d[41:], lambda d: b""]
)
@pytest.mark.parametrize("times", [1, 2, 99])
def test_a_winner_whose_slot_arrives_damaged_knows_that_it_won(damaged: Callable[[bytes], bytes], times: int) -> None:
    """A lost reply, then reads with a short Content-Length or a changed bit: never Lost to oneself."""
    left = [times]

    class Damages(Wrapper):
        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            data = self.inner.read_range(ref, start, length)
            left[0] -= 1
            return damaged(data) if left[0] >= 0 else data

    faulty = FaultyStore(MemoryStore())
    faulty.script("put_if_absent", "after")
    log, mine = Log(Damages(faulty), PREFIX, sleep=lambda _: None), b"an entry with its own nonce " * 20
    try:
        assert isinstance(log.append(0, mine), Won) and times < 99
    except OutcomeUnknown:
        assert times == 99
