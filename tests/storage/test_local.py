"""A folder on a disk: races of processes, reading without a trace, a disk that goes away, left-over files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage.base import BadAddress, Denied, Missing, Unavailable
from storage.local import LocalStore
from tests.facts import raising
from tests.storage.diskcalls import disk_calls
from tests.storage.helpers import all_files, names
from tests.storage.racing import payload, race


@pytest.mark.slow
def test_of_racing_processes_exactly_one_wins_and_nobody_reads_a_torn_entry(tmp_path: Path) -> None:
    racers, rounds = 8, 100
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(racers)
    results = [tmp_path / f"result-{number}" for number in range(racers)]
    processes = [
        spawn.Process(target=race, args=(tmp_path / "store", number, rounds, barrier, results[number]))
        for number in range(racers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * racers
    outcome = [path.read_text().split("\n") for path in results]
    winner = {int(number): racer for racer, (_, won) in enumerate(outcome) for number in won.split()}
    assert sum(len(won.split()) for _, won in outcome) == len(winner) == rounds
    assert [int(torn) for torn, _ in outcome] == [0] * racers
    store = LocalStore(tmp_path / "store")
    for number, racer in winner.items():
        assert store.get(store.ref(f"race/{number:04d}")) == payload(racer)
    assert len(all_files(store)) == rounds, "no temporary file is left"


def test_reading_a_store_that_does_not_exist_creates_nothing(local: LocalStore) -> None:
    assert names(local) == []
    with pytest.raises(Missing):
        local.get(local.ref("a"))
    local.delete(local.ref("a"))
    assert abs(local.now() - time.time()) < 5
    assert local.clock_is_local
    assert not local.root.exists()
    local.put("a", b"")
    local.now()
    assert not local.clock_is_local


def test_a_read_only_store_is_never_written_to(local: LocalStore) -> None:
    ref = local.put("a/b", b"data")
    before = local.root.stat().st_mtime_ns
    reader = LocalStore(local.root, read_only=True)
    assert reader.get(ref) == b"data" and [found.name for found in reader.list("a/")] == ["a/b"]
    assert abs(reader.now() - time.time()) < 5
    assert reader.clock_is_local
    for change in (
        lambda: reader.put("c", b""),
        lambda: reader.put_if_absent("c", b""),
        lambda: reader.delete(ref),
    ):
        with raising(Denied, local.root):
            change()
    assert local.root.stat().st_mtime_ns == before
    assert names(local) == ["a/b"]


def test_the_clock_is_the_disks(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    local.put("a", b"")
    monkeypatch.setattr(time, "time", lambda: 12345.0)
    assert local.now() > 1.7e9
    assert not local.clock_is_local
    assert all_files(local) == ["a"]


def test_the_root_may_be_a_file_of_somebody_but_then_it_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = LocalStore(tmp_path / "file")
    for use in (lambda: store.put("a", b""), lambda: store.get(store.ref("a")), lambda: list(store.list(""))):
        with raising(BadAddress, tmp_path / "file"):
            use()


def test_a_store_that_disappears_is_unavailable_not_empty_and_comes_back(local: LocalStore) -> None:
    ref = local.put("a", b"data")
    hidden = local.root.rename(local.root.with_name("unplugged"))
    for use in _every_verb(local):
        with raising(Unavailable, local.root):
            use()
    assert not local.root.exists()
    local.root.mkdir()
    for use in _every_verb(local):
        with raising(Unavailable, local.root):
            use()
    assert list(local.root.iterdir()) == []
    local.root.rmdir()
    hidden.rename(local.root)
    assert local.get(ref) == b"data"


def _every_verb(local: LocalStore) -> list[Callable[[], Any]]:
    ref = local.ref("a")
    return [
        lambda: local.put("a", b""),
        lambda: local.put_if_absent("new", b""),
        lambda: local.get(ref),
        lambda: local.read_range(ref, 0, 1),
        lambda: local.stat(ref),
        lambda: local.delete(ref),
        lambda: list(local.list("")),
        local.now,
    ]


def test_a_folder_that_another_thread_makes_meanwhile_has_not_disappeared(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first upload has several threads: one looks for what is there while another one makes the store's folder."""
    real, looked = os.open, list[object]()

    def late(path: Any, *args: Any, **more: Any) -> int:
        if path == local.root and not looked:
            looked.append(path)
            try:
                return real(path, *args, **more)
            finally:
                local.put("other", b"x")
        return real(path, *args, **more)

    monkeypatch.setattr("storage.local.os.open", late)
    with pytest.raises(Missing):
        local.stat(local.ref("one"))
    assert looked and local.get(local.ref("other")) == b"x"


def test_temporary_files_are_never_listed_and_swept_after_a_day(local: LocalStore) -> None:
    local.put("folder/a", b"")
    old, young = (local.root / "folder" / f".{pid}-0123456789abcdef.tmp" for pid in (1, 2))
    for path, age in ((old, 90_000), (young, 80_000)):
        path.write_bytes(b"left by a writer that died")
        os.utime(path, (time.time() - age, time.time() - age))
    assert names(local) == ["folder/a"]
    LocalStore(local.root).put("folder/b", b"")
    assert not old.exists() and young.exists()
    os.utime(young, (0, 0))
    LocalStore(local.root).delete(local.ref("folder/b"))
    assert all_files(local) == ["folder/a"]


def test_foreign_files_are_left_alone_and_not_listed(local: LocalStore) -> None:
    local.put("folder/a", b"")
    for foreign in ("Read Me.txt", ".DS_Store", "x.tmp~", ".nfs0001", "folder/Thumbs.db"):
        (local.root / foreign).write_text("mine")
        os.utime(local.root / foreign, (0, 0))
    local.delete(local.put("folder/b", b""))
    assert names(local) == ["folder/a"]
    assert len(all_files(local)) == 6


def test_a_write_that_dies_before_its_name_is_given_leaves_the_old_version(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = local.put("a", b"old")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for call, write in (("replace", local.put), ("link", local.put_if_absent)):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            with pytest.raises(KeyboardInterrupt):
                write("a", b"new")
    assert local.get(ref) == b"old"
    assert all_files(local) == ["a"]


def test_what_only_root_may_use_counts_as_used(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=100, used=30, free=60))
    assert local.quota() == (40, 100)


def test_an_object_is_durable_before_it_has_its_name_and_its_folder_after(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = disk_calls(monkeypatch)
    local.put_if_absent("a", b"")
    local.put("folder/b", b"")
    root_made = ["mkdir", "fsync"]
    assert steps == [*root_made, "fsync file", "link", "fsync", "mkdir", "fsync", "fsync file", "replace", "fsync"]
    shutil.rmtree(local.root / "folder")
    del steps[:]
    local.put("folder/b", b"")
    assert steps == ["mkdir", "fsync", "fsync file", "replace", "fsync"], "a folder that was made anew"


def test_a_folder_that_another_made_in_the_same_moment_is_used(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a", b"")
    real = os.mkdir

    def slower(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        real(*args, **kwargs)

    monkeypatch.setattr(os, "mkdir", slower)
    assert local.get(local.put("folder/b", b"x")) == b"x"
