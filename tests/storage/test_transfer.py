"""Files go up verified, and come down again: resumed, in parallel, bounded in memory."""

from __future__ import annotations

import hashlib
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from storage import transfer
from storage.base import (
    BadAddress,
    BlockHash,
    Corrupt,
    Denied,
    Exists,
    QuotaExceeded,
    Ref,
    Stat,
    Store,
    StoreError,
    Unavailable,
)
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.retry import RetryStore
from storage.transfer import Uploaded, create, download, upload
from storage.wrapper import Wrapper
from tests.facts import raising
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore
from tests.storage.helpers import KEYS, NAMES, contents, wanted

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store")


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


def test_what_is_there_already_is_not_sent_again(store: Store, folder: Path) -> None:
    first = upload(store, folder, KEYS)
    store.delete(store.ref(KEYS["deep/er/x"]))
    counting = CountingStore(store)
    assert upload(counting, folder, KEYS) == first
    assert counting.counts["put"] == 1


@pytest.mark.parametrize("junk", [b"x" * 5500, b"short"])
def test_other_bytes_under_the_key_stay(store: Store, folder: Path, junk: bytes) -> None:
    ref = store.put(KEYS[NAMES[0]], junk)
    with raising(Exists, KEYS[NAMES[0]]):
        upload(store, folder, {NAMES[0]: KEYS[NAMES[0]]})
    with raising(Exists, KEYS[NAMES[0]]):
        create(store, KEYS[NAMES[0]], (folder / NAMES[0]).read_bytes())
    assert store.get(ref) == junk


@pytest.mark.parametrize("what", ["file", "bytes"])
@pytest.mark.parametrize("meanwhile", [b"x" * 5500, None], ids=["other bytes", "the same bytes"])
def test_another_writer_who_comes_between_the_look_and_the_writing_is_not_overwritten(
    store: Store, folder: Path, what: str, meanwhile: bytes | None
) -> None:
    whole, key = (folder / NAMES[0]).read_bytes(), KEYS[NAMES[0]]
    first = whole if meanwhile is None else meanwhile

    class Late(Wrapper):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            self.inner.put(name, first)
            return self.inner.put_new(name, data)

    def send() -> Ref:
        return (
            create(Late(store), key, whole) if what == "bytes" else upload(Late(store), folder, {NAMES[0]: key})[0].ref
        )

    if meanwhile is None:
        assert send() == store.ref(key)
    else:
        with pytest.raises(Exists):
            send()
    assert store.get(store.ref(key)) == first


@pytest.mark.parametrize("what", ["file", "bytes"])
def test_a_lost_answer_is_found_to_be_our_own(folder: Path, what: str) -> None:
    lossy, key = FaultyStore(MemoryStore()), KEYS[NAMES[0]]
    patient = RetryStore(lossy, sleep=lambda _: None, jitter=lambda: 0.0)
    lossy.script("put", "after", "before")
    whole = (folder / NAMES[0]).read_bytes()
    ref = create(patient, key, whole) if what == "bytes" else upload(patient, folder, {NAMES[0]: key})[0].ref
    assert lossy.inner.get(ref) == whole


def test_one_bad_read_of_what_is_there_is_no_proof_of_other_bytes(store: Store, folder: Path) -> None:
    class OnceBad(Wrapper):
        bad = True

        def _hurt(self, data: bytes) -> bytes:
            bad, self.bad = self.bad, False
            return b"?" + data[1:] if bad and data else data

        def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
            return self._hurt(self.inner.get(ref, limit=limit))

        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            return self._hurt(self.inner.read_range(ref, start, length))

    first = upload(store, folder, KEYS)
    assert upload(OnceBad(store), folder, KEYS) == first
    assert create(OnceBad(store), "small", b"data") == create(OnceBad(store), "small", b"data")


class Damages(Wrapper):
    """Stores the first `times` puts with a byte flipped, or cut short."""

    def __init__(self, inner: Store, times: int, cut: bool) -> None:
        super().__init__(inner)
        self.times, self.cut = times, cut

    def put(self, name: str, data: bytes | Path) -> Ref:
        return self.inner.put(name, self._harmed(data))

    def put_new(self, name: str, data: bytes | Path) -> Ref:
        return self.inner.put_new(name, self._harmed(data))

    def _harmed(self, data: bytes | Path) -> bytes:
        assert isinstance(data, Path)
        whole = data.read_bytes()
        self.times -= 1
        if self.times >= 0:
            whole = whole[:-1] if self.cut else whole[:4000] + bytes([whole[4000] ^ 1]) + whole[4001:]
        return whole


