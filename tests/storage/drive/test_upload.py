"""A long file arrives whole and once, whatever happens on its way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.base import QuotaExceeded, StoreError, Unavailable
from storage.digests import Digests
from storage.drive import upload
from storage.drive.upload import Progress
from storage.transfer import download
from storage.transfer import upload as send_up
from tests.storage.drive.conftest import MIB
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.stores import Drive, big_file

pytestmark = pytest.mark.usefixtures("small_parts")
SIZE = 3 * MIB + 1234


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.001)


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB, SIZE])
def test_it_goes_up_in_multiples_of_256_kib_and_comes_down_the_same(
    drive: Drive, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = big_file(tmp_path, size)
    store = drive.store()
    hashed, read, shown = [], Digests._pass, []
    monkeypatch.setattr(Digests, "_pass", lambda digests: (hashed.append(digests.path), read(digests)))
    (sent,) = send_up(store, tmp_path, {path.name: "checkpoints/a/model"}, sent=shown.append)
    assert hashed == [path], "once"
    assert len(shown) > 1 and sum(shown) == size, "told part by part"
    assert drive.names() == ["checkpoints/a/model"] and drive.person.look()["received"] >= size
    assert store.stat(sent.ref).sha256 == sent.sha256
    (got,) = download(drive.store(), [(sent.ref, "model", sent.size, sent.sha256)], tmp_path / "down")
    assert got.read_bytes() == path.read_bytes()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["down", path.name], "no note is left"


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "drop-before", "route": "v3.upload/put", "times": 2},
        {"kind": "drop-after", "route": "v3.upload/put", "skip": 1, "times": 2},
        {"kind": "500-before", "route": "v3.upload/put", "times": 3, "status": 503},
        {"kind": "500-after", "route": "v3.upload/put", "skip": 3, "status": 500},
        {"kind": "429", "route": "v3.upload/put", "times": 2, "retry_after": 1},
        {"kind": "keep", "route": "v3.upload/put", "skip": 1, "bytes": 256 << 10},
        {"kind": "no-session", "route": "v3.upload/put", "skip": 1, "status": 404},
        {"kind": "no-session", "route": "v3.upload/put", "skip": 2, "status": 410},
        {"kind": "drop-after", "route": "v3.files.create/resumable"},
        {"kind": "flip", "route": "v3.upload/put", "skip": 1},
        {"kind": "401", "route": "v3.upload/put", "skip": 1},
    ],
    ids=lambda fault: f"{fault['kind']}-{fault['route'].partition('/')[2]}-{fault.get('skip', 0)}",
)
def test_trouble_on_the_way_leaves_one_whole_file(drive: Drive, tmp_path: Path, fault: dict[str, object]) -> None:
    path = big_file(tmp_path, SIZE)
    store = drive.store()
    drive.person.fault(**fault)  # type: ignore[arg-type]
    (sent,) = send_up(store, tmp_path, {path.name: "checkpoints/a/model"})
    assert drive.person.look()["met"], "the fault was met"
    assert store.get(sent.ref) == path.read_bytes()
    whole = [f for f in drive.person.look()["files"].values() if f["name"] == "checkpoints/a/model"]
    assert len(whole) == (2 if fault["kind"] == "flip" else 1), "bytes damaged on the way stay under an id nobody names"


def test_an_upload_that_was_given_up_goes_on_in_a_later_process(drive: Drive, tmp_path: Path) -> None:
    path = big_file(tmp_path, SIZE)
    drive.person.fault("500-before", route="v3.upload/put", skip=2, times=9, status=503)
    with pytest.raises(Unavailable):
        drive.store().put("checkpoints/a/model", path)
    note = json.loads((tmp_path / f".{path.name}.upload").read_text())
    assert note["id"] and note["session"] and (tmp_path / f".{path.name}.upload").stat().st_mode & 0o077 == 0
    drive.person.heal()
    asked = drive.person.asked("v3.upload/put")
    ref = drive.store().put("checkpoints/a/model", path)
    assert ref == note["id"], "under the id that was chosen first"
    assert drive.person.asked("v3.upload/put") - asked == 2, "only the two parts that were missing"


def test_a_session_that_has_expired_is_begun_anew_under_the_same_id(drive: Drive, fake: Fake, tmp_path: Path) -> None:
    path = big_file(tmp_path, SIZE)
    drive.person.fault("500-before", route="v3.upload/put", skip=2, times=9, status=503)
    with pytest.raises(Unavailable):
        drive.store().put("a", path)
    drive.person.heal()
    fake.control("expire_sessions", account=drive.person.name)
    ref = drive.store().put("a", path)
    assert drive.store().get(ref) == path.read_bytes()
    assert [f["name"] for f in drive.person.look()["files"].values()].count("a") == 1


def test_a_note_of_another_file_or_of_nobody_is_ignored(tmp_path: Path) -> None:
    path = big_file(tmp_path, 10)
    note = Progress.of(path, "f/a", 10)
    note.id, note.session = "x" * 20, "https://www.googleapis.com/upload/x"
    note.save()
    assert Progress.of(path, "f/a", 10).session
    assert not Progress.of(path, "f/b", 10).session and not Progress.of(path, "f/a", 11).session
    beside = tmp_path / f".{path.name}.upload"
    good = json.loads(beside.read_text())
    for text in ("", "[]", "{", json.dumps(good | {"id": 3}), json.dumps(good | {"session": "https://evil.test/x"})):
        beside.write_text(text)
        assert Progress.of(path, "f/a", 10).id == ""


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
    note = Progress.of(path, "f/a", 10)
    note.id, note.session = "x" * 20, session
    note.save()
    assert Progress.of(path, "f/a", 10).session == ""


@pytest.mark.parametrize("wrong", ["../../etc/passwd", "x" * 33, "another file's"])
def test_a_note_that_names_a_wrong_id_costs_time_only(drive: Drive, tmp_path: Path, wrong: str) -> None:
    path = big_file(tmp_path, SIZE)
    drive.person.fault("500-before", route="v3.upload/put", skip=2, times=9, status=503)
    with pytest.raises(Unavailable):
        drive.store().put("a", path)
    drive.person.heal()
    beside, other = tmp_path / f".{path.name}.upload", wrong.startswith("another")
    note = json.loads(beside.read_text())
    said = {"id": drive.store().reserve(1)[0] if other else wrong, "session": note["session"] if other else ""}
    beside.write_text(json.dumps(note | said))
    store = drive.store()
    assert store.get(store.put("a", path)) == path.read_bytes()


def test_a_full_drive_in_the_middle_keeps_the_note(drive: Drive, person: Person, tmp_path: Path) -> None:
    path = big_file(tmp_path, SIZE)
    person.fault("quota", route="v3.upload/put", skip=3)
    with pytest.raises(QuotaExceeded, match="Make room"):
        drive.store().put("a", path)
    assert drive.store().get(drive.store().put("a", path)) == path.read_bytes()


def test_a_file_that_becomes_shorter_is_a_plain_error(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = big_file(tmp_path, SIZE)
    real = upload.Upload._part

    def cut(self: upload.Upload, request: object) -> object:
        path.write_bytes(b"short")
        return real(self, request)

    monkeypatch.setattr(upload.Upload, "_part", cut)
    with pytest.raises(StoreError, match="became shorter"):
        drive.store().put("a", path)
