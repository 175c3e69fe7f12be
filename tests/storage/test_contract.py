"""The contract of base.Store, for every backend, always with two clients of one store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from storage.base import Denied, Exists, Missing, Ref, Store, StoreError, TooLong
from storage.log import Log, Lost, Won
from storage.selftest import self_test
from tests.facts import raising
from tests.storage.backends import BACKENDS, FOLDERS_STAY, SERVERS, WITHOUT_NAMES, Opener

Clients = tuple[Store, Store]

BAD_NAMES = [
    "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".hidden", "a/.b", "-a", "_a", "A", "a/B", "a b",
    "a\\b", "a\n", "a\x00b", "ä", "a/" + "b" * 300, "/".join(["abcdefgh"] * 200), "~", "a:b", "%2e%2e/a",
]  # fmt: skip


def backends(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SERVERS else []) for name in names]


@pytest.fixture(params=backends(BACKENDS))
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def clients(opener: Opener) -> Clients:
    return opener(), opener()


@pytest.fixture(params=backends(name for name in BACKENDS if name not in WITHOUT_NAMES))
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Clients:
    """Of a store with unique names: there an object is found by its name, and put_if_absent is for everybody."""
    opener = BACKENDS[request.param](tmp_path)
    return opener(), opener()


def test_is_a_store(clients: Clients) -> None:
    assert all(isinstance(client, Store) for client in clients)
    assert clients[0].address == clients[1].address


def test_a_put_is_seen_by_the_other_client_at_once(clients: Clients) -> None:
    a, b = clients
    for version in (b"one", b"", b"three" * 1000):
        ref = a.put("some/name.json", version)
        assert b.get(ref) == version
        assert b.stat(ref).size == len(version)


def test_a_name_finds_what_was_put_last(named: Clients) -> None:
    a, b = named
    for version in (b"one", b"", b"three" * 1000):
        a.put("some/name.json", version)
        assert b.get(b.ref("some/name.json")) == version


def test_a_file_is_stored_by_its_content(clients: Clients, tmp_path: Path) -> None:
    source = tmp_path / "Source File"
    source.write_bytes(b"x" * 10_000)
    ref = clients[0].put("file", source)
    source.write_bytes(b"changed afterwards")
    assert clients[1].get(ref) == b"x" * 10_000


def test_a_file_that_cannot_be_read_is_a_plain_store_error(clients: Clients, tmp_path: Path) -> None:
    with raising(StoreError, tmp_path / "absent"):
        clients[0].put("file", tmp_path / "absent")
    assert list(clients[1].list("")) == []


def test_put_if_absent_wins_once_and_changes_nothing_after(named: Clients) -> None:
    a, b = named
    ref = a.put_if_absent("slot", b"first")
    for client in named:
        with raising(Exists, "slot"):
            client.put_if_absent("slot", b"second")
    assert b.get(ref) == b"first"
    b.delete(ref)
    b.put_if_absent("slot", b"third")
    assert a.get(ref) == b"third"


def test_put_if_absent_yields_to_an_earlier_put(named: Clients) -> None:
    a, b = named
    a.put("slot", b"put")
    with pytest.raises(Exists):
        b.put_if_absent("slot", b"absent")


@pytest.fixture(params=[5, 17 << 20], ids=["small", "in-parts"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one length, which a server is sent in one piece or in parts."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(name.encode() * (request.param // 3) + b"x" * (request.param % 3))
    return tmp_path / "one", tmp_path / "two"


def test_put_new_replaces_nothing(clients: Clients, files: tuple[Path, Path]) -> None:
    (a, b), (one, two) = clients, files
    first = a.put_new("folder/file", one)
    assert b.stat(first).size == one.stat().st_size
    for client in clients:
        for data in (two, b"bytes"):
            if client.unique_names:
                with pytest.raises(Exists):
                    client.put_new("folder/file", data)
            else:
                assert client.put_new("folder/file", data) != first
    assert b.get(first) == one.read_bytes()
    for stat in list(a.list("")):
        a.delete(stat.ref)
    assert b.get(b.put_new("folder/file", two)) == two.read_bytes()


def test_ranges(clients: Clients) -> None:
    a, b = clients
    data = bytes(range(256))
    ref = a.put("data", data)
    assert b.read_range(ref, 10, 20) == data[10:30]
    assert b.read_range(ref, 250, 100) == data[250:]
    assert b.read_range(ref, 256, 10) == b.read_range(ref, 9999, 1) == b.read_range(ref, 5, 0) == b""
    for start, length in ((-1, 5), (0, -5)):
        with raising(ValueError, start, length):
            b.read_range(ref, start, length)


def test_a_limit_refuses_longer_objects_and_no_others(clients: Clients) -> None:
    a, b = clients
    ref = a.put("data", b"12345")
    assert b.get(ref, limit=5) == b"12345"
    with raising(TooLong, ref, 5):
        b.get(ref, limit=4)


def test_what_is_not_there_is_missing_and_can_be_deleted(clients: Clients) -> None:
    a, b = clients
    ref = a.put("folder/nothing", b"there for a moment")
    a.delete(ref)
    for _ in range(2):
        for read in (b.get, b.stat, lambda ref: b.read_range(ref, 0, 1)):
            with raising(Missing, ref):
                read(ref)
        b.delete(ref)
        a.delete(a.put("folder/nothing", b"there again"))


def test_a_folder_of_names_is_not_an_object(named: Clients) -> None:
    a, b = named
    a.put("folder/inside", b"data")
    for read in (b.get, b.stat):
        with pytest.raises(Missing):
            read(b.ref("folder"))
    b.delete(b.ref("folder"))
    assert [stat.name for stat in b.list("")] == ["folder/inside"]
    with pytest.raises(Missing):
        b.get(b.ref("folder/inside/deeper"))


def test_a_name_that_is_also_a_folder_is_kept_or_refused_but_never_taken_for_another(named: Clients) -> None:
    a, _ = named
    a.put("folder/inside", b"data")
    for write in (a.put, a.put_if_absent):
        for name in ("folder", "folder/inside/deeper"):
            with suppress(Denied, Exists):
                a.delete(write(name, b"x"))
    assert a.get(a.ref("folder/inside")) == b"data"


def test_an_emptied_folder_can_become_a_name_or_stays_denied(clients: Clients, request: pytest.FixtureRequest) -> None:
    a, b = clients
    a.delete(a.put("x/y/z", b"data"))
    if request.node.callspec.params["opener"] in FOLDERS_STAY:
        with raising(Denied):
            b.put("x", b"now a name")
        assert b.get(b.put("x/y/z", b"again")) == b"again"
    else:
        assert b.get(b.put("x", b"now a name")) == b"now a name"


def test_list_is_complete_sorted_and_cut_by_prefix_and_after(clients: Clients) -> None:
    a, b = clients
    names = sorted(["a", "b-1", "b.x", "b/1", "b/2/x", "b/2-x", "b/20", "b0", "c/" + "0" * 20 + ".json", "bb/1"])
    for name in reversed(names):
        a.put(name, name.encode())
    for prefix in ("", "b", "b/", "b/2", "b/2/", "c/0", "zzz", "zzz/"):
        expected = [name for name in names if name.startswith(prefix)]
        assert [stat.name for stat in b.list(prefix)] == expected
        for after in (*names, "", "b/1x", "zz"):
            assert [s.name for s in b.list(prefix, after=after)] == [name for name in expected if name > after]
    assert all(stat.size == len(stat.name) and b.get(stat.ref) == stat.name.encode() for stat in b.list(""))
    with raising(ValueError, "'..'"):
        list(b.list("../"))


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_and_foreign_references_are_refused(clients: Clients, name: str) -> None:
    a, _ = clients
    for use in (lambda: a.put(name, b""), lambda: a.put_if_absent(name, b""), lambda: a.ref(name)):
        with raising(ValueError, repr(name[:200])):
            use()
    ref = Ref(name)
    for read in (a.get, a.stat, a.delete, lambda ref: a.read_range(ref, 0, 1)):
        with raising(Denied):
            read(ref)


def test_who_may_only_read_writes_nothing(opener: Opener) -> None:
    writer, reader = opener(), opener(read_only=True)
    ref = writer.put("there", b"data")
    for write in (
        lambda: reader.put("a", b""),
        lambda: reader.put_new("a", b""),
        lambda: reader.put_if_absent("a", b""),
        lambda: reader.delete(ref),
        lambda: self_test(reader),
    ):
        with raising(Denied):
            write()
    assert reader.get(ref) == b"data" and reader.stat(ref).size == 4
    assert abs(reader.now() - writer.now()) < 60
    assert [stat.name for stat in writer.list("")] == [stat.name for stat in reader.list("")] == ["there"]


def test_the_clock_does_not_run_backwards_and_agrees_with_modified(clients: Clients) -> None:
    a, b = clients
    a.put("first", b"")
    before = a.now()
    modified = b.stat(b.put("second", b"")).modified
    after = b.now()
    assert before <= modified <= after < before + 60
    assert not a.clock_is_local
    assert [stat.name for stat in a.list("")] == ["first", "second"]


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads change places all the time, as on a busy machine."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


ROUNDS = {"s3": 4, "dropbox": 30}
"""Fewer where a round takes long; these kinds are also raced by processes (remote/test_races.py)."""


@pytest.mark.usefixtures("many_switches")
def test_of_racing_threads_exactly_one_wins(named: Clients) -> None:
    racers, rounds = 8, ROUNDS.get(named[0].address.partition(":")[0], 100)
    barrier = threading.Barrier(racers)

    def race(number: int) -> list[int]:
        won = []
        for round_ in range(rounds):
            barrier.wait()
            try:
                named[number % 2].put_if_absent(f"race/{round_}", f"{number}".encode() * 5000)
                won.append(round_)
            except Exists:
                found = named[number % 2].get(Ref(f"race/{round_}"))
                assert len(found) == 5000 and len(set(found)) == 1, "a loser sees the whole winner"
        return won

    with ThreadPoolExecutor(racers) as pool:
        wins = sorted(round_ for won in pool.map(race, range(racers)) for round_ in won)
    assert wins == list(range(rounds))


def test_readers_see_whole_versions_while_a_writer_replaces(clients: Clients) -> None:
    a, b = clients
    ref = a.put("heartbeat", b"0" * 3000)
    done = threading.Event()

    def write() -> None:
        for number in range(60):
            a.put("heartbeat", f"{number % 10}".encode() * (3000 + number))
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not done.is_set() and not writing.done():
            found = b.get(ref)
            assert len(found) >= 3000 and len(set(found)) == 1
        writing.result()


def test_writing_and_pruning_one_folder_at_once_loses_nothing(clients: Clients) -> None:
    a, b = clients

    def churn(number: int) -> None:
        client = clients[number % 2]
        for round_ in range(25):
            ref = client.put(f"deep/er/{number}-{round_}", b"kept")
            assert client.get(ref) == b"kept"
            client.delete(ref)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert list(a.list("")) == list(b.list("")) == []


def test_passes_its_own_self_test_and_leaves_nothing(clients: Clients) -> None:
    for client in clients:
        self_test(client)
    assert list(clients[0].list("")) == []


def test_a_log_on_it_has_one_winner_a_slot(clients: Clients) -> None:
    a, b = (Log(client, "runs/p/r/ledger/", sleep=lambda _: None) for client in clients)
    assert a.tail() == b.tail() == -1
    for seq in range(5):
        first, second = (a, b) if seq % 2 else (b, a)
        assert isinstance(first.append(seq, b"first"), Won)
        assert second.append(seq, b"second") == Lost(b"first")
    assert a.tail() == b.tail(3) == 4
    assert a.gaps(4) == b.gaps(4) == []