@pytest.mark.parametrize("cut", [False, True])
def test_an_upload_that_arrives_damaged_is_sent_again_and_then_given_up(store: Store, folder: Path, cut: bool) -> None:
    keys = {NAMES[0]: KEYS[NAMES[0]]}
    (file,) = upload(Damages(store, 1, cut), folder, keys)
    assert store.get(file.ref) == (folder / NAMES[0]).read_bytes()
    store.delete(file.ref)
    with raising(Corrupt, KEYS[NAMES[0]], folder / NAMES[0]):
        upload(Damages(store, 2, cut), folder, keys)
    with pytest.raises(Exists):  # another attempt does not know who sent this
        upload(store, folder, keys)


class Hashes(Wrapper):
    """A store whose server tells the hash of what it holds."""

    def stat(self, ref: Ref) -> Stat:
        stat = self.inner.stat(ref)
        return Stat(ref, stat.name, stat.size, stat.modified, hashlib.sha256(self.inner.get(ref)).hexdigest())


class HashesBlocks(Wrapper):
    """A store whose server tells a hash by blocks of 1000 bytes."""

    def stat(self, ref: Ref) -> Stat:
        stat, data = self.inner.stat(ref), self.inner.get(ref)
        digests = [hashlib.sha256(data[at : at + 1000]).digest() for at in range(0, len(data), 1000)]
        return replace(stat, block_hash=BlockHash(1000, hashlib.sha256(b"".join(digests)).hexdigest()))


@pytest.mark.parametrize("hashes", [Hashes, HashesBlocks])
def test_a_servers_own_hash_spares_reading_back(folder: Path, hashes: type[Wrapper]) -> None:
    counting = CountingStore(hashes(MemoryStore()))
    upload(counting, folder, KEYS)
    assert counting.counts["get"] == counting.counts["read_range"] == 0
    with pytest.raises(Corrupt):
        upload(Damages(hashes(MemoryStore()), 2, cut=False), folder, {NAMES[0]: "x"})


def test_a_hash_that_the_server_may_never_have_checked_proves_no_upload(folder: Path) -> None:
    claimed = hashlib.sha256((folder / NAMES[0]).read_bytes()).hexdigest()

    class Claims(Wrapper):
        """Repeats the hash that came with the file."""

        def stat(self, ref: Ref) -> Stat:
            return replace(self.inner.stat(ref), sha256=claimed, hash_tested=False)

    with pytest.raises(Corrupt):
        upload(Claims(Damages(MemoryStore(), 2, cut=False)), folder, {NAMES[0]: "x"})
    upload(Claims(MemoryStore()), folder, {NAMES[0]: "x"})


def test_a_file_that_changes_while_it_is_sent_is_not_taken_for_what_it_was(folder: Path) -> None:
    class ChangesOnDisk(HashesBlocks):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            assert isinstance(data, Path)
            data.write_bytes(bytes((byte + 1) % 256 for byte in data.read_bytes()))
            return self.inner.put_new(name, data)

    store = ChangesOnDisk(MemoryStore())
    try:
        (sent,) = upload(store, folder, {NAMES[0]: "x"})
    except Corrupt:
        return  # hashed before it changed
    assert sent.sha256 == hashlib.sha256(store.get(sent.ref)).hexdigest(), "hashed after it changed: as it was sent"


def test_a_source_that_cannot_be_read_is_named(store: Store, folder: Path) -> None:
    with raising(StoreError, folder / "absent"):
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

    class FirstIsSlowSecondFails(Wrapper):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            if name == "n1":
                raise QuotaExceeded("full")
            if name == "n0":
                threading.Event().wait(0.5)
            return self.inner.put_new(name, data)

    counting = CountingStore(FirstIsSlowSecondFails(MemoryStore()))
    with pytest.raises(QuotaExceeded):
        upload(counting, tmp_path, {name: name for name in names}, workers=2)
    assert counting.counts["put"] < 150
