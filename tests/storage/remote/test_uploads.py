"""A long file arrives whole and once, whatever happens on its way; a note beside it is a hint and never believed.

On S3 the server keeps the parts, and there is no note: tests/storage/s3/test_parts.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage.base import QuotaExceeded, Store, StoreError, Unavailable
from storage.drive import upload as drive_upload
from storage.dropbox import store as dropbox_store
from storage.dropbox import upload as dropbox_upload
from storage.dropbox.upload import DropboxUpload
from storage.transfer import Wanted, download, upload
from tests.facts import raising
from tests.storage.drive.handle import running as drive_running
from tests.storage.drive.stores import Drive
from tests.storage.dropbox.handle import running as dropbox_running

MIB = 1 << 20


@dataclass(frozen=True)
class Way:
    """How a service takes a file of this size: the bytes of a part, and the route that takes one."""

    kind: str
    size: int
    part: int
    route: str


WAYS = {
    "drive": Way("drive", 3 * MIB + 1234, MIB, "v3.upload/put"),
    "dropbox-sequence": Way("dropbox", 3 * MIB + 5, MIB, "files/upload_session/append_v2"),
    "dropbox-side-by-side": Way("dropbox", 12 * MIB + 7, 4 * MIB, "files/upload_session/append_v2"),
}


class Sending:
    """A file, a store to which it goes, and its owner."""

    def __init__(self, way: Way, folder: Path) -> None:
        self.way = way
        self.path = folder / "model.safetensors"
        self.path.write_bytes(Random(way.size).randbytes(way.size))
        self.person: Any = drive_running().person() if way.kind == "drive" else dropbox_running().account()
        self._drive = Drive(self.person) if way.kind == "drive" else None

    def store(self) -> Store:
        """A new client."""
        return self._drive.store() if self._drive else self.person.store()

    def put(self, name: str = "a") -> Store:
        """By a client of its own; it arrives as it is."""
        store = self.store()
        assert store.get(store.put(name, self.path)) == self.path.read_bytes()
        return store

    @property
    def notes(self) -> list[Path]:
        """What lies beside the file."""
        return [path for path in self.path.parent.iterdir() if path.is_file() and path != self.path]

    @property
    def received(self) -> int:
        return int(self.person.look()["received"])

    @property
    def parts(self) -> int:
        return int(self.person.asked(self.way.route))

    @property
    def sessions(self) -> int:
        return len(self.person.look()["sessions"])

    def break_off(self) -> Path:
        """Send it until a part, the third or the only one after two, is refused for good; the note that is left."""
        third = {"skip": 2, "times": 9} if self._drive else {"match": f'"offset": {self._third}', "times": -1}
        self.person.fault("500-before", route=self.way.route, **third)
        with pytest.raises(Unavailable):
            self.store().put("a", self.path)
        self.person.heal()
        (note,) = self.notes
        assert note.stat().st_mode & 0o077 == 0, "who has a session may write to it"
        return note

    @property
    def _third(self) -> int:
        return 8 * MIB if self.way.size >= 8 * MIB else 2 * MIB


@pytest.fixture(params=WAYS)
def sending(request: pytest.FixtureRequest, tmp_path: Path) -> Sending:
    return Sending(WAYS[request.param], tmp_path)


@pytest.fixture(autouse=True)
def small_parts_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts of 1 MiB; on Dropbox side by side (4 MiB, the least that it takes there) from 8 MiB on."""
    for module, names in (
        (drive_upload, ("PART", "SMALL")),
        (dropbox_upload, ("PART",)),
        (dropbox_store, ("SMALL",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, MIB)
    monkeypatch.setattr(dropbox_upload, "CONCURRENT_FROM", 8 * MIB)
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.001)
    real = DropboxUpload.__init__
    monkeypatch.setattr(DropboxUpload, "__init__", lambda self, *args: real(self, *args, sleep=lambda _: None))
    yield


def test_it_is_verified_by_the_services_own_hash_and_comes_down_the_same(sending: Sending) -> None:
    path, store = sending.path, sending.store()
    shown: list[int] = []
    (file,) = upload(store, path.parent, {path.name: "x/model"}, sent=shown.append)
    assert len(shown) > 1 and sum(shown) == file.size == sending.way.size, "told part by part"
    asked = [sending.person.asked(route) for route in ("files/download", "v3.files.get/media")]
    assert asked == [0, 0], "nothing is read back"
    assert sending.notes == [], "no note is left"
    before = sending.received
    if store.unique_names:
        assert upload(store, path.parent, {path.name: "x/model"}) == [file]
    assert sending.received == before, "nothing is sent twice"
    (got,) = download(sending.store(), [Wanted(file.ref, "down", file.size, file.sha256)], path.parent / "target")
    assert got.read_bytes() == path.read_bytes()


PARTS = ("500-before", "500-after", "drop-before", "drop-after", "429", "flip")
FAULTS: dict[str, list[dict[str, Any]]] = {
    "dropbox": [
        *({"kind": kind, "route": "upload_session/append_v2", "skip": 1, "times": 2} for kind in PARTS),
        *({"kind": kind, "route": "upload_session/finish", "times": 2} for kind in PARTS if kind != "flip"),
        *({"kind": kind, "route": "upload_session/start", "times": 2} for kind in ("500-after", "drop-after")),
    ],
    "drive": [
        *(
            {"kind": kind, "route": "v3.upload/put", "skip": 1, "times": 2}
            for kind in PARTS
            if kind not in ("flip", "429")
        ),
        {"kind": "429", "route": "v3.upload/put", "retry_after": 1},
        {"kind": "500-before", "route": "v3.upload/put", "times": 3, "status": 503},
        {"kind": "500-after", "route": "v3.upload/put", "skip": 3, "status": 500},
        {"kind": "keep", "route": "v3.upload/put", "skip": 1, "bytes": 256 << 10},
        {"kind": "no-session", "route": "v3.upload/put", "skip": 1, "status": 404},
        {"kind": "no-session", "route": "v3.upload/put", "skip": 2, "status": 410},
        {"kind": "drop-after", "route": "v3.files.create/resumable"},
        {"kind": "401", "route": "v3.upload/put", "skip": 1},
    ],
}
TROUBLE = [
    pytest.param(way, fault, id=f"{way}-{fault['kind']}-{fault['route'].rpartition('/')[2]}-{fault.get('skip', 0)}")
    for way in WAYS
    for fault in FAULTS[WAYS[way].kind]
]


@pytest.mark.parametrize(("sending", "fault"), TROUBLE, indirect=["sending"])
def test_trouble_on_the_way_leaves_one_whole_file(sending: Sending, fault: dict[str, Any]) -> None:
    sending.person.fault(**fault)
    assert [stat.name for stat in sending.put().list("a")] == ["a"]
    assert sending.person.look()["met"], "the fault was met"
    assert sending.received <= sending.way.size + 2 * sending.way.part, "only what had no answer is sent again"
    assert sending.notes == []


def test_an_upload_that_was_given_up_goes_on_in_a_later_process(sending: Sending) -> None:
    note = json.loads(sending.break_off().read_text())
    if sending.way.kind == "drive":  # whose note tells no offsets: the service is asked
        (there,) = (session["held"] for session in sending.person.look()["sessions"])
    else:
        there = sending.way.part * len(note["done"]) if note["concurrent"] else max(note["done"])
    assert there >= MIB
    before, parts, missing = sending.received, sending.parts, sending.way.size - there
    sending.put()
    assert sending.received - before == missing, "what was acknowledged is not sent again"
    assert sending.parts - parts <= -(-missing // sending.way.part) + 1
    assert sending.sessions == 1 and sending.notes == []


def test_a_session_that_has_expired_is_begun_anew(sending: Sending) -> None:
    sending.break_off()
    if sending.way.kind == "drive":
        sending.person.fake.control("expire_sessions", account=sending.person.name)
    else:
        sending.person.fake.control("set", expire_sessions=True)
    sending.put()
    assert sending.sessions == 2


def test_a_note_of_other_bytes_or_another_name_is_not_followed(sending: Sending) -> None:
    sending.break_off()
    sending.path.write_bytes(bytes(reversed(sending.path.read_bytes())))
    sending.put()
    sending.path.write_bytes(Random(7).randbytes(sending.way.size))
    sending.break_off()
    sending.put("b")


def test_a_process_killed_while_it_saved_its_note_leaves_nothing_for_good(sending: Sending) -> None:
    note = sending.break_off()
    note.with_name(f"{note.name}.tmp").write_bytes(note.read_bytes()[:10])
    sending.put()
    assert sending.notes == []


Said = dict[str, Any]
DAMAGE: dict[str, Callable[[Said], bytes]] = {
    "empty": lambda said: b"",
    "no text": lambda said: b"\xff\x00",
    "deep": lambda said: b"[" * 10_000,
    "a list": lambda said: b"[]",
    **{
        f"{name} is {value!r:.10}": lambda said, name=name, value=value: json.dumps(said | {name: value}).encode()
        for name, values in {
            "format": [0, "1"],
            "size": [1],
            "target": ["b"],
            "session": [7, "made-up", "https://evil.test/x"],
            "id": [3, "../../etc/passwd", "x" * 33],
            "done": [[-1], [True], [1 << 60], [MIB + 1], [3 * MIB + 5], []],
            "concurrent": [True],
        }.items()
        for value in values
    },
}


@pytest.mark.parametrize("sending", ["drive", "dropbox-sequence"], indirect=True)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_note_costs_time_only(sending: Sending, damage: str) -> None:
    note = sending.break_off()
    note.write_bytes(DAMAGE[damage](json.loads(note.read_text())))
    sending.put()
    assert sending.notes == []


def test_a_full_account_keeps_what_was_sent(sending: Sending) -> None:
    if sending.way.kind == "drive":
        sending.person.fault("quota", route=sending.way.route, skip=3)
    else:
        sending.person.change(quota=sending.way.size - 5)
    with raising(QuotaExceeded, "GB"):
        sending.store().put("a", sending.path)
    sending.person.heal()
    if sending.way.kind == "dropbox":
        sending.person.change(quota=100 * MIB)
    before = sending.received
    sending.put()
    assert sending.received - before <= MIB, "only the end was left to do"


def test_a_file_that_becomes_shorter_is_a_plain_error(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name = (drive_upload.DriveUpload, "_part") if sending.way.kind == "drive" else (dropbox_upload, "_start")
    real = getattr(where, name)

    def shrink(*args: Any) -> Any:
        os.truncate(sending.path, 5)
        return real(*args)

    monkeypatch.setattr(where, name, shrink)
    with raising(StoreError, sending.path):
        sending.store().put("a", sending.path)
