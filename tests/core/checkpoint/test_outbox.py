"""A checkpoint in sync/ is used only if it is complete, intact and really the run's next step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from relay.core.checkpoint.local import (
    LocalCheckpoint,
    LocalFile,
    LocalFolder,
    claimed_folder_of,
    hashed,
    local_folder_of,
)
from relay.core.folders import FolderRefused
from relay.core.ledger.state import RunState
from tests.app.cli import Desk
from tests.core.story import HASH, Story
from tests.core.toy import ToyWorkload
from tests.storage.diskcalls import disk_calls

CONFIG = Story().state.config_hash


@pytest.fixture
def local_folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "sync")


def story(commits: int = 2) -> RunState:
    told = Story()
    told.lease()
    for _ in range(commits):
        told.commit(None)
    return told.state


def keep(local_folder: LocalFolder, state: RunState, step: int, **changes: object) -> LocalCheckpoint:
    toy = ToyWorkload()
    toy.start()
    toy.step = step
    key = (step, int(changes.get("epoch", 1)))
    saved = toy.snapshot().save(local_folder.fresh(key))
    files = [(name, *hashed(local_folder.folder(key) / name)) for name in saved.files]
    packed = LocalCheckpoint(
        project=state.project,
        run=state.run,
        run_id=state.run_id,
        step=step,
        epoch=key[1],
        parent=state.head.key if state.head else None,
        state_hash=HASH,
        config_hash=state.config_hash,
        fingerprint={},
        files=tuple(LocalFile(name=name, size=size, sha256=sha) for name, size, sha in files),
    ).model_copy(update=changes)
    local_folder.seal(packed)
    return packed


def test_a_sealed_checkpoint_of_the_present_head_can_be_pushed(local_folder: LocalFolder) -> None:
    state = story()
    packed = keep(local_folder, state, 35)
    keep(local_folder, state, 30)
    assert local_folder.pushable(state) == packed


@pytest.mark.parametrize(
    "changes",
    [
        {"parent": (10, 1), "epoch": 2},
        {"parent": None, "epoch": 2},
        {"run_id": "f" * 32},
        {"config_hash": "b" * 64},
    ],
)
def test_any_other_is_not_pushed(local_folder: LocalFolder, changes: dict[str, object]) -> None:
    state = story()
    keep(local_folder, state, 35, **changes)
    assert local_folder.pushable(state) is None


def test_a_commit_that_landed_after_its_session_gave_it_up_does_not_strand_the_final_one(
    local_folder: LocalFolder,
) -> None:
    packed = keep(local_folder, story(1), 35)
    late = story(2)
    assert late.head is not None and packed.parent != late.head.key
    assert local_folder.pushable(late) == packed


def test_neither_is_one_that_is_behind_incomplete_or_changed(local_folder: LocalFolder) -> None:
    state = story()
    keep(local_folder, state, 20)
    keep(local_folder, state, 35)
    (local_folder.folder((35, 1)) / "state.json").write_text("{}")
    keep(local_folder, state, 40)
    (local_folder.root / "step_40.e1.json").unlink()
    keep(local_folder, state, 45)
    (local_folder.root / "step_45.e1.json").write_text("{")
    assert local_folder.pushable(state) is None


def test_a_link_in_place_of_a_file_is_not_followed(local_folder: LocalFolder, tmp_path: Path) -> None:
    state = story()
    keep(local_folder, state, 35)
    file = local_folder.folder((35, 1)) / "state.json"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert local_folder.pushable(state) is None


def test_adopting_gives_it_the_new_epoch(local_folder: LocalFolder) -> None:
    state = story()
    adopted = local_folder.adopt(keep(local_folder, state, 35), 7, (20, 1))
    assert adopted.key == (35, 7) and adopted.parent == (20, 1) and local_folder.intact(adopted)
    assert [packed.key for packed in local_folder.all()] == [(35, 7)]


def test_tidying_keeps_the_heads_backup_and_the_newest_unsent(local_folder: LocalFolder) -> None:
    state = story()
    for step in (5, 20, 31, 32, 33):
        keep(local_folder, state, step)
    keep(local_folder, state, 40, epoch=2)
    local_folder.tidy(state.model_copy(update={"epoch": 2}))
    assert [packed.key for packed in local_folder.all()] == [(20, 1), (32, 1), (33, 1), (40, 2)]
    files = [path for path in local_folder.root.rglob("*") if path.is_file()]
    assert local_folder.bytes() == sum(path.stat().st_size for path in files)
    (local_folder.root / "again").hardlink_to(files[0])
    (local_folder.root / "link").symlink_to(files[0])
    assert local_folder.bytes() == sum(path.stat().st_size for path in files), "two names, one file"


SEALED = ["fsync file", "replace", "fsync"]


def test_what_counts_as_complete_is_durable(local_folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = keep(local_folder, story(), 35)
    calls = disk_calls(monkeypatch)
    local_folder.seal(packed)
    assert calls == SEALED
    del calls[:]
    local_folder.adopt(packed, 7, (20, 1))
    assert calls == ["mkdir", *["link"] * len(packed.files), "fsync", *SEALED]
    monkeypatch.setattr("os.link", Mock(side_effect=PermissionError))
    del calls[:]
    local_folder.adopt(packed.renamed(7, None), 8, (20, 1))
    assert calls == ["mkdir", *["fsync file"] * len(packed.files), "fsync", *SEALED], "a disk without hard links"


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without"])
def test_a_kill_at_any_point_of_adopting_leaves_a_checkpoint_that_can_be_pushed(
    local_folder: LocalFolder, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    state = story()
    packed = keep(local_folder, state, 35)
    if not links:
        monkeypatch.setattr("os.link", Mock(side_effect=PermissionError))
    for step in ("fresh", "seal", "remove"):
        with monkeypatch.context() as patched:
            patched.setattr(LocalFolder, step, Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                local_folder.adopt(packed, 7, (20, 1))
        left = local_folder.pushable(state)
        assert left is not None and left.step == 35, step
    assert local_folder.adopt(packed, 8, (20, 1)).key == (35, 8)


def test_of_two_runs_of_one_name_that_begin_at_once_each_has_its_own_folder(tmp_path: Path) -> None:
    state, other = story(), story().model_copy(update={"run_id": "f" * 32, "epoch": 9})
    first, second = claimed_folder_of(tmp_path, state.run_id), claimed_folder_of(tmp_path, other.run_id)
    assert first.root == tmp_path and second.root != tmp_path
    with first.incoming() as download:
        (download / "half").write_bytes(b"x")
        with second.incoming():
            pass
        assert (download / "half").exists(), "a download of the one is not the other's"
    unsent = keep(first, state, 35)
    second.tidy(other)
    second.remove((35, 1))
    assert first.pushable(state) == unsent and second.pushable(other) is None


def test_two_sessions_of_a_run_that_download_on_one_machine_do_not_mix_their_files(tmp_path: Path) -> None:
    """One was thought dead and superseded; the other one's files must not be its."""
    local_folder = LocalFolder(tmp_path)
    with local_folder.incoming() as zombies, local_folder.incoming() as mine:
        (zombies / "state.json").write_bytes(b"")
        assert zombies != mine and not list(mine.iterdir())
    assert not list(tmp_path.iterdir())


