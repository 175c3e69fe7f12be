"""Long files on Drive: how they are cut, and what a note may not lead to; the rest is in remote/test_uploads.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.base import Unavailable
from storage.digests import Digests
from storage.drive.upload import DriveProgress
from storage.transfer import upload as send_up
from tests.storage.drive.conftest import MIB
from tests.storage.drive.stores import Drive, big_file

pytestmark = pytest.mark.usefixtures("small_parts")
SIZE = 3 * MIB + 1234


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.001)


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB, SIZE])
def test_it_goes_up_in_multiples_of_256_kib_and_is_hashed_once(
    drive: Drive, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = big_file(tmp_path, size)
    store = drive.store()
    hashed, read = [], Digests._pass
    monkeypatch.setattr(Digests, "_pass", lambda digests: (hashed.append(digests.path), read(digests)))
    (sent,) = send_up(store, tmp_path, {path.name: "checkpoints/a/model"})
    assert hashed == [path], "once"
    assert drive.names() == ["checkpoints/a/model"] and drive.person.look()["received"] >= size
    assert store.stat(sent.ref).sha256 == sent.sha256


def test_bytes_damaged_on_the_way_stay_under_an_id_that_nobody_names(drive: Drive, tmp_path: Path) -> None:
    path, store = big_file(tmp_path, SIZE), drive.store()
    drive.person.fault("flip", route="v3.upload/put", skip=1)
    (sent,) = send_up(store, tmp_path, {path.name: "checkpoints/a/model"})
    assert drive.person.look()["met"] and store.get(sent.ref) == path.read_bytes()
    assert len([f for f in drive.person.look()["files"].values() if f["name"] == "checkpoints/a/model"]) == 2


@pytest.mark.parametrize(
    "session",
    [
        "https://evil.test/x", "https://www.googleapis.com@evil.test/", "https://evil.test\\@www.googleapis.com/",
        "https://evil.test#.googleapis.com/", "https://evilgoogleapis.com/", "http://www.googleapis.com/x",
        "https://www.googleapis.com.evil.test/", "https://www.googleapis.com\n@evil.test/", "https://[::1/", "x",
    ],
)  # fmt: skip
def test_a_note_that_leads_to_another_host_is_ignored(tmp_path: Path, session: str) -> None:
    path = big_file(tmp_path, 10)
    note = DriveProgress.of(path, "f/a", 10)
    note.id, note.session = "x" * 20, session
    note.save()
    assert DriveProgress.of(path, "f/a", 10).session == ""


def test_a_note_that_names_another_files_id_costs_time_only(drive: Drive, tmp_path: Path) -> None:
    path = big_file(tmp_path, SIZE)
    drive.person.fault("500-before", route="v3.upload/put", skip=2, times=9, status=503)
    with pytest.raises(Unavailable):
        drive.store().put("a", path)
    drive.person.heal()
    beside = tmp_path / f".{path.name}.upload"
    beside.write_text(json.dumps(json.loads(beside.read_text()) | {"id": drive.store().reserve(1)[0]}))
    store = drive.store()
    assert store.get(store.put("a", path)) == path.read_bytes()
