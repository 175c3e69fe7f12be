"""Long files go up in parts: in sequence or side by side, resumed at the last acknowledged part, verified by hash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage.base import QuotaExceeded, StoreError, Unavailable
from storage.dropbox import upload as upload_module
from storage.dropbox.store import DropboxStore
from storage.dropbox.upload import Upload
from storage.transfer import Wanted, download, upload
from tests.storage.dropbox.conftest import MIB
from tests.storage.dropbox.handle import Fake, Person

pytestmark = pytest.mark.usefixtures("small_parts")
SEQUENCE, SIDE_BY_SIDE = 3 * MIB + 5, 12 * MIB + 7
SIZES = pytest.mark.parametrize("size", [SEQUENCE, SIDE_BY_SIDE], ids=["sequence", "side-by-side"])
APPEND = "files/upload_session/append_v2"


@pytest.fixture
def make(tmp_path: Path) -> Callable[[int], Path]:
    def make(size: int) -> Path:
        path = tmp_path / "source" / "model.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(Random(size).randbytes(size))
        return path

    return make


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Upload.__init__

    def eager(self: Upload, *args: Any) -> None:
        real(self, *args, sleep=lambda _: None)

    monkeypatch.setattr(Upload, "__init__", eager)


def notes(path: Path) -> list[Path]:
    return [note for note in path.parent.iterdir() if note != path]


def _third(size: int) -> int:
    """The offset of the third part."""
    return 8 * MIB if size >= 8 * MIB else 2 * MIB


def sent(person: Person) -> int:
    return int(person.look()["received"])


@pytest.mark.parametrize(
    ("size", "parts", "concurrent"),
    [
        (MIB, 0, None),
        (MIB + 1, 2, False),
        (2 * MIB, 2, False),
        (SEQUENCE, 4, False),
        (8 * MIB, 2, True),
        (SIDE_BY_SIDE, 4, True),
    ],
)
def test_parts(person: Person, make: Callable[[int], Path], size: int, parts: int, concurrent: bool | None) -> None:
    path, store = make(size), person.store()
    ref = store.put("a/model", path)
    assert store.get(ref) == path.read_bytes()
    assert person.asked(APPEND) == parts and sent(person) == size
    assert [session["concurrent"] for session in person.look()["sessions"]] == ([concurrent] if parts else [])
    assert notes(path) == [], "no note is left"


def test_bytes_too_long_for_one_request_go_in_parts_too(person: Person) -> None:
    data = Random(1).randbytes(SEQUENCE)
    store = person.store()
    assert store.get(store.put("a", data)) == data
    assert person.asked(APPEND) == 4


@SIZES
def test_an_upload_is_verified_by_dropboxs_own_hash(person: Person, make: Callable[[int], Path], size: int) -> None:
    path, store = make(size), person.store()
    (file,) = upload(store, path.parent, {path.name: "x/model"})
    assert (file.size, file.ref) == (size, "x/model")
    assert person.asked("files/download") == 0, "nothing is read back"
    assert upload(store, path.parent, {path.name: "x/model"}) == [file]
    assert sent(person) == size, "nothing is sent twice"
    assert download(store, [Wanted(file.ref, "down", size, file.sha256)], path.parent)
    assert (path.parent / "down").read_bytes() == path.read_bytes()


@SIZES
def test_a_long_object_is_replaced_whole(person: Person, make: Callable[[int], Path], size: int) -> None:
    store = person.store()
    store.put("a", b"something else")
    path = make(size)
    assert store.get(store.put("a", path)) == path.read_bytes()


@SIZES
@pytest.mark.parametrize(
    ("kind", "route"),
    [
        *((kind, "append_v2") for kind in ("500-before", "500-after", "drop-before", "drop-after", "429", "flip")),
        *((kind, "finish") for kind in ("500-before", "500-after", "drop-before", "drop-after", "429")),
        *((kind, "start") for kind in ("500-after", "drop-after")),
    ],
)
def test_each_part_outlives_a_fault(
    person: Person, make: Callable[[int], Path], size: int, kind: str, route: str
) -> None:
    path, store = make(size), person.store()
    person.fault(kind, route=f"upload_session/{route}", skip=1 if route == "append_v2" else 0, times=2)
    assert store.get(store.put("a", path)) == path.read_bytes()
    assert len(person.look()["met"]) >= 1
    assert sent(person) <= size + 8 * MIB, "only the parts without an answer are sent again"
    assert notes(path) == []


@pytest.mark.parametrize("kind", ["drop-after", "500-after"])
def test_the_last_part_may_lose_its_reply_too(person: Person, make: Callable[[int], Path], kind: str) -> None:
    path, store = make(SIDE_BY_SIDE), person.store()
    person.fault(kind, route="append_v2", match='"close": true')
    assert store.get(store.put("a", path)) == path.read_bytes()
    assert sent(person) <= SIDE_BY_SIDE + 4 * MIB


@pytest.mark.parametrize(("twice", "sessions"), [("lost", [[True, False]]), ("refused", [[True], [True, False]])])
def test_a_concurrent_session_that_minds_a_part_sent_twice_gives_way_to_a_sequence(
    person: Person, fake: Fake, make: Callable[[int], Path], twice: str, sessions: list[list[bool]]
) -> None:
    """A refusal may by chance name the offset behind that very part: then it is there, and the session goes on."""
    path, store = make(SIDE_BY_SIDE), person.store()
    fake.control("set", twice=twice)
    person.fault("drop-after", route="append_v2", match='"close": false')
    try:
        assert store.get(store.put("a", path)) == path.read_bytes()
    finally:
        fake.control("set", twice="accepted")
    assert [session["concurrent"] for session in person.look()["sessions"]] in sessions


@SIZES
def test_what_was_acknowledged_is_not_sent_again(person: Person, make: Callable[[int], Path], size: int) -> None:
    path, store = make(size), person.store()
    person.fault("500-before", route="append_v2", match=f'"offset": {_third(size)}', times=-1)
    with pytest.raises(Unavailable, match="error of its own"):
        store.put("a", path)
    (note,) = notes(path)
    done = json.loads(note.read_text())["done"]
    kept = max(done) if size == SEQUENCE else 4 * MIB * len(done)
    assert kept >= (2 * MIB if size == SEQUENCE else 4 * MIB)
    person.heal()
    before = sent(person)
    assert person.store().put("a", path) == "a"
    assert sent(person) - before == size - kept
    assert store.get(store.ref("a")) == path.read_bytes()
    assert len(person.look()["sessions"]) == 1 and notes(path) == []


def _interrupted(person: Person, store: DropboxStore, path: Path) -> Path:
    person.fault("500-before", route="append_v2", match=f'"offset": {_third(path.stat().st_size)}', times=-1)
    with pytest.raises(Unavailable):
        store.put("a", path)
    person.heal()
    return notes(path)[0]


@SIZES
def test_an_expired_session_is_begun_anew(person: Person, fake: Fake, make: Callable[[int], Path], size: int) -> None:
    path, store = make(size), person.store()
    _interrupted(person, store, path)
    fake.control("set", expire_sessions=True)
    assert store.get(store.put("a", path)) == path.read_bytes()
    assert len(person.look()["sessions"]) == 2


def test_a_note_of_other_bytes_or_another_name_is_not_followed(person: Person, make: Callable[[int], Path]) -> None:
    path, store = make(SEQUENCE), person.store()
    _interrupted(person, store, path)
    path.write_bytes(bytes(reversed(path.read_bytes())))
    assert store.get(store.put("a", path)) == path.read_bytes()
    _interrupted(person, store, make(SEQUENCE + 1))
    assert store.get(store.put("b", path)) == path.read_bytes()
    assert len({session["id"] for session in person.look()["sessions"]}) == 4


def test_a_process_killed_while_it_saved_its_note_leaves_nothing_for_good(
    person: Person, make: Callable[[int], Path]
) -> None:
    path, store = make(SEQUENCE), person.store()
    note = _interrupted(person, store, path)
    note.with_name(f"{note.name}.tmp").write_bytes(note.read_bytes()[:10])
    assert store.get(store.put("a", path)) == path.read_bytes()
    assert notes(path) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: b"",
        lambda said: b"\xff\x00",
        lambda said: b"[" * 10_000,
        lambda said: json.dumps(said | {"done": [-1]}).encode(),
        lambda said: json.dumps(said | {"done": [True]}).encode(),
        lambda said: json.dumps(said | {"done": [1 << 60]}).encode(),
        lambda said: json.dumps(said | {"session": 7}).encode(),
        lambda said: json.dumps(said | {"session": "made-up"}).encode(),
        lambda said: json.dumps(said | {"format": 1}).encode(),
        lambda said: json.dumps(said | {"concurrent": True}).encode(),
        lambda said: json.dumps(said | {"done": [SEQUENCE]}).encode(),
        lambda said: json.dumps(said | {"done": [2 * MIB]}).encode(),
        lambda said: json.dumps(said | {"done": []}).encode(),
    ],
)
def test_a_damaged_note_costs_time_only(
    person: Person, make: Callable[[int], Path], damage: Callable[[dict[str, Any]], bytes]
) -> None:
    path, store = make(SEQUENCE), person.store()
    note = _interrupted(person, store, path)
    note.write_bytes(damage(json.loads(note.read_text())))
    assert store.get(store.put("a", path)) == path.read_bytes()
    assert notes(path) == []


def test_a_full_dropbox_keeps_what_was_sent(person: Person, make: Callable[[int], Path]) -> None:
    person.change(quota=3 * MIB)
    path, store = make(SEQUENCE), person.store()
    with pytest.raises(QuotaExceeded, match=r"Make room .* of 0\.00 GB are used"):
        store.put("a", path)
    person.change(quota=100 * MIB)
    assert store.get(store.put("a", path)) == path.read_bytes()
    assert sent(person) == SEQUENCE, "only the commit was left to do"


def test_a_file_that_shrinks_meanwhile_is_told(person: Person, make: Callable[[int], Path]) -> None:
    path, store = make(SEQUENCE), person.store()
    person.change(latency=0.2)
    real = upload_module._start

    def shrink(*args: Any) -> str:
        path.write_bytes(b"short")
        return real(*args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreError, match="became shorter"):
        patch.setattr(upload_module, "_start", shrink)
        store.put("a", path)


def test_a_server_that_sends_us_in_circles_is_given_up(person: Person, make: Callable[[int], Path]) -> None:
    path, store = make(SEQUENCE), person.store()
    person.fault("error", route="append_v2", error={".tag": "incorrect_offset", "correct_offset": 0}, times=-1)
    with pytest.raises(Unavailable, match="sessions were lost"):
        store.put("a", path)


def test_memory_holds_the_parts_in_flight_and_no_more(person: Person, tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    store = person.store()
    store.put("warm", b"x")
    tracemalloc.start()
    try:
        store.put("a", path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 7 * upload_module.BLOCK, "parts in flight, what is read ahead, and the block being hashed"
