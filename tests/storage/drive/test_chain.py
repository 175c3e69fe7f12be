"""A log as a chain of ids: what is published, what a tail costs, and what damaged, burnt or foreign slots mean."""

from __future__ import annotations

import itertools

import pytest

from storage.base import Corrupt, Denied, Exists, LostEntry, Missing, Ref, Store
from storage.drive.errors import UsedUp
from storage.drive.frame import LIMIT, PAGE, SPAN, Frame, Newest, pack, unpack
from storage.drive.slots import ChainSlots
from storage.log import Log, Lost, Won
from storage.memory import MemoryStore
from storage.slots import slot_name
from tests.facts import raising
from tests.storage.counting import CountingStore
from tests.storage.drive.handle import Fake
from tests.storage.drive.stores import Drive

PREFIX = "runs/p/r/ledger/"


class IdStore(MemoryStore):
    """Objects under ids that are given out, in memory: what ChainSlots needs of Drive, and quickly."""

    unique_names = False
    folder = "folder-id-1"

    def __init__(self) -> None:
        super().__init__()
        self.frames: dict[Ref, Frame] = {}
        self.burnt: set[str] = set()
        self._count = itertools.count()

    def reserve(self, count: int) -> list[Ref]:
        return [Ref(f"id-{next(self._count):012d}") for _ in range(count)]

    def claim(self, name: str, ref: Ref) -> None:
        pass

    def create(self, ref: Ref, name: str, data: bytes) -> Ref:
        if ref in self.burnt:
            raise UsedUp(f"{ref} is used up")
        self.put_if_absent(ref, data)
        return ref

    def slots(self, store: Store, prefix: str) -> ChainSlots:
        return ChainSlots(store, self, prefix, lambda bind: Ref("first-slot-0"))


def filled(count: int) -> IdStore:
    store = IdStore()
    slots = store.slots(store, PREFIX)
    for seq in range(count):
        slots.create(seq, b"entry %d" % seq)
    return store


@pytest.fixture(scope="module")
def long() -> IdStore:
    return filled(10_000)


def afresh(store: IdStore) -> tuple[CountingStore, ChainSlots]:
    """As a process that has read nothing yet sees it."""
    store.frames = {}
    counting = CountingStore(store)
    return counting, store.slots(counting, PREFIX)


def test_a_tail_of_ten_thousand_entries_costs_under_thirty_requests(long: IdStore) -> None:
    counting, slots = afresh(long)
    assert slots.tail(-1) == 9_999
    assert counting.reads < 30


def test_a_fresh_hint_makes_it_a_handful_and_a_known_tail_one(long: IdStore) -> None:
    counting, slots = afresh(long)
    assert slots.taken(9_999) and slots.tail(9_999) == 9_999
    assert counting.reads <= 4
    before = counting.reads
    assert slots.tail(9_999) == 9_999
    assert counting.reads == before + 1


