"""`runs list`: every run of a store by its own ledger, also for read-only users, and despite a faulty run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relay.app.commands import stores
from relay.core.runs.opening import AnotherStore
from storage.base import Store, open_store
from tests.app.cli import Desk


def listed(desk: Desk) -> dict[str, dict[str, Any]]:
    shown = desk("runs", "list", "--json").json
    assert shown["schema"] == "relay.runs/1"
    return {row["run"]: row for row in shown["runs"]}


def size_of(desk: Desk, run: str) -> int:
    root = desk.folder / "relay_store" / "checkpoints"
    return sum(path.stat().st_size for path in next(root.glob("*")).joinpath(run).rglob("*") if path.is_file())


def test_all_runs_stand_side_by_side(desk: Desk) -> None:
    assert desk("runs", "list", "--json").json["runs"] == [] and desk("runs", "list").out.count("\n") == 1
    desk.train(6)
    desk.train(3, run="other")
    desk("init", "--run", "fresh")
    rows = listed(desk)
    assert list(rows) == ["r", "other", "fresh"], "oldest first"
    assert (rows["r"]["state"], rows["r"]["step"], rows["r"]["target_steps"]) == ("finished", 6, 6)
    assert rows["fresh"]["state"] == "new" and rows["fresh"]["checkpoint_bytes"] == 0
    assert rows["r"]["checkpoint_bytes"] == size_of(desk, "r") >= rows["r"]["retained_bytes"] > 0
    assert all(row["last_activity"] and row["holder"] is None for row in rows.values())
    text = desk("runs", "list").out
    assert "/r  finished  6/6" in text and len(text.splitlines()) == 3


def test_a_fork_that_nobody_has_trained_is_not_finished(desk: Desk) -> None:
    """The run's target step was never set."""
    desk.train(6, run="old")
    desk("fork", "--run", "old", "--to", "young")
    rows = listed(desk)
    assert (rows["young"]["state"], rows["young"]["step"], rows["young"]["target_steps"]) == ("idle", 6, None)


def test_it_writes_nothing_and_needs_no_right_to(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.train(3)
    before = sorted(path for path in desk.folder.rglob("*"))
    asked = list[bool]()

    def opened(url: str, *, read_only: bool = False) -> Store:
        asked.append(read_only)
        return open_store(url, read_only=read_only)

    monkeypatch.setattr(stores, "open_store", opened)
    listed(desk)
    assert asked == [True] and sorted(path for path in desk.folder.rglob("*")) == before


def test_a_run_that_cannot_be_read_hides_no_other(desk: Desk) -> None:
    desk.train(3)
    desk.train(3, run="other")
    ledger = next((desk.folder / "relay_store" / "runs").glob("*")) / "r" / "ledger"
    sorted(ledger.iterdir())[0].unlink()
    sorted(ledger.iterdir())[0].unlink()
    rows = listed(desk)
    assert rows["r"]["state"] == "unreadable" and rows["r"]["trouble"] and rows["other"]["state"] == "finished"


def test_the_address_of_another_store_is_refused(desk: Desk, tmp_path: Path) -> None:
    address = desk("init", "--run", "r", "--json").json["address"]
    Desk(tmp_path / "other", {"RELAY_STORE": address})("runs", "list")
    wrong = address[:-1] + ("0" if address[-1] != "0" else "1")
    refused = Desk(tmp_path / "another", {"RELAY_STORE": wrong})("runs", "list", code=78).raised(AnotherStore)
    assert (refused.found, refused.expected) == (address[-32:], wrong[-32:])
