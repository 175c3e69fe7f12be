"""A folder that several users share: files are as open as the folder, and a closed door is named."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from storage import files
from storage.base import Denied, Missing
from storage.local import LocalStore
from tests.app.cli import Desk
from tests.facts import raising
from tests.storage.helpers import all_files


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask, which the test's end puts back."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes_of(root: Path) -> tuple[set[int], set[int]]:
    """Permissions of every folder below the root, and of every file."""
    found = [(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")]
    return {mode for folder, mode in found if folder}, {mode for folder, mode in found if not folder}


def shared(tmp_path: Path, mode: int) -> LocalStore:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(mode)
    return LocalStore(root)


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o022, 0o007])
@pytest.mark.parametrize(
    ("root", "folders", "others"),
    [
        (0o2770, 0o2770, 0o660),
        (0o770, 0o770, 0o660),
        (0o2775, 0o2775, 0o664),
        (0o755, 0o755, 0o644),
        (0o700, 0o700, 0o600),
    ],
)
def test_what_is_written_has_the_folders_own_permissions(
    mask: int, root: int, folders: int, others: int, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    store = shared(tmp_path, root)
    umask(mask)
    source = tmp_path / "source"
    source.write_bytes(b"3")
    store.put("a/b/c", b"1")
    store.put("a/b/c", b"2")
    store.put_if_absent("a/d", b"2")
    store.put_new("e/f", source)
    made = modes_of(store.root)
    for found, wanted in zip(made, (folders, others), strict=True):
        assert all(mode & wanted == wanted for mode in found), "nothing that the folder gives is missing"
    if mask == 0o077:
        assert made == ({folders}, {others})
    assert os.umask(mask) == mask, "the process's own umask is left alone"


def test_nothing_is_opened_in_a_folder_where_all_may_write_and_each_owns_their_files(
    tmp_path: Path, umask: Callable[[int], int]
) -> None:
    store = shared(tmp_path, 0o1777)
    umask(0o077)
    store.put("a/b", b"1")
    assert modes_of(store.root) == ({0o755}, {0o644})


@pytest.mark.parametrize(("above", "wanted"), [(0o2770, 0o2770), (0o2775, 0o2770), (0o755, 0o700), (0o1777, 0o700)])
def test_a_new_store_in_a_groups_folder_is_the_groups(
    above: int, wanted: int, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    (tmp_path / "group").mkdir()
    (tmp_path / "group").chmod(above)
    umask(0o077)
    store = LocalStore(tmp_path / "group" / "store")
    store.put("a", b"1")
    assert stat.S_IMODE(store.root.stat().st_mode) == wanted


@pytest.mark.parametrize(("mode", "asked"), [(0o770, True), (0o2770, True), (0o755, False), (0o777, False)])
def test_the_group_of_the_folder_is_passed_on_where_it_counts(
    mode: int, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, owner, group: groups.append((owner, group)))
    like = SimpleNamespace(st_mode=stat.S_IFDIR | mode, st_gid=54321)
    with (tmp_path / "file").open("wb") as file:
        files.share(file.fileno(), like)  # type: ignore[arg-type]
    assert groups == ([(-1, 54321)] if asked else [])


def no_permissions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a share that knows none."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.setattr(os, "fchown", refuse)


def test_a_member_whose_files_stay_closed_is_warned_before_the_first_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: Callable[[int], int]
) -> None:
    store = shared(tmp_path, 0o2770)
    umask(0o077)
    assert store.warnings() == []
    no_permissions(monkeypatch)
    (warning,) = store.warnings()
    assert all(fact in warning for fact in (str(store.root), "2770", "077", "umask"))
    assert all_files(store) == [], "the probe is gone"
    assert LocalStore(store.root, read_only=True).warnings() == []
    desk = Desk(tmp_path / "desk", environ={"RELAY_STORE": str(store.root)})
    said = desk.train(20).err
    assert said.index("umask") < said.index("NEW run")
    found = desk("doctor", "--run", "r", "--json").json["findings"]
    assert any(not one["ok"] and "umask 0077" in one["text"] for one in found)


def test_a_closed_door_names_its_owner_and_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path / "store")
    ref = store.put("a/b", b"1")
    closed = store.root / "a" / "b"
    closed.chmod(0o600)
    real = os.open

    def refuse(path: str, *args: int, **more: int) -> int:
        if path == "b":
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with raising(Denied, closed, store.root.owner(), "0600", "077"):
        store.get(ref)
    closed.chmod(0o640)
    with pytest.raises(Denied) as refused:
        store.get(ref)
    assert store.root.owner() in str(refused.value) and "umask" not in str(refused.value)


# --- a folder whose inode number changes ----------------------------------------------------------------------------


def renumber(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a folder has another inode number at each look, as where file systems keep none."""
    real, count = os.fstat, [0]

    def renumbered(file: int) -> os.stat_result:
        found = list(real(file))
        if stat.S_ISDIR(found[0]):
            count[0] += 1
            found[1] += 1000 + count[0]
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", renumbered)


@pytest.mark.parametrize("known", ["written", "read", "there before", "by another client"])
def test_a_store_is_known_by_its_identity_when_its_inode_number_changes(
    known: str, local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if known == "written":
        local.put_if_absent("trm-relay.store.json", b"mine")
    elif known == "there before":
        LocalStore(local.root).put("trm-relay.store.json", b"mine")
        local.put("a", b"1")
    else:
        local.put("a", b"1")
        LocalStore(local.root).put("trm-relay.store.json", b"mine")
        if known == "read":
            local.get(local.ref("trm-relay.store.json"))
    renumber(monkeypatch)
    for data in (b"2", b"3"):
        assert local.get(local.put("a", data)) == data
        local.put_if_absent(f"b/{data.decode()}", data)
    assert [stat.name for stat in local.list("b/")] == ["b/2", "b/3"]


def test_another_store_in_its_place_is_refused_also_where_numbers_change(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("trm-relay.store.json", b"mine")
    ref = local.put("a", b"1")
    local.root.rename(local.root.with_name("unplugged"))
    for other in (None, b"another's", b"mine" * 1000):
        local.root.mkdir(exist_ok=True)
        if other:
            (local.root / "trm-relay.store.json").write_bytes(other)
        with pytest.raises(Exception, match="another folder") as refused:
            local.get(ref)
        assert not isinstance(refused.value, Missing)
        with pytest.raises(Exception, match="another folder"):
            local.put("b", b"1")
    (local.root / "trm-relay.store.json").unlink()
    (local.root / "trm-relay.store.json").symlink_to(local.root.with_name("unplugged") / "trm-relay.store.json")
    with pytest.raises(Exception, match="another folder"):
        local.get(ref)
    assert not (local.root / "b").exists()
