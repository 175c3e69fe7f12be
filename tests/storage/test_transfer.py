"""Files arrive whole or not at all: verified both ways, resumed, bounded in memory, and never outside their folder."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest

from storage import transfer
from storage.base import (
    BadAddress,
    Corrupt,
    Denied,
    Missing,
    QuotaExceeded,
    Ref,
    Stat,
    Store,
    StoreError,
    Unavailable,
)
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.transfer import Uploaded, Wanted, download, upload
from storage.wrapper import CountingStore, Wrapper
from tests.storage.faulty import FaultyStore

NAMES = ["model.safetensors", "carry.safetensors", "empty.json", "deep/er/x"]
KEYS = {name: f"checkpoints/p/r/step_5.e1/{name}" for name in NAMES}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 1000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files whose sizes lie on, before and behind the edges of a chunk."""
    chance = Random(1)
    for name, size in zip(NAMES, (5500, 3000, 0, 1), strict=True):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    return tmp_path / "source"


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")


def wanted(files: list[Uploaded]) -> list[Wanted]:
    return [Wanted(file.ref, file.name, file.size, file.sha256) for file in files]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- there and back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
def test_what_goes_up_comes_down(store: Store, folder: Path, tmp_path: Path, workers: int) -> None:
    up: list[int] = []
    down: list[int] = []
    files = upload(store, folder, KEYS, workers=workers, progress=up.append)
    assert [file.name for file in files] == NAMES
    for file in files:
        data = (folder / file.name).read_bytes()
        assert file == Uploaded(
            file.name, KEYS[file.name], store.ref(KEYS[file.name]), len(data), hashlib.sha256(data).hexdigest()
        )
    paths = download(store, wanted(files), tmp_path / "target", workers=workers, progress=down.append)
    assert paths == [tmp_path / "target" / name for name in NAMES]
    assert contents(tmp_path / "target") == contents(folder)
    assert sum(up) == sum(down) == 8501


def test_one_worker_starts_no_thread_and_several_do(store: Store, folder: Path, tmp_path: Path) -> None:
    class Notes(Wrapper):
        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            seen.add(threading.current_thread())
            return self.inner.read_range(ref, start, length)

    seen: set[threading.Thread] = set()
    files = upload(Notes(store), folder, KEYS, workers=1)
    download(Notes(store), wanted(files), tmp_path / "target", workers=1)
    assert seen == {threading.current_thread()}
    download(Notes(store), wanted(files), tmp_path / "other", workers=3)
    assert len(seen) > 1


