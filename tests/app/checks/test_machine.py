"""`doctor` tries what a session needs of this machine: folders, threads, open files; and `run` needs no home folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relay.app.checks import doctor
from relay.app.terminal.mishaps import explain
from relay.core import folders, resources
from relay.core.clock import RealRuntime
from relay.core.folders import FolderRefused, NoScratch, config_folder, home_folder, scratch_folder, try_folder
from relay.core.lease.host import FileHostLocks, default_folder
from relay.core.resources import OutOfResource
from tests.app.cli import Desk


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any user id."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", staticmethod(home))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


@pytest.mark.usefixtures("no_home")
def test_without_a_home_folder_every_command_works(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.people.inference.login_name", lambda: "")
    assert (home_folder(), default_folder(), config_folder({})) == (None, None, None)
    desk("register", "account_1", "a lab machine", HOME="")
    desk.train(5)
    desk.train(8)
    found = {f["subject"]: f for f in desk("doctor", "--run", "r", "--json").json["findings"]}
    assert found["home"]["ok"] is False and "HOME" in found["home"]["advice"]
    desk("runs", "archive", "r")


def test_without_a_folder_no_session_is_taken_for_dead_or_alive() -> None:
    locks, session = FileHostLocks(None, "boot"), "5e" * 16
    locks.hold(session)
    assert not locks.holds(session) and not locks.is_dead(session) and locks.sessions("who") == []
    locks.drop(session)


@pytest.mark.parametrize("missing", [False, True])
def test_a_folder_is_tried_as_a_session_uses_it_and_left_as_it_was(tmp_path: Path, missing: bool) -> None:
    folder = tmp_path / "sync" / "p" if missing else tmp_path
    try_folder(folder, make=False)
    assert list(tmp_path.iterdir()) == []
    try_folder(folder)
    assert folder.is_dir() and list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT])
def test_doctor_finds_a_folder_that_only_writing_shows_to_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The permission bits allow it: a read-only mount, a full quota, root on NFS."""

    def fsync(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folders.os, "fsync", fsync)
    with pytest.raises(FolderRefused) as refused:
        list(doctor.keepable(tmp_path / "sync"))
    assert refused.value.exit_code == 78 and os.strerror(number) in str(refused.value)
    (found,) = doctor.home(tmp_path / "locks")
    assert (found.ok, found.code) == (False, 0)
    assert list(doctor.home(None)) and not list(tmp_path.glob("sync*"))


def test_a_machine_without_a_temporary_folder_is_78(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(folders.tempfile, "gettempdir", none)
    with pytest.raises(NoScratch) as error, scratch_folder():
        pass
    code, text = explain(error.value)
    assert code == 78 and "TMPDIR" in text


@pytest.mark.parametrize("words", [("run", "--run", "r", "--target-steps", "9", "--new"), ("doctor", "--run", "r")])
def test_a_machine_with_too_few_threads_is_told_so_before_anything_is_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    desk.train(5)
    before = desk.status()
    spawn = RealRuntime.spawn

    def refusing(runtime: RealRuntime, name: str, body: object) -> object:
        if name == "probe":
            raise RuntimeError("can't start new thread")
        return spawn(runtime, name, body)  # type: ignore[arg-type]

    monkeypatch.setattr(RealRuntime, "spawn", refusing)
    monkeypatch.setattr(resources, "nearest_limit", lambda resource: ("RLIMIT_NPROC", 8))
    done = desk(*words, code=78)
    assert "RLIMIT_NPROC is 8" in done.out + done.err and "bug" not in done.out + done.err
    assert desk.status()["epoch"] == before["epoch"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), OSError(errno.EMFILE, "x")])
def test_a_limit_that_a_command_meets_is_no_bug(error: Exception) -> None:
    code, text = explain(error)
    assert code == 78 and "bug" not in text
    assert isinstance(resources.exhausted(error), OutOfResource)
