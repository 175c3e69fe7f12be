"""A bad connection never passes for a damaged store, and a damaged store never for a bad connection (P7)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from storage import transfer
from storage.base import Corrupt, Denied, Missing, Ref, Store, Unavailable, fresh, make_store
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.ranges import Asked
from storage.retry import RetryStore
from storage.s3 import multipart
from storage.s3 import store as s3_store
from storage.transfer import Wanted, download
from storage.wrapper import Wrapper
from tests.facts import raising
from tests.storage import badlinks
from tests.storage.badlinks import KINDS, Link, flip, flipped, link, overwrite, stale
from tests.storage.faulty import FaultyStore
from tests.storage.s3.proxy import Change

DATA = Random(1).randbytes(2500)


@dataclass
class Behind:
    """An object that only a bad link leads to."""

    link: Link
    store: Store
    ref: Ref
    wanted: Wanted

    def download(self, folder: Path) -> bytes:
        return download(self.store, [self.wanted], folder)[0].read_bytes()


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS])
def behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Behind]:
    """Downloads ask for 1,000 bytes at a time."""
    monkeypatch.setattr(transfer, "CHUNK", 1000)
    with link(request.param, monkeypatch) as bad:
        yield stored(bad, tmp_path)


def stored(bad: Link, folder: Path, data: bytes = DATA) -> Behind:
    source = folder / "source"
    source.write_bytes(data)
    if bad.kind == "drive":
        bad.address = make_store(bad.address)
    store = bad.store()
    ref = store.put("checkpoints/p/r/step_1.e1/state.json", source)
    return Behind(bad, store, ref, Wanted(ref, "copy", len(data), hashlib.sha256(data).hexdigest()))


# --- one answer -----------------------------------------------------------------------------------------------------

PARTLY: dict[str, Change] = {
    "shortened": badlinks.shorten,
    "from elsewhere": badlinks.from_elsewhere,
    "without its place": badlinks.without_place,
    "longer than its bytes": badlinks.tells_too_many,
    "shorter than its bytes": badlinks.tells_too_few,
    "behind the end": badlinks.ends_before,
}


def again(read: Callable[..., bytes], *what: object) -> bytes:
    """A read after one that failed. An answer longer than it said may leave bytes on the connection, which are met as
    the next answer: that read, too, may fail, but never tell them as data."""
    try:
        return read(*what)
    except Unavailable:
        return read(*what)


@pytest.mark.parametrize("how", PARTLY)
def test_a_wrong_answer_to_a_ranged_read_is_unavailable_and_never_data(behind: Behind, how: str) -> None:
    for start, length in ((0, 100), (10, 50), (2400, 100), (2400, 500), (0, 9000)):
        behind.link.alter(PARTLY[how], behind.ref, times=1)
        with pytest.raises(Unavailable):
            behind.store.read_range(behind.ref, start, length)
        assert again(behind.store.read_range, behind.ref, start, length) == DATA[start : start + length]


@pytest.mark.parametrize("change", [badlinks.tells_too_many, badlinks.as_a_part])
def test_a_wrong_answer_to_a_read_of_all_is_unavailable(behind: Behind, change: Change) -> None:
    behind.link.alter(change, behind.ref, times=1)
    with pytest.raises(Unavailable):
        behind.store.get(behind.ref)
    assert again(behind.store.get, behind.ref) == DATA


def test_a_read_that_ends_with_the_object_takes_one_request(behind: Behind) -> None:
    for start, length in ((0, 2500), (0, 9000), (2499, 2)):
        behind.link.proxy.seen.clear()
        behind.store.read_range(behind.ref, start, length)
        assert len(behind.link.proxy.seen) == 1


def asked(start: int, length: int, size: int = 100) -> Asked:
    return Asked("what", start, length, lambda: size)


@pytest.mark.parametrize(
    ("status", "told", "data"),
    [
        (200, "", b"x" * 90),
        (200, "", b""),
        (204, "", b""),
        (206, "bytes 0-9/100", b"x" * 9),
        (206, "bytes 0-8/100", b"x" * 9),
        (206, "bytes 0-8/*", b"x" * 9),
        (206, "bytes 0-10/100", b"x" * 11),
        (206, "bytes 1-10/100", b"x" * 10),
        (206, "bytes */100", b""),
        (206, "bits 0-9/100", b"x" * 10),
        (200, "bytes 0-8/100", b"x" * 9),
        (416, "bytes */100", b""),
        (416, "", b""),
    ],
)
def test_what_no_whole_answer_can_be(status: int, told: str, data: bytes) -> None:
    with raising(Unavailable, "what", 10, 0):
        asked(0, 10).checked(status, told, data)


@pytest.mark.parametrize(
    ("start", "length", "status", "told", "data", "expected"),
    [
        (0, 10, 206, "bytes 0-9/100", b"x" * 10, b"x" * 10),
        (0, 10, 206, "bytes 0-9/*", b"x" * 10, b"x" * 10),
        (95, 10, 206, "bytes 95-99/100", b"x" * 5, b"x" * 5),
        (95, 10, 206, "bytes 95-99/*", b"x" * 5, b"x" * 5),
        (98, 10, 200, "", bytes(100), bytes(2)),
        (0, 10, 200, "bytes 0-9/100", b"x" * 10, b"x" * 10),
        (100, 10, 416, "bytes */100", b"", b""),
        (100, 10, 416, "", b"", b""),
    ],
)
def test_what_a_whole_answer_can_be(
    start: int, length: int, status: int, told: str, data: bytes, expected: bytes
) -> None:
    assert asked(start, length).checked(status, told, data) == expected


# --- the whole object -----------------------------------------------------------------------------------------------

CONSISTENT: dict[str, Callable[[], Change]] = {
    "flipped alike": lambda: flip,
    "flipped anywhere": badlinks.flips_anywhere,
    "shortened in secret": lambda: badlinks.shorten_in_secret,
    "stale": lambda: stale(flipped(DATA)),
    "stale and shorter": lambda: stale(DATA[:1500]),
    "stale and longer": lambda: stale(DATA + b"more"),
}
"""Changes that one answer does not show."""


@pytest.mark.parametrize("how", CONSISTENT)
def test_a_link_that_always_changes_a_good_file_is_blamed_and_not_the_store(
    behind: Behind, tmp_path: Path, how: str
) -> None:
    behind.link.alter(CONSISTENT[how](), behind.ref)
    with raising(Unavailable, behind.store.address, behind.ref):
        behind.download(tmp_path)
    assert not (tmp_path / "copy").exists()
    behind.link.proxy.heal()
    assert behind.download(tmp_path) == DATA, "whatever is left of the first attempt"


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_good_file_that_arrives_wrong_twice_is_not_damaged_and_once_is_nothing(
    behind: Behind, tmp_path: Path, skip: int
) -> None:
    """Three reads of it are a download; `skip` of them are as they should be."""
    behind.link.alter(flip, behind.ref, skip=skip, times=1)
    assert behind.download(tmp_path / "once") == DATA
    for nth in (skip, 3):
        behind.link.alter(flip, behind.ref, skip=nth, times=1)
    with raising(Unavailable, behind.store.address, behind.ref):
        behind.download(tmp_path / "twice")


def test_the_second_read_comes_by_no_connection_of_the_first(behind: Behind, tmp_path: Path) -> None:
    behind.link.alter(flip, behind.ref, times=1)
    assert behind.download(tmp_path) == DATA
    peers = [request.peer for request in behind.link.downloads(behind.ref)]
    assert len(peers) == 6 and not set(peers[:3]) & set(peers[3:])


@pytest.mark.parametrize("harm", [flipped, lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"])
def test_a_file_that_is_damaged_in_the_store_is_named(
    behind: Behind, tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    overwrite(behind.link.store(), behind.ref, harm(DATA))
    with raising(Corrupt, behind.ref):
        behind.download(tmp_path)
    behind.store.delete(behind.ref)
    with raising(Missing, behind.ref):
        behind.download(tmp_path)


@pytest.mark.slow
def test_a_file_sent_in_parts_is_judged_by_the_servers_hash_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = 5 << 20
    monkeypatch.setattr(multipart, "PART", part)
    monkeypatch.setattr(s3_store, "IN_PARTS", part)
    data = Random(2).randbytes(part + 12_345)
    with link("s3", monkeypatch) as bad:
        behind = stored(bad, tmp_path, data)
        bad.alter(flip, behind.ref)
        for store in (behind.store, bad.store(read_only=True)):
            behind.store = store
            with raising(Unavailable, behind.ref):
                behind.download(tmp_path)
        bad.proxy.heal()
        overwrite(bad.store(), behind.ref, flipped(data))
        with pytest.raises(Corrupt):
            behind.download(tmp_path)


# --- a disk, which has no hash of its own ---------------------------------------------------------------------------


class BadDisk(Wrapper):
    """A share that hands out other bytes than it holds."""

    def __init__(self, inner: Store, change: Callable[[bytes], bytes]) -> None:
        super().__init__(inner)
        self.change = change

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        return self.change(self.inner.read_range(ref, start, length))


def changing() -> Callable[[bytes], bytes]:
    places = iter(range(1, 1000))
    return lambda data: flipped(data, next(places)) if data else data


@pytest.mark.parametrize("change", [lambda data: data[:-1], changing(), lambda data: data + b"x"])
def test_a_share_that_shortens_or_changes_at_will_is_blamed(
    tmp_path: Path, change: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 1000)
    store = LocalStore(tmp_path / "store")
    wanted = Wanted(store.put("key", DATA), "copy", len(DATA), hashlib.sha256(DATA).hexdigest())
    with raising(Unavailable, store.address, "key"):
        download(BadDisk(store, change), [wanted], tmp_path / "bad")
    store.put("key", flipped(DATA))
    with pytest.raises(Corrupt):
        download(store, [wanted], tmp_path / "good")


def test_a_share_that_gives_fewer_bytes_than_it_says_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "store")
    ref = store.put("key", DATA)
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    for read, size in ((lambda: store.get(ref), len(DATA)), (lambda: store.read_range(ref, 0, 10), 10)):
        with raising(Unavailable, tmp_path / "store" / "key", 0, size):
            read()
    assert store.read_range(ref, 5000, 10) == b"", "behind the end there is nothing"


def test_missing_counts_once_two_connections_say_so(tmp_path: Path) -> None:
    store = MemoryStore()
    wanted = Wanted(store.put("key", DATA), "copy", len(DATA), hashlib.sha256(DATA).hexdigest())
    faulty = FaultyStore(store)
    faulty.script("read_range", Missing("key is gone"))
    with raising(Unavailable, store.address, "key"):
        download(faulty, [wanted], tmp_path)
    store.delete(wanted.ref)
    with pytest.raises(Missing):
        download(faulty, [wanted], tmp_path)


# --- fresh ----------------------------------------------------------------------------------------------------------


def test_a_fresh_store_is_the_same_on_connections_of_its_own(behind: Behind) -> None:
    def peers(store: Store) -> set[int]:
        behind.link.proxy.seen.clear()
        assert store.get(behind.ref) == DATA
        return {request.peer for request in behind.link.proxy.seen}

    used = peers(behind.store)
    assert peers(behind.store) == used, "a client keeps its connection"
    store: Store = behind.store
    for wrap in (lambda inner: inner, Wrapper, lambda inner: RetryStore(inner, sleep=lambda _: None, jitter=float)):
        store = wrap(store)
        anew = fresh(store)
        assert type(anew) is type(store) and anew.address == store.address
        assert not peers(anew) & used
        assert peers(store) == used, "the first client is as it was"


def test_a_fresh_store_without_connections_is_itself(tmp_path: Path) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path), Wrapper(MemoryStore())):
        assert fresh(store) is store


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_store_that_only_reads_only_reads(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with link(kind, monkeypatch) as bad:
        behind = stored(bad, tmp_path)
        with raising(Denied):
            fresh(bad.store(read_only=True)).delete(behind.ref)
        assert bad.store().get(behind.ref) == DATA
