"""gc shows its deletions and the reasons, does exactly those, and never touches files of a retained checkpoint."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.app.commands import joining
from relay.core.ledger.ledger import EntryLost
from relay.core.names import Names
from relay.core.runs.opening import Pair, RunHandle
from storage.base import Denied, LostEntry, Store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.core.toy import hash_of, state_at

KEEP_TWO = ("checkpoint.keep_last=2", "evaluation.every_commits=0")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four committed steps, two of them retired, and what a killed session of an older epoch left two hours ago."""
    desk = Desk(tmp_path_factory.mktemp("lived"))
    for target in (3, 6, 9, 12):
        desk.train(target, *KEEP_TWO)
    left = folder(desk) / "step_8.e1"
    left.mkdir()
    (left / "state.json").write_bytes(b"half a checkpoint")
    an_old_time = (folder(desk) / "step_12.e4" / "manifest.json").stat().st_mtime - 7200
    os.utime(left / "state.json", (an_old_time, an_old_time))
    return desk.folder


@pytest.fixture
def desk(lived: Path, tmp_path: Path) -> Desk:
    return Desk(Path(shutil.copytree(lived, tmp_path / "desk")))


def folder(desk: Desk) -> Path:
    return next((desk.folder / "relay_store" / "checkpoints").glob("*/r"))


def stored(desk: Desk) -> dict[str, bytes]:
    root = desk.folder / "relay_store"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def rules(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row["why"] for row in rows}


def test_a_dry_run_names_a_rule_for_every_folder_and_writes_nothing(desk: Desk) -> None:
    before = stored(desk)
    shown = desk("gc", "--run", "r", "--dry-run", "--json").json
    assert stored(desk) == before
    goes, stays = rules(shown["goes"]), rules(shown["stays"])
    assert list(goes) == ["step_8.e1"] and "epoch 1" in goes["step_8.e1"] and "2 h 00 min" in goes["step_8.e1"]
    assert set(stays) == {"step_12.e4", "step_3.e1", "step_6.e2", "step_9.e3"}
    listed = {str(path.relative_to(folder(desk))) for path in folder(desk).rglob("*") if path.is_file()}
    assert sum(row["files"] for row in (*shown["goes"], *shown["stays"])) == len(listed)
    text = desk("gc", "--run", "r", "--dry-run").out
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("goes")] == [["goes", "step_8.e1", "1"]]


def test_it_deletes_what_the_dry_run_showed_and_nothing_else(desk: Desk) -> None:
    before = stored(desk)
    (shown,) = desk("gc", "--run", "r", "--dry-run", "--json").json["files"]
    done = desk("gc", "--run", "r", "--json").json
    assert done["deleted"] and [row["name"] for row in done["files"]] == [shown["name"]]
    gone = set(before) - set(stored(desk))
    assert {name for name in gone if name.startswith("checkpoints")} == {shown["name"]}
    assert desk("gc", "--run", "r", "--json").json["files"] == []


def test_on_a_full_store_retired_files_go_at_once_and_the_run_goes_on(desk: Desk) -> None:
    done = desk("gc", "--run", "r", "--full", "--json").json
    assert set(rules(done["goes"])) == {"step_3.e1", "step_6.e2", "step_8.e1"}
    assert {path.name for path in folder(desk).iterdir() if any(path.iterdir())} == {"step_9.e3", "step_12.e4"}
    assert desk("verify", "--run", "r", "--json").json["ok"]
    desk.train(15, *KEEP_TWO)
    assert desk.held() == hash_of(15, state_at(15))


def test_files_of_the_newest_epoch_and_strange_ones_stay(desk: Desk) -> None:
    for name in ("step_20.e4", "somebody-elses"):
        (folder(desk) / name).mkdir()
        (folder(desk) / name / "x.bin").write_bytes(b"x")
        os.utime(folder(desk) / name / "x.bin", (0, 0))
    stays = rules(desk("gc", "--run", "r", "--full", "--json").json["stays"])
    assert "epoch 4" in stays["step_20.e4"] and "somebody-elses/x.bin" in stays


def test_nothing_goes_while_a_retained_manifest_cannot_be_verified(desk: Desk) -> None:
    (folder(desk) / "step_9.e3" / "manifest.json").write_bytes(b"{}")
    done = desk("gc", "--run", "r", "--full", "--json").json
    assert done["files"] == [] and done["goes"] == []
    assert "step 9" in rules(done["stays"])["step_8.e1"]


def test_a_lost_entry_deletes_nothing(desk: Desk) -> None:
    tail = max((desk.folder / "relay_store").rglob("r/ledger/*.json"))
    for path in (tail, tail.with_name(f"{int(tail.stem) - 1:020d}.json")):
        path.unlink()
    for mark in (desk.folder / "sync").rglob("judged.*"):
        mark.unlink()  # it would show by itself that the store was rolled back
    before = {name for name in stored(desk) if name.startswith("checkpoints")}
    (folder(desk) / "step_16.e5").mkdir()
    (folder(desk) / "step_16.e5" / "state.json").write_bytes(b"of an epoch that the ledger does not know")
    refused = desk("gc", "--run", "r", "--full", code=65)
    (lost,) = refused.errors
    assert isinstance(lost, EntryLost) or isinstance(getattr(lost, "error", None), LostEntry), "by that file, or a hint"
    assert before <= set(stored(desk))


def test_what_the_store_refuses_to_delete_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Undeletable(Wrapper):
        def delete(self, ref: Any) -> None:
            raise Denied(f"{ref}: not yours")

    def wrap(store: Store) -> Store:
        return Undeletable(store)

    wrap_stores(monkeypatch, wrap)
    done = desk("gc", "--run", "r", "--json").json
    assert done["files"] == []
    assert "could not be deleted" in rules(done["stays"])["step_8.e1"]


def test_parts_of_uploads_go_by_the_judged_state_not_by_a_cheap_reading(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cheap reading may believe forged entries of a later epoch: the living holder's upload must not be cut off."""
    swept: list[int] = []
    read = joining.require

    def deceived(*args: Any, **more: Any) -> tuple[RunHandle, Pair]:
        opened, stores = read(*args, **more)
        later = opened.view.state.model_copy(update={"epoch": opened.view.state.epoch + 5})
        return replace(opened, view=replace(opened.view, state=later)), stores

    def sweep(store: Store, names: Names, epoch: int) -> None:
        swept.append(epoch)

    monkeypatch.setattr("relay.app.commands.command.require", deceived)
    monkeypatch.setattr("relay.core.runs.archive.sweep_parts", sweep)
    desk("gc", "--run", "r")
    assert swept == [4]


def test_a_folder_of_which_one_file_cannot_go_is_told_file_by_file(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(Wrapper):
        def delete(self, ref: Any) -> None:
            if str(ref).endswith("/manifest.json"):
                raise Denied(f"{ref}: not yours")
            super().delete(ref)

    wrap_stores(monkeypatch, Stubborn)
    before = stored(desk)
    done = desk("gc", "--run", "r", "--full", "--json").json
    gone = {name for name in set(before) - set(stored(desk)) if name.startswith("checkpoints")}
    assert gone and {row["name"] for row in done["files"]} == gone
    assert "could not be deleted" in rules(done["stays"])["step_3.e1"]
