"""Files that a person put into Drive's bin: reported by every check, taken out by the next session that may."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core.names import Names
from relay.core.runs.binned import in_bin, take_out_of_bin
from storage.capabilities import binned
from storage.memory import MemoryStore
from tests.app.cli import Desk, hurry
from tests.storage.drive.handle import Fake
from tests.storage.drive.stores import Drive, connect, holding

NAMES = Names("p", "r")


def trash(drive: Drive, *beginnings: str) -> set[str]:
    """Put every file with such a name into the bin, by hand; their names."""
    files = drive.person.look()["files"]
    found = {id_: f["name"] for id_, f in files.items() if f["name"].startswith(beginnings) and not f["trashed"]}
    for file in found:
        drive.person.fake.control("remove", file=file, trash=True)
    return set(found.values())


def trashed(drive: Drive) -> set[str]:
    return {file["name"] for file in drive.person.look()["files"].values() if file["trashed"]}


def test_what_is_in_the_bin_is_found_and_taken_out_and_other_runs_files_are_left(drive: Drive) -> None:
    store = drive.store()
    mine = ["registry/x.json", f"{NAMES.home}ledger/0.json", f"{NAMES.checkpoints}step_1.e1/file"]
    for name in (*mine, "runs/p/other/ledger/0.json", "checkpoints/q/r/step_1.e1/file"):
        store.put(name, b"data")
    trash(drive, "registry/", "runs/", "checkpoints/", "directory/")
    found = in_bin([store], NAMES)
    assert {stat.name for stat in found} > set(mine) and not any("other" in stat.name for stat in found)
    assert take_out_of_bin([drive.store(read_only=True)], NAMES) == 0
    drive.person.fault("500-before", route="v3.files.update", times=2)
    assert take_out_of_bin([store], NAMES) == len(found)
    assert in_bin([store], NAMES) == []
    assert trashed(drive) == {"runs/p/other/ledger/0.json", "checkpoints/q/r/step_1.e1/file"}
    assert binned(MemoryStore()) == []


def test_what_the_relay_put_there_stays_and_what_another_owns_is_no_error(fake: Fake) -> None:
    ana, ben = fake.person(("drive",)), fake.person(("drive",))
    team = fake.drive("team", **{ana.name: "organizer", ben.name: "writer"})
    drive = Drive(ana, parent=team, own=True)
    store = drive.store()
    store.put("a", b"data")
    trash(drive, "a")
    member = connect(ben, drive.address, own=True)
    assert [stat.name for stat in in_bin([member], NAMES)] == ["a"]
    assert take_out_of_bin([member], NAMES) == 0
    assert take_out_of_bin([store], NAMES) == 1
    manager = fake.person(("drive",))
    shared = fake.drive("other", **{manager.name: "fileOrganizer"})
    deletes = Drive(manager, parent=shared, own=True).store()
    deletes.delete(deletes.put("b", b"data"))
    assert binned(deletes) == []


def test_every_check_reports_the_bin_and_the_next_session_empties_it(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    for name, value in holding(drive.person).items():
        monkeypatch.setenv(name, value)
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": drive.address})
    desk("init", "--run", "r")
    desk("register", "account_1", "Ana", "--provider", "local", "--yes")
    desk.train(3)
    assert "BIN" not in desk("status", "--run", "r").err
    assert len(trash(drive, "runs/", "checkpoints/", "registry/", "directory/", "trm-relay.store")) > 10
    assert "BIN" in desk("status", "--run", "r").err
    incidents = desk("verify", "--run", "r", "--json").json["incidents"]
    assert [found["cause"] for found in incidents] == ["bin"]
    findings = desk("doctor", "--run", "r", "--json").json["findings"]
    assert [f["ok"] for f in findings if " bin" in f["text"]] == [False]
    assert trashed(drive), "no check changes anything"
    desk.train(6)
    assert not trashed(drive)
    assert "BIN" not in desk("status", "--run", "r").err