@pytest.mark.parametrize("count", [0, 1, 2, PAGE - 1, PAGE, PAGE + 1, PAGE + 2, 2 * PAGE, 3 * PAGE + 7])
def test_every_slot_is_found_at_and_around_the_edges_of_pages(count: int) -> None:
    store = filled(count)
    _, slots = afresh(store)
    for low in {-1, 0, count // 2, count - 2, count - 1} - set(range(count, count + 1)):
        if -1 <= low < count:
            assert slots.tail(low) == count - 1
    assert [slots.read(seq, 100) for seq in range(count)] == [b"entry %d" % seq for seq in range(count)]
    assert not slots.taken(count) and not slots.taken(count + PAGE) and not slots.taken(2**53)


def test_a_slot_publishes_what_the_decision_says(long: IdStore) -> None:
    _, slots = afresh(long)
    for seq in (0, 1, 255, 256, 512, 9_984):
        frame, data = unpack(long.get(slots.ref(seq)))
        assert isinstance(frame, Frame) and data == b"entry %d" % seq
        assert frame.next == slots.ref(seq + 1)
        assert len(frame.ids) == (PAGE if seq % PAGE == 0 else 0) and len(frame.tops) == (PAGE if seq == 0 else 0)
        assert (frame.hint is not None) == (frame.folder is not None) == (seq == 0)
        assert len(pack(frame, b"")) <= LIMIT
    top, _ = unpack(long.get(slots.ref(0)))
    assert isinstance(top, Frame) and top.tops[:3] == tuple(slots.ref(n * PAGE) for n in (1, 2, 3))
    assert SPAN == PAGE**2


def test_an_unreadable_frame_is_a_void_entry_and_the_chain_goes_on() -> None:
    store = filled(3)
    for garbage in (b"", b"garbage", b'{"format":9}\nx', b"{" * 5000, pack(Frame("else/", 1, Ref("x" * 20)), b"y")):
        _, slots = afresh(store)
        ref = slots.ref(1)
        store.put(ref, garbage)
        _, slots = afresh(store)
        assert slots.read(1, 10) == garbage[:10] and slots.tail(-1) == 2
    store.delete(slots.ref(2))
    slots.create(2, b"after it")
    assert afresh(store)[1].read(2, 100) == b"after it"


def test_an_unreadable_head_of_a_page_ends_the_log_and_says_so() -> None:
    store = filled(PAGE + 2)
    slots = afresh(store)[1]
    store.put(slots.ref(PAGE), b"garbage")
    with pytest.raises(Corrupt, match=slot_name(PREFIX, PAGE)):
        afresh(store)[1].read(PAGE + 1, 10)


def test_a_head_that_contradicts_the_first_slot_is_not_believed() -> None:
    store = filled(PAGE + 2)
    slots = afresh(store)[1]
    frame, _ = unpack(store.get(slots.ref(PAGE)))
    assert isinstance(frame, Frame)
    forged = Frame(PREFIX, PAGE, frame.next, ids=(*frame.ids[:-1], Ref("elsewhere-000")))
    store.put(slots.ref(PAGE), pack(forged, b""))
    with raising(Corrupt, slot_name(PREFIX, PAGE)):
        afresh(store)[1].read(PAGE + 1, 10)


@pytest.mark.parametrize("elsewhere", ["a fresh id", "an earlier slot's"])
def test_an_entry_that_leads_elsewhere_leads_nobody_apart(elsewhere: str) -> None:
    """Somebody who has read the tail and somebody who has not would otherwise both win the next slot."""
    store = filled(1)
    slots = afresh(store)[1]
    astray = slots.ref(0) if elsewhere != "a fresh id" else store.reserve(1)[0]
    store.create(slots.ref(1), "hostile", pack(Frame(PREFIX, 1, astray), b"hostile"))
    reader, writer = (Log(store, PREFIX, sleep=lambda _: None) for _ in range(2))
    assert reader.tail() == 1 and reader.read(1) != b"hostile"
    assert isinstance(writer.append(2, b"first"), Won)
    assert reader.append(2, b"second") == Lost(b"first")
    assert Log(store, PREFIX, sleep=lambda _: None).tail() == 2


@pytest.mark.parametrize("seq", [SPAN + 1, 10**9, 2**53 - 1])
def test_a_number_that_somebody_made_up_costs_few_requests(seq: int) -> None:
    store = filled(3)
    counting, slots = afresh(store)
    with pytest.raises(Missing):
        slots.ref(seq)
    assert not slots.taken(seq) and counting.reads <= 4


def test_a_burnt_id_is_a_lost_entry() -> None:
    store = filled(3)
    slots = afresh(store)[1]
    gone = slots.ref(2)
    store.delete(gone)
    store.burnt.add(gone)
    assert slots.tail(-1) == 1
    with raising(LostEntry, slot_name(PREFIX, 2)) as caught:
        slots.create(2, b"new")
    assert caught.value.seq == 2


def test_a_slot_taken_beyond_the_next_one_is_seen_without_a_listing() -> None:
    store = filled(5)
    slots = afresh(store)[1]
    store.delete(slots.ref(3))
    log = Log(store, PREFIX, sleep=lambda _: None)
    with pytest.raises(LostEntry):
        log.check_end(2)


@pytest.mark.parametrize(
    "said",
    [
        b'{"format":1,"way":"chain","log":"a/","slot":1}\n',
        b'{"format":1,"way":"chain","log":"a/","slot":1,"next":"x"}\n',
        b'{"format":1,"way":"chain","log":"a/","slot":-1,"next":"xxxxxxxxxxxx"}\n',
        b'{"format":1,"way":"chain","log":"a/","slot":0,"next":"xxxxxxxxxxxx"}\n',
        b'{"format":1,"way":"chain","log":"a/","slot":1,"next":"xxxxxxxxxxxx","more":1}\n',
        b'{"format":1,"way":"chain","log":"a/","slot":1,"next":"xxxxxxxxxxxx","onward":"yyyyyyyyyyyy"}\n',
        b'{"format":1,"way":"newest","log":"a/","slot":3,"first":4}\n',
        b'{"format":1,"way":"newest","log":"a/","slot":4,"first":3}\n',
        b'{"format":1,"way":"third"}\n',
        b"[1]\n", b"[" * 100_000 + b"\n", b"no line", b"\xff\n",
    ],
)  # fmt: skip
def test_a_frame_is_strict(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(said + b"entry")


def test_frames_come_back_as_they_were() -> None:
    for frame in (
        Frame("a/", 1, Ref("x" * 33)),
        Frame("a/", 7, None, onward=Ref("y" * 33)),
        Newest("a/", 4, 4),
        Newest("a/", 6, 4, Ref("p" * 20), Ref("b" * 20)),
    ):
        assert unpack(pack(frame, b"some\nentry")) == (frame, b"some\nentry")


def test_an_entry_deleted_by_hand_is_lost_and_one_in_the_bin_is_there(drive: Drive, fake: Fake) -> None:
    store = drive.store()
    log = Log(store, PREFIX, sleep=lambda _: None)
    for seq in range(4):
        log.append(seq, b"%d" % seq)
    fake.control("remove", file=log.ref(3), trash=True)
    fresh = Log(drive.store(), PREFIX, sleep=lambda _: None)
    assert fresh.tail() == 3 and fresh.append(3, b"again") == Lost(b"3")
    fake.control("remove", file=log.ref(3))
    with pytest.raises(LostEntry):
        Log(drive.store(), PREFIX, sleep=lambda _: None).append(3, b"again")


def test_what_is_there_and_cannot_be_read_is_denied_never_missing(drive: Drive, fake: Fake) -> None:
    mine = drive.store()
    theirs = Drive(drive.person.with_client("202020202020-other.apps.googleusercontent.com")).store()
    (ref,) = theirs.reserve(1)
    theirs.create(ref, "a", b"secret")
    with pytest.raises(Missing):
        mine.stat(ref)
    with pytest.raises(Exists):
        mine.create(ref, "a", b"mine")
    for read in (mine.stat, mine.get, mine.fresh().stat):
        with raising(Denied, ref):
            read(ref)


def test_a_hint_deleted_by_hand_leaves_no_file_with_every_entry(drive: Drive, fake: Fake) -> None:
    log = Log(drive.store(), PREFIX, sleep=lambda _: None)
    log.append(0, b"genesis")
    log.publish_hint(0, "a" * 64)
    (hint,) = (key for key, file in drive.person.look()["files"].items() if file["name"] == "runs/p/r/ledger.hint")
    fake.control("remove", file=hint)
    for _ in range(3):
        log.publish_hint(0, "a" * 64)
    assert log.hint() is None and drive.names().count("runs/p/r/ledger.hint") == 1


def test_nothing_depends_on_listings(drive: Drive) -> None:
    drive.person.change(list_lag=1e6, name_lag=1e6, incomplete=True)
    logs = [Log(drive.store(), PREFIX, sleep=lambda _: None) for _ in range(2)]
    for seq in range(6):
        assert isinstance(logs[seq % 2].append(seq, b"%d" % seq), Won)
        assert logs[1 - seq % 2].append(seq, b"other") == Lost(b"%d" % seq)
    logs[0].publish_hint(4, "a" * 64)
    fresh = Log(drive.store(), PREFIX, sleep=lambda _: None)
    hint = fresh.hint()
    assert hint is not None and fresh.tail(hint.seq) == 5 and fresh.gaps(5) == []
    store = drive.store()
    store.put_if_absent("identity", b"who")
    assert drive.store().get(drive.store().ref("identity")) == b"who"


def test_a_hint_beyond_everything_is_evidence_of_a_lost_entry(drive: Drive) -> None:
    store = drive.store()
    log = Log(store, PREFIX, sleep=lambda _: None)
    for seq in range(3):
        log.append(seq, b"%d" % seq)
    for beyond in (3, 700):
        log.slots.put_advice(b'{"seq": %d, "ref": "x", "digest": "%s"}' % (beyond, b"a" * 64))
        fresh = Log(drive.store(), PREFIX, sleep=lambda _: None)
        hint = fresh.hint()
        if beyond == 3:
            assert hint is None, "its Ref is not the slot's: it proves nothing"
        else:
            assert hint is not None
            with raising(LostEntry, 700) as caught:
                fresh.tail(hint.seq)
            assert caught.value.seq == 3
