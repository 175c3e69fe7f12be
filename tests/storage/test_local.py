"""What is special to a folder on a disk: links, races of processes, full and read-only disks, left-over files."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.base import BadAddress, Denied, Missing, QuotaExceeded, StoreError, Unavailable
from storage.local import LocalStore
from storage.selftest import self_test
from tests.storage.racing import payload, race


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def names(store: LocalStore) -> list[str]:
    return [found.name for found in store.list("")]


def all_files(store: LocalStore) -> list[str]:
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if not path.is_dir())


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


# --- reading a folder changes nothing ---------------------------------------------------------------------------


def test_reading_a_store_that_does_not_exist_creates_nothing(store: LocalStore) -> None:
    assert names(store) == []
    with pytest.raises(Missing):
        store.get(store.ref("a"))
    store.delete(store.ref("a"))
    assert abs(store.now() - time.time()) < 5
    assert store.clock_is_local
    assert not store.root.exists()
    store.put("a", b"")
    store.now()
    assert not store.clock_is_local


def test_a_read_only_store_is_never_written_to(store: LocalStore) -> None:
    ref = store.put("a/b", b"data")
    before = store.root.stat().st_mtime_ns
    reader = LocalStore(store.root, read_only=True)
    assert reader.get(ref) == b"data" and [found.name for found in reader.list("a/")] == ["a/b"]
    assert abs(reader.now() - time.time()) < 5
    assert reader.clock_is_local
    for change in (
        lambda: reader.put("c", b""),
        lambda: reader.put_if_absent("c", b""),
        lambda: reader.delete(ref),
    ):
        with pytest.raises(Denied, match="reading only"):
            change()
    assert store.root.stat().st_mtime_ns == before
    assert names(store) == ["a/b"]


def test_the_clock_is_the_disks(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"")
    monkeypatch.setattr(time, "time", lambda: 12345.0)
    assert store.now() > 1.7e9
    assert not store.clock_is_local
    assert all_files(store) == ["a"]


def test_the_root_may_be_a_file_of_somebody_but_then_it_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = LocalStore(tmp_path / "file")
    for use in (lambda: store.put("a", b""), lambda: store.get(store.ref("a")), lambda: list(store.list(""))):
        with pytest.raises(BadAddress, match="not a folder"):
            use()


# --- a folder that goes away ------------------------------------------------------------------------------------


def test_a_store_that_disappears_is_unavailable_not_empty_and_comes_back(store: LocalStore) -> None:
    ref = store.put("a", b"data")
    hidden = store.root.rename(store.root.with_name("unplugged"))
    for use in _every_verb(store):
        with pytest.raises(Unavailable, match="disappeared"):
            use()
    assert not store.root.exists()
    store.root.mkdir()
    for use in _every_verb(store):
        with pytest.raises(Unavailable, match="taken the place"):
            use()
    assert list(store.root.iterdir()) == []
    store.root.rmdir()
    hidden.rename(store.root)
    assert store.get(ref) == b"data"


def _every_verb(store: LocalStore) -> list[Callable[[], Any]]:
    ref = store.ref("a")
    return [
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("new", b""),
        lambda: store.get(ref),
        lambda: store.read_range(ref, 0, 1),
        lambda: store.stat(ref),
        lambda: store.delete(ref),
        lambda: list(store.list("")),
        store.now,
    ]


# --- links ------------------------------------------------------------------------------------------------------


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "link")
    ref = store.put_if_absent("a/b", b"data")
    assert LocalStore(tmp_path / "real").get(ref) == b"data"


@pytest.mark.parametrize("target", ["secret", "secret-folder", "nothing-there"])
def test_a_link_in_place_of_an_object_is_refused_by_every_verb(store: LocalStore, tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "secret-folder").mkdir()
    store.put("a", b"")
    (store.root / "a").unlink()
    (store.root / "a").symlink_to(tmp_path / target)
    ref = store.ref("a")
    for use in (
        lambda: store.get(ref),
        lambda: store.read_range(ref, 0, 1),
        lambda: store.stat(ref),
        lambda: store.put("a", b"x"),
        lambda: store.put_if_absent("a", b"x"),
        lambda: store.delete(ref),
    ):
        with pytest.raises(Denied, match="link"):
            use()
    assert names(store) == []
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "nothing-there").exists()


def test_a_link_in_place_of_a_folder_is_refused_and_not_listed(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    store.put("in/side", b"")
    (store.root / "out").symlink_to(tmp_path / "outside")
    ref = store.ref("out/secret")
    for use in (
        lambda: store.get(ref),
        lambda: store.stat(ref),
        lambda: store.put("out/secret", b"x"),
        lambda: store.put("out/deeper/new", b"x"),
        lambda: store.put_if_absent("out/new", b"x"),
        lambda: store.delete(ref),
    ):
        with pytest.raises(Denied, match="link"):
            use()
    assert names(store) == ["in/side"]
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_a_pipe_is_denied_and_does_not_hang(store: LocalStore) -> None:
    store.put("a", b"")
    os.mkfifo(store.root / "pipe")
    for use in (lambda: store.get(store.ref("pipe")), lambda: store.put("pipe", b""), lambda: store.stat("pipe")):
        with pytest.raises(Denied, match="not a regular file"):
            use()
    assert names(store) == ["a"]


# --- what the system refuses ------------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """Let a call of `os` fail with an error number, for writes only if it is `open`."""

    def fail(call: str, code: int) -> None:
        real = getattr(os, call)

        def fails(*args: Any, **kwargs: Any) -> Any:
            if call == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, call, fails)

    yield fail
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("call", "code", "kind", "advice"),
    [
        ("fsync", errno.ENOSPC, QuotaExceeded, "Free some space"),
        ("open", errno.ENOSPC, QuotaExceeded, "Free some space"),
        ("open", errno.EDQUOT, QuotaExceeded, "Free some space"),
        ("open", errno.EROFS, Denied, "permission"),
        ("open", errno.EACCES, Denied, "permission"),
        ("mkdir", errno.EACCES, Denied, "permission"),
        ("open", errno.ENAMETOOLONG, Denied, "shorter path"),
        ("fsync", errno.EIO, Unavailable, "trying again"),
        ("open", errno.ESTALE, Unavailable, "trying again"),
        ("open", errno.ENOTCONN, Unavailable, "trying again"),
        ("fsync", errno.ETIMEDOUT, Unavailable, "trying again"),
        ("open", errno.EMFILE, Unavailable, "trying again"),
    ],
)
def test_a_refused_write_says_what_where_and_what_to_do_and_leaves_nothing(
    store: LocalStore, failing: Callable[[str, int], None], call: str, code: int, kind: type[StoreError], advice: str
) -> None:
    store.put("there/already", b"")
    failing(call, code)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(kind, match=advice) as caught:
            write("new/name", b"data")
        assert str(store.root / "new/name") in str(caught.value)
    assert all_files(store) == ["there/already"]
    assert names(store) == ["there/already"]


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, Unavailable), (errno.EACCES, Denied), (errno.ENOENT, Missing)])
def test_a_refused_read_is_never_taken_for_a_missing_object(
    store: LocalStore, failing: Callable[[str, int], None], code: int, kind: type[StoreError]
) -> None:
    ref = store.put("a", b"data")
    failing("stat", code)
    with pytest.raises(kind) as caught:
        store.get(ref)
    assert type(caught.value) is kind
    assert str(store.root / "a") in str(caught.value)


def test_a_read_only_disk_tells_the_machines_time_and_says_so(
    store: LocalStore, failing: Callable[[str, int], None]
) -> None:
    ref = store.put("a", b"data")
    failing("open", errno.EROFS)
    assert abs(store.now() - time.time()) < 5
    assert store.clock_is_local
    assert store.get(ref) == b"data"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_disk_without_hard_links_is_refused_by_name(
    store: LocalStore, failing: Callable[[str, int], None], code: int
) -> None:
    failing("link", code)
    with pytest.raises(BadAddress, match="no hard links") as caught:
        self_test(store)
    assert str(store.root) in str(caught.value)
    assert all_files(store) == []


# --- left-over files --------------------------------------------------------------------------------------------


def test_temporary_files_are_never_listed_and_swept_after_a_day(store: LocalStore) -> None:
    store.put("folder/a", b"")
    old, young = (store.root / "folder" / f".{pid}-0123456789abcdef.tmp" for pid in (1, 2))
    for path, age in ((old, 90_000), (young, 80_000)):
        path.write_bytes(b"left by a writer that died")
        os.utime(path, (time.time() - age, time.time() - age))
    assert names(store) == ["folder/a"]
    LocalStore(store.root).put("folder/b", b"")
    assert not old.exists() and young.exists()
    os.utime(young, (0, 0))
    LocalStore(store.root).delete(store.ref("folder/b"))
    assert all_files(store) == ["folder/a"]


def test_foreign_files_are_left_alone_and_not_listed(store: LocalStore) -> None:
    store.put("folder/a", b"")
    for foreign in ("Read Me.txt", ".DS_Store", "x.tmp~", ".nfs0001", "folder/Thumbs.db"):
        (store.root / foreign).write_text("mine")
        os.utime(store.root / foreign, (0, 0))
    store.delete(store.put("folder/b", b""))
    assert names(store) == ["folder/a"]
    assert len(all_files(store)) == 6


def test_a_write_that_dies_before_its_name_is_given_leaves_the_old_version(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = store.put("a", b"old")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for call, write in (("replace", store.put), ("link", store.put_if_absent)):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            with pytest.raises(KeyboardInterrupt):
                write("a", b"new")
    assert store.get(ref) == b"old"
    assert all_files(store) == ["a"]


def test_an_object_is_durable_before_it_has_its_name_and_its_folder_after(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for call in ("fsync", "link", "replace", "mkdir"):
        real = getattr(os, call)

        def note(*args: Any, call: str = call, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
            of_file = call == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode)
            steps.append("fsync file" if of_file else call)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, call, note)
    store.put_if_absent("a", b"")
    store.put("folder/b", b"")
    root_made = ["mkdir", "fsync"]
    assert steps == [*root_made, "fsync file", "link", "fsync", "mkdir", "fsync", "fsync file", "replace", "fsync"]
