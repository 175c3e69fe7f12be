"""Files come down whole or not at all: damage is proved, what was fetched is kept, nothing leaves the folder."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest

from storage import transfer
from storage.base import (
    Corrupt,
    Denied,
    QuotaExceeded,
    Ref,
    Store,
    StoreError,
    Unavailable,
)
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.transfer import Wanted, download, upload
from storage.wrapper import Wrapper
from tests.facts import raising
from tests.storage.counting import CountingStore
from tests.storage.faulty import FaultyStore
from tests.storage.helpers import NAMES, contents, wanted

pytestmark = pytest.mark.usefixtures("small_chunks")


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
        with raising(Corrupt, "key"):
            download(counting, [file], tmp_path / "target")
        assert contents(tmp_path / "target") == {}
        firsts = 2 * (min(len(damaged), file.size + 1) // 1000 + 1)
        ahead = 2 * 4
        assert firsts - 2 <= counting.counts["read_range"] <= firsts + 2 + ahead, "read in full twice"


@pytest.mark.parametrize("part", [b"", b"a wrong beginning, which is not a read of the store"])
def test_a_second_read_that_is_right_is_enough(stored: tuple[MemoryStore, Wanted], tmp_path: Path, part: bytes) -> None:
    class GarblesOnce(Wrapper):
        garbled = False

        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            data = self.inner.read_range(ref, start, length)
            if start == 0 and not self.garbled:
                self.garbled = True
                return bytes(len(data))
            return data

    store, file = stored
    (tmp_path / f".{file.name}.part").write_bytes(part)
    (path,) = download(GarblesOnce(store), [file], tmp_path)
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
    download(Dies(LocalStore(store), 4), [file], target, workers=1)


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


@pytest.mark.parametrize("error", [Denied("no"), Unavailable("no answer"), StoreError("odd")])
def test_the_stores_own_error_stops_the_download_and_keeps_the_part(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path, error: StoreError
) -> None:
    store, file = stored
    faulty = FaultyStore(store)
    faulty.script("read_range", "ok", "ok", error)
    with pytest.raises(type(error)):
        download(faulty, [file], tmp_path, workers=1)
    assert contents(tmp_path) == {f"source/{name}": data for name, data in contents(tmp_path / "source").items()} | {
        f".{file.name}.part": store.get(file.ref)[:2000]
    }


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..", ".ssh", "", "a\x00b", "C:\\evil"])
def test_a_name_that_leaves_the_folder_is_refused_before_anything_is_fetched(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path, name: str
) -> None:
    store, file = stored
    counting = CountingStore(store)
    with raising(ValueError, repr(name)):
        download(counting, [file, file._replace(name=name)], tmp_path / "a" / "b")
    assert sum(counting.counts.values()) == 0
    assert not (tmp_path / "a").exists()


def test_a_link_in_place_of_the_part_file_is_not_written_through(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path
) -> None:
    store, file = stored
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / f".{file.name}.part").symlink_to(tmp_path / "victim")
    with raising(Denied, tmp_path / file.name):
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
        with raising(QuotaExceeded, tmp_path / file.name):
            download(store, [file], tmp_path)
    (path,) = download(store, [file], tmp_path)
    assert path.read_bytes() == store.get(file.ref)


def test_pieces_of_one_file_are_read_at_once_and_written_in_order(
    stored: tuple[MemoryStore, Wanted], tmp_path: Path
) -> None:
    together = threading.Barrier(3)

    class Waits(Wrapper):
        """Answers three reads together, the last asked first."""

        def read_range(self, ref: Ref, start: int, length: int) -> bytes:
            together.wait(timeout=20)
            time.sleep(0.01 * (3 - start // 1000 % 3))
            return self.inner.read_range(ref, start, length)

    store, file = stored
    (path,) = download(Waits(store), [file], tmp_path, workers=3)
    assert path.read_bytes() == store.get(file.ref)