def test_memory_is_bounded_by_the_chunk_not_by_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 1 << 20)
    monkeypatch.setattr("storage.files.CHUNK", 1 << 20)
    (tmp_path / "source").mkdir()
    with (tmp_path / "source" / "big").open("wb") as file:
        file.truncate(48 << 20)
    store = LocalStore(tmp_path / "store")
    tracemalloc.start()
    try:
        files = upload(store, tmp_path / "source", {"big": "big"}, workers=1)
        download(store, wanted(files), tmp_path / "target", workers=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20


# --- up ---------------------------------------------------------------------------------------------------------


def test_what_is_there_already_is_not_sent_again(store: Store, folder: Path) -> None:
    first = upload(store, folder, KEYS)
    store.delete(store.ref(KEYS["deep/er/x"]))
    counting = CountingStore(store)
    assert upload(counting, folder, KEYS) == first
    assert counting.counts["put"] == 1


def test_other_bytes_under_the_key_are_replaced(store: Store, folder: Path) -> None:
    for junk in (b"x" * 5500, b"short"):
        store.put(KEYS[NAMES[0]], junk)
        (file,) = upload(store, folder, {NAMES[0]: KEYS[NAMES[0]]})
        assert store.get(file.ref) == (folder / NAMES[0]).read_bytes()


class Damages(Wrapper):
    """Stores the first `times` puts with a byte flipped, or cut short."""

    def __init__(self, inner: Store, times: int, cut: bool) -> None:
        super().__init__(inner)
        self.times, self.cut = times, cut

    def put(self, name: str, data: bytes | Path) -> Ref:
        assert isinstance(data, Path)
        whole = data.read_bytes()
        self.times -= 1
        if self.times >= 0:
            whole = whole[:-1] if self.cut else whole[:4000] + bytes([whole[4000] ^ 1]) + whole[4001:]
        return self.inner.put(name, whole)


@pytest.mark.parametrize("cut", [False, True])
def test_an_upload_that_arrives_damaged_is_sent_again_and_then_given_up(store: Store, folder: Path, cut: bool) -> None:
    keys = {NAMES[0]: KEYS[NAMES[0]]}
    (file,) = upload(Damages(store, 1, cut), folder, keys)
    assert store.get(file.ref) == (folder / NAMES[0]).read_bytes()
    store.delete(file.ref)
    with pytest.raises(Corrupt, match=rf"{KEYS[NAMES[0]]} was sent 2 times.*{folder}"):
        upload(Damages(store, 2, cut), folder, keys)


class Hashes(Wrapper):
    """A store whose server tells the hash of what it holds."""

    def stat(self, ref: Ref) -> Stat:
        stat = self.inner.stat(ref)
        return Stat(ref, stat.name, stat.size, stat.modified, hashlib.sha256(self.inner.get(ref)).hexdigest())


def test_a_servers_own_hash_spares_reading_back(folder: Path) -> None:
    counting = CountingStore(Hashes(MemoryStore()))
    upload(counting, folder, KEYS)
    assert counting.counts["get"] == counting.counts["read_range"] == 0
    with pytest.raises(Corrupt):
        upload(Damages(Hashes(MemoryStore()), 2, cut=False), folder, {NAMES[0]: "x"})


def test_a_source_that_cannot_be_read_is_named(store: Store, folder: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*absent"):
        upload(store, folder, {"absent": "x"})


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("error", [QuotaExceeded("full"), Denied("no"), Unavailable("gone"), BadAddress("bad")])
def test_the_stores_own_error_stops_the_upload(folder: Path, error: StoreError, workers: int) -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.script("put", "ok", error)
    with pytest.raises(type(error)):
        upload(faulty, folder, KEYS, workers=workers)


def test_after_an_error_nothing_new_begins(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(200)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    faulty = FaultyStore(MemoryStore())
    faulty.script("put", QuotaExceeded("full"))
    counting = CountingStore(faulty)
    with pytest.raises(QuotaExceeded):
        upload(counting, tmp_path, {name: name for name in names}, workers=2)
    assert counting.counts["put"] < 150


# --- down -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(folder: Path) -> tuple[MemoryStore, Wanted]:
    store = MemoryStore()
    (file,) = upload(store, folder, {NAMES[0]: "key"})
    return store, wanted([file])[0]


def flips(data: bytes) -> Iterator[bytes]:
    for at in (0, 999, 1000, 5499):
        yield data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :]
    yield from (data[:-1], data[:1000], b"", data + b"x", data + data)


def test_any_damage_is_found_after_two_full_reads_and_leaves_no_file(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path
) -> None:
    store, file = stored
    for damaged in flips(store.get(file.ref)):
        store.put("key", damaged)
        counting = CountingStore(store)
        with pytest.raises(Corrupt, match="key is damaged"):
            download(counting, [file], tmp_path / "target")
        assert contents(tmp_path / "target") == {}
        firsts = 2 * (min(len(damaged), file.size + 1) // 1000 + 1)
        assert firsts - 2 <= counting.counts["read_range"] <= firsts + 2, "read in full twice"


def test_a_second_read_that_is_right_is_enough(stored: tuple[MemoryStore, Wanted], tmp_path: Path) -> None:
    class GarblesOnce(Wrapper):
        garbled = False

        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            data = self.inner.read_range(ref, start, length)
            if start == 2000 and not self.garbled:
                self.garbled = True
                return bytes(len(data))
            return data

    store, file = stored
    (path,) = download(GarblesOnce(store), [file], tmp_path / "target")
    assert path.read_bytes() == store.get(file.ref)


def test_a_wrong_part_file_is_this_disks_fault_and_no_evidence(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path
) -> None:
    store, file = stored
    part = tmp_path / f".{file.name}.part"
    for junk in (b"junk" * 500, bytes(5500), bytes(9000)):
        part.write_bytes(junk)
        (path,) = download(store, [file], tmp_path)
        assert path.read_bytes() == store.get(file.ref)
        path.unlink()
        assert not part.exists()


def test_what_is_here_already_is_not_fetched_again(stored: tuple[MemoryStore, Wanted], tmp_path: Path) -> None:
    store, file = stored
    (path,) = download(store, [file], tmp_path)
    counting = CountingStore(store)
    download(counting, [file], tmp_path)
    assert sum(counting.counts.values()) == 0
    path.write_bytes(b"spoilt here")
    download(counting, [file], tmp_path)
    assert path.read_bytes() == store.get(file.ref)


class Dies(Wrapper):
    """The process dies at the n-th range, as if killed."""

    def __init__(self, inner: Store, after: int) -> None:
        super().__init__(inner)
        self.left = after

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        self.left -= 1
        if self.left < 0:
            os._exit(9)
        return self.inner.read_range(ref, start, length)


def download_and_die(store: Path, file: Wanted, target: Path) -> None:
    transfer.CHUNK = 100_000
    download(Dies(LocalStore(store), 4), [file], target)


def test_a_killed_download_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Random(2).randbytes(1_000_000)
    store = LocalStore(tmp_path / "store")
    file = Wanted(store.put("key", data), "file", len(data), hashlib.sha256(data).hexdigest())
    process = multiprocessing.get_context("spawn").Process(
        target=download_and_die, args=(store.root, file, tmp_path / "target")
    )
    process.start()
    process.join(timeout=60)
    assert process.exitcode == 9
    assert not (tmp_path / "target" / "file").exists()
    monkeypatch.setattr(transfer, "CHUNK", 100_000)
    counting = CountingStore(store)
    (path,) = download(counting, [file], tmp_path / "target")
    assert path.read_bytes() == data
    assert counting.counts["read_range"] <= 7, "the first four pieces were kept"


@pytest.mark.parametrize("error", [Missing("gone"), Denied("no"), Unavailable("no answer")])
def test_the_stores_own_error_stops_the_download_and_keeps_the_part(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path, error: StoreError
) -> None:
    store, file = stored
    faulty = FaultyStore(store)
    faulty.script("read_range", "ok", "ok", error)
    with pytest.raises(type(error)):
        download(faulty, [file], tmp_path)
    assert contents(tmp_path) == {f"source/{name}": data for name, data in contents(tmp_path / "source").items()} | {
        f".{file.name}.part": store.get(file.ref)[:2000]
    }


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..", ".ssh", "", "a\x00b", "C:\\evil"])
def test_a_name_that_leaves_the_folder_is_refused_before_anything_is_fetched(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path, name: str
) -> None:
    store, file = stored
    counting = CountingStore(store)
    with pytest.raises(ValueError, match="not a valid"):
        download(counting, [file, file._replace(name=name)], tmp_path / "a" / "b")
    assert sum(counting.counts.values()) == 0
    assert not (tmp_path / "a").exists()


def test_a_link_in_place_of_the_part_file_is_not_written_through(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path
) -> None:
    store, file = stored
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / f".{file.name}.part").symlink_to(tmp_path / "victim")
    with pytest.raises(Denied, match="link"):
        download(store, [file], tmp_path)
    assert (tmp_path / "victim").read_bytes() == b"victim"


def test_a_full_disk_here_is_named_and_the_download_goes_on_later(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store, file = stored
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        with pytest.raises(QuotaExceeded, match=rf"{tmp_path}/{file.name}.*Free some space"):
            download(store, [file], tmp_path)
    (path,) = download(store, [file], tmp_path)
    assert path.read_bytes() == store.get(file.ref)