def test_what_a_killed_download_left_goes_with_the_next_one(tmp_path: Path) -> None:
    for left in (tmp_path / "incoming.abc" / "incoming", tmp_path / "incoming"):
        left.mkdir(parents=True)
        (left / "half").write_bytes(b"x")
    with LocalFolder(tmp_path).incoming() as mine:
        assert list(tmp_path.iterdir()) == [mine.parent]


def test_of_many_that_claim_a_folder_in_the_same_moment_one_gets_it(tmp_path: Path) -> None:
    ids = [f"{number:032x}"[::-1] for number in range(1, 9)]
    with ThreadPoolExecutor(len(ids)) as pool:
        found = list(pool.map(lambda run_id: claimed_folder_of(tmp_path / "r", run_id).root, ids))
    assert len(set(found)) == len(ids)
    assert [local_folder_of(tmp_path / "r", run_id).root for run_id in ids] == found, "and finds it again"
    assert [claimed_folder_of(tmp_path / "r", run_id).root for run_id in reversed(ids)] == found[::-1]


def test_a_claim_that_a_kill_left_empty_is_somebodys(tmp_path: Path) -> None:
    (tmp_path / "owner").write_bytes(b"")
    own = claimed_folder_of(tmp_path, "a" * 32)
    assert own.root == tmp_path / "aaaaaaaa" == local_folder_of(tmp_path, "a" * 32).root


def test_looking_claims_nothing(tmp_path: Path) -> None:
    assert (
        local_folder_of(tmp_path / "r", "a" * 32)
        == local_folder_of(tmp_path / "r", "b" * 32)
        == LocalFolder(tmp_path / "r")
    )
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_the_claim_is_told_by_the_probe(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FolderRefused) as refused:
        claimed_folder_of(tmp_path / "file" / "r", "a" * 32).probe()
    assert refused.value.folder == tmp_path / "file" / "r"


def test_a_folder_from_before_owners_were_named_stays_its_runs(local_folder: LocalFolder) -> None:
    state, other = story(), story().model_copy(update={"run_id": "f" * 32})
    unsent = keep(local_folder, state, 35)
    beside = claimed_folder_of(local_folder.root, other.run_id)
    assert beside != local_folder and not (local_folder.root / "owner").exists()
    keep(beside, other, 35)
    beside.tidy(other.model_copy(update={"epoch": 9}))
    assert claimed_folder_of(local_folder.root, state.run_id).pushable(state) == unsent
    local_folder.remove(unsent.key)
    assert claimed_folder_of(local_folder.root, other.run_id) == beside, "it stays where it was begun"
    assert claimed_folder_of(local_folder.root, state.run_id) == local_folder


def test_one_name_in_two_stores_is_two_folders_found_again_by_the_same_command(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    stores = [f"storage.url=file://{tmp_path / name}" for name in ("a", "b")]
    for target in (20, 40):
        for store in stores:
            desk.train(target, store, run="r")
    home = next((desk.folder / "sync").glob("*/r"))
    homes = [path for path in (home, *home.iterdir()) if list(path.glob("step_*"))]
    assert len(homes) == 2 and all((path / "step_40.e2.json").exists() for path in homes)
    assert {LocalFolder(path).all()[-1].run_id for path in homes} == {
        LocalFolder(path).all()[0].run_id for path in homes
    }
    assert len({LocalFolder(path).all()[0].run_id for path in homes}) == 2
