"""Folders that a sync client copies: known by each client's marks and names, refused for writing, and readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.base import BadAddress
from storage.local import LocalStore
from storage.synced import CLIENTS, synced
from tests.app.cli import Desk
from tests.facts import raising

MARKS = [(client.title, name, kind) for client in CLIENTS for name, kind in client.marks]
NAMES = [
    ("Dropbox", "Dropbox"),
    ("Dropbox", "Dropbox (Personal)"),
    ("Dropbox", "Pepo Inc Dropbox"),
    ("Google Drive", "Google Drive"),
    ("Google Drive", "My Drive"),
    ("OneDrive", "OneDrive"),
    ("OneDrive", "OneDrive - Contoso"),
    ("Nextcloud or ownCloud", "Nextcloud"),
    ("Nextcloud or ownCloud", "ownCloud2"),
    ("iCloud Drive", "Library/Mobile Documents/com~apple~CloudDocs"),
    ("pCloud", "pCloudDrive"),
    ("MEGA", "MEGA"),
    ("Resilio Sync", "Resilio Sync"),
    ("Google Drive", "Library/CloudStorage/GoogleDrive-ana@example.org"),
    ("OneDrive", "Library/CloudStorage/OneDrive-Personal"),
    ("a cloud service", "Library/CloudStorage/Other-ana"),
]


def marked(folder: Path, name: str, kind: str) -> None:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir() if kind == "folder" else place.write_bytes(b"")


@pytest.mark.parametrize(
    ("title", "name", "kind"),
    [
        *MARKS,
        ("Syncthing", ".stfolder", "folder"),
        ("Nextcloud or ownCloud", ".sync_3f2a90b1c4d5.db", "file"),
        ("Nextcloud or ownCloud", "._sync_3f2a90b1c4d5.db", "file"),
    ],
)
@pytest.mark.parametrize("below", ["", "deep/er/relay"])
def test_a_clients_mark_in_any_parent_refuses_writing(
    title: str, name: str, kind: str, below: str, tmp_path: Path
) -> None:
    root = tmp_path / "copied"
    marked(root, name, kind)
    (tmp_path / "link").symlink_to(root)
    for path in (root / below, tmp_path / "link" / below):
        with raising(BadAddress, title, str(root), name, "://"):
            LocalStore(path)
    assert LocalStore(root / below, read_only=True).read_only, "what is there can be taken elsewhere"
    assert LocalStore(tmp_path / "not copied").put("a", b"1") == "a"


@pytest.mark.parametrize(("title", "name"), NAMES)
def test_a_folder_named_as_a_client_names_it_refuses_writing(title: str, name: str, tmp_path: Path) -> None:
    with raising(BadAddress, title, str(tmp_path / name)):
        LocalStore(tmp_path / name / "relay")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (".dropbox", "folder"),  # the client's settings, in every home
        (".sync", "folder"),  # Resilio's settings, where it was started
        (".dropbox.cache", "file"),
        (".stfolder2", "folder"),
        (".sync_.db", "file"),
    ],
)
def test_what_only_resembles_a_mark_refuses_nothing(name: str, kind: str, tmp_path: Path) -> None:
    marked(tmp_path, name, kind)
    assert LocalStore(tmp_path / "relay").put("a", b"1") == "a"


@pytest.mark.parametrize(
    "name",
    ["dropbox", "Dropbox-export", "drive", "cloud", "mega", "nextcloud", "box", "CloudStorage", "Mobile Documents"],
)
def test_other_names_refuse_nothing(name: str, tmp_path: Path) -> None:
    assert synced(tmp_path / name) is None


def test_a_folder_behind_a_link_in_a_copied_one_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "Dropbox").mkdir()
    (tmp_path / "Dropbox" / "relay").symlink_to(tmp_path / "disk")
    assert LocalStore(tmp_path / "Dropbox" / "relay").put("a", b"1") == "a"


def test_marks_are_found_where_a_folder_cannot_be_listed_or_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked(tmp_path, ".stfolder", "folder")
    monkeypatch.setattr("storage.synced._MOST", 0)
    assert (found := synced(tmp_path / "x")) and found.mark == ".stfolder"
    monkeypatch.undo()

    def closed(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr("os.scandir", closed)
    assert (found := synced(tmp_path / "x")) and found.mark == ".stfolder"


WRITING = (
    ("init", "--run", "r"),
    ("run", "--run", "r", "--account", "account_1", "--target-steps", "40", "--new"),
    ("push", "--run", "r"),
    ("register", "account_2", "Ben's lab machine"),
    ("accounts", "retire", "account_1"),
    ("stop", "--run", "r"),
    ("resume", "--run", "r", "--anyway"),
    ("gc", "--run", "r"),
    ("fork", "--run", "r", "--to", "copy"),
    ("runs", "archive", "r"),
    ("repair", "--run", "r", "--choose", "A"),
    ("doctor", "--run", "r"),
)


def test_every_command_that_writes_refuses_and_the_run_can_still_be_read(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", environ={"RELAY_STORE": f"file://{tmp_path}/copied/store"})
    desk.train(20)
    marked(tmp_path / "copied", ".stfolder", "folder")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "copied").rglob("*")}
    for command in WRITING:
        refused = desk(*command, code=78)
        assert "Syncthing" in refused.err + refused.out and "s3://" in refused.err + refused.out, command
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "copied").rglob("*")} == before
    assert desk.status()["step"] == 20
    desk("verify", "--run", "r")


@pytest.mark.parametrize("words", [("--folder", "Dropbox/demo"), ("--store", "Dropbox/store")])
def test_the_demonstration_refuses_before_it_begins(words: tuple[str, str], tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    assert "Dropbox" in desk("demo", *words, code=78).err
    assert not (desk.folder / "Dropbox").exists()


def test_doctor_points_at_a_sync_folder_that_is_copied(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", environ={"RELAY_STORE": f"file://{tmp_path}/store"})
    marked(tmp_path / "Dropbox", ".dropbox.cache", "folder")
    found = desk("doctor", "--run", "r", "--json", RELAY_SYNC_DIR=str(tmp_path / "Dropbox")).json["findings"]
    assert any(one["subject"] == "sync" and not one["ok"] and "Dropbox" in one["text"] for one in found)
