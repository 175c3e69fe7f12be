"""Long files on Dropbox go up in sequence or side by side; the rest is in remote/test_uploads.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage.base import Unavailable
from storage.dropbox import upload as upload_module
from storage.dropbox.upload import DropboxUpload
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
    real = DropboxUpload.__init__

    def eager(self: DropboxUpload, *args: Any) -> None:
        real(self, *args, sleep=lambda _: None)

    monkeypatch.setattr(DropboxUpload, "__init__", eager)


def notes(path: Path) -> list[Path]:
    return [note for note in path.parent.iterdir() if note != path]


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
def test_a_long_object_is_replaced_whole(person: Person, make: Callable[[int], Path], size: int) -> None:
    store = person.store()
    store.put("a", b"something else")
    path = make(size)
    assert store.get(store.put("a", path)) == path.read_bytes()


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


def test_a_server_that_sends_us_in_circles_is_given_up(person: Person, make: Callable[[int], Path]) -> None:
    path, store = make(SEQUENCE), person.store()
    person.fault("error", route="append_v2", error={".tag": "incorrect_offset", "correct_offset": 0}, times=-1)
    with pytest.raises(Unavailable):
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
