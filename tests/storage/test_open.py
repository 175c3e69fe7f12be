"""Addresses: what opens which store, what is refused and why, and on what disks a store may live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.base import BadAddress, Denied, check_name, open_store
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.mounts import evaporates
from tests.app.cli import Desk
from tests.facts import raising


def test_folders_open_by_url_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for address, folder in {
        f"file://{tmp_path}/a": tmp_path / "a",
        f"file://localhost{tmp_path}/a": tmp_path / "a",
        f"file://{tmp_path}/with%20blank": tmp_path / "with blank",
        str(tmp_path / "with blank"): tmp_path / "with blank",
        "relative/b": tmp_path / "relative/b",
        "~/c": tmp_path / "home/c",
    }.items():
        store = open_store(address)
        assert isinstance(store, LocalStore)
        assert store.root == folder
        again = open_store(store.address)
        assert isinstance(again, LocalStore) and again.root == folder, "the printed address opens the same store"
    assert list(tmp_path.iterdir()) == [], "opening creates nothing"


def test_memory_stores_of_one_name_are_one_store() -> None:
    ref = open_store("memory://test-open").put("a", b"data")
    assert open_store("memory://test-open").get(ref) == b"data"
    assert list(open_store("memory://other").list("")) == []
    assert list(MemoryStore().list("")) == []


@pytest.mark.parametrize("address", ["memory://test-read-only", "folder"])
def test_read_only_stores_refuse_to_write(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(address, read_only=True)
    with raising(Denied, store.address):
        store.put("a", b"")
    store.now()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "facts"),
    [
        ("", ["file:///"]),
        ("  ", ["file:///"]),
        ("file://", ["file:///"]),
        ("file://host/path", ["file:///"]),
        ("file:///path?x=1", ["file:///path?x=1"]),
        ("ftp://host/path", ["ftp://", "file://", "s3://"]),
        ("gdrive://folder", ["gdrive://", "drive://", "dropbox://"]),
        ("drive://new", ["`init`"]),
        ("drive://My folder", ["drive://FOLDER_ID/FIRST_ID"]),
        ("dropbox://folder", ["dropbox:///"]),
        ("hf://new/ana/relay", ["`init`"]),
        ("hf://ana/relay", ["hf://buckets/NAMESPACE/BUCKET"]),
        ("hf://buckets/ana", ["hf://buckets/NAMESPACE/BUCKET"]),
        ("hf://buckets/ana/a..b", ["hf://buckets/NAMESPACE/BUCKET"]),
        ("hf://buckets/ana/relay?public=yes", ["public=1"]),
    ],
)
def test_other_addresses_are_refused_with_those_that_work(address: str, facts: list[str]) -> None:
    with raising(BadAddress, *facts):
        open_store(address)


def test_a_secret_in_a_refused_address_is_not_repeated() -> None:
    for address in ("ftp://user:hunter2@host/", "s3://key:hunter2@bucket/", "hf://hunter2@buckets/ana/relay"):
        with pytest.raises(BadAddress) as caught:
            open_store(address)
        assert "hunter2" not in str(caught.value)


def test_names_are_bounded() -> None:
    assert check_name("a" * 200) == "a" * 200
    for name in ("a" * 201, "/".join(["a" * 99] * 10)):
        with raising(ValueError, name[:200]):
            check_name(name)


# --- mounts -----------------------------------------------------------------------------------------------------


def mounts(tmp_path: Path, *lines: str) -> Path:
    table = tmp_path / "mounts"
    table.write_text("\n".join(["/dev/sda1 / ext4 rw 0 0", *lines, "odd line", ""]))
    return table


@pytest.mark.parametrize(
    "line",
    [
        "drive {at} fuse.drive rw 0 0",
        "remote: {at} fuse.rclone rw 0 0",
        "bucket {at} fuse.gcsfuse rw 0 0",
        "s3fs {at} fuse.s3fs rw 0 0",
        "mountpoint-s3 {at} fuse rw 0 0",
    ],
)
def test_a_mounted_cloud_drive_is_refused_with_the_address_to_use(tmp_path: Path, line: str) -> None:
    at = os.path.realpath(tmp_path / "My Drive")
    table = mounts(tmp_path, line.format(at=at.replace(" ", "\\040")))
    (tmp_path / "link").symlink_to(at)
    for folder in ("My Drive", "My Drive/deep/er", "link/relay"):
        with raising(BadAddress, at, "drive://"):
            LocalStore(tmp_path / folder, mounts=table)
    assert LocalStore(tmp_path / "My Drives", mounts=table).put("a", b"") == "a"


@pytest.mark.parametrize("setting", ["RELAY_STORE", "RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE"])
def test_drive_as_colab_mounts_it_is_no_store_whatever_it_is_to_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    table = mounts(tmp_path, "drive /content/drive fuse.drive rw,nosuid,nodev,relatime 0 0")
    monkeypatch.setitem(LocalStore.__init__.__kwdefaults__, "mounts", table)
    desk = Desk(tmp_path / "desk")
    for folder in ("/content/drive", "/content/drive/MyDrive/relay", "file:///content/drive/Shareddrives/x"):
        for command in ("run", "init", "status"):
            refused = desk(command, "--run", "r", code=78, **{setting: folder})
            assert all(fact in refused.err for fact in ("fuse.drive", "/content/drive", "drive://"))


def test_other_mounts_are_allowed(tmp_path: Path) -> None:
    at = os.path.realpath(tmp_path / "m")
    drive, disk = f"drive {at} fuse.drive rw 0 0", f"/dev/sdb {at} ext4 rw 0 0"
    for lines in (
        [f"host:/x {at} nfs4 rw 0 0"],
        [f"user@host:/x {at} fuse.sshfs rw 0 0"],
        [f"drive {at} ext4 rw 0 0"],
        [drive, disk],
        [drive, disk.replace(at, at + "/inner")],
    ):
        inner = "m/inner" if lines[-1].split()[1].endswith("inner") else "m"
        LocalStore(tmp_path / inner, mounts=mounts(tmp_path, *lines))
    LocalStore(tmp_path / "m", mounts=tmp_path / "no-such-table")


def test_disks_that_evaporate_are_known(tmp_path: Path) -> None:
    table = mounts(tmp_path, f"tmpfs {os.path.realpath(tmp_path)}/ram tmpfs rw 0 0")
    assert evaporates(tmp_path / "ram/store", table)
    assert evaporates("/content/store", table) and evaporates("/content", table)
    assert evaporates("/kaggle/working/x", table)
    for durable in (tmp_path / "disk", "/contents", "/kaggle/input", "/home/me/content"):
        assert not evaporates(durable, table)
