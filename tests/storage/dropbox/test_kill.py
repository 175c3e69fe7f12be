"""An upload killed at any moment goes on where the last acknowledged part ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.dropbox.conftest import MIB
from tests.storage.dropbox.handle import Fake, Person
from tests.storage.dropbox.processes import send, start

SIZES = {"sequence": (8 * MIB + 5, MIB), "side by side": (20 * MIB + 5, 4 * MIB)}
"""Bytes of the file and of a part."""


def test_a_killed_upload_goes_on(fake: Fake, person: Person, tmp_path: Path) -> None:
    _kill_and_go_on(fake, person, tmp_path, "sequence", kills=1, chance=Random(1))
    _kill_and_go_on(fake, fake.account(), tmp_path, "side by side", kills=1, chance=Random(2))


@pytest.mark.slow
@pytest.mark.parametrize("way", SIZES)
def test_uploads_killed_at_twenty_random_points_go_on(
    fake: Fake, tmp_path: Path, way: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("kills", 5 * 4)
    chance = Random(way)
    for _ in range(5):
        _kill_and_go_on(fake, fake.account(), tmp_path, way, kills=4, chance=chance)


def _kill_and_go_on(fake: Fake, person: Person, folder: Path, way: str, kills: int, chance: Random) -> None:
    """Kill an upload at random numbers of parts landed, then let it end: what was acknowledged is sent once."""
    size, part = SIZES[way]
    path = folder / "model"
    path.write_bytes(chance.randbytes(size))
    person.change(rate=40 * MIB)
    concurrent_from = 16 * MIB
    for goal in sorted(chance.randrange(size - part) for _ in range(kills)):
        sending = start(send, fake.port, person.environ, path, part, concurrent_from)
        _wait_for(lambda goal=goal: _landed(person) > goal, sending)
        sending.kill()
        sending.join()
    _settled(person)
    landed, received = _landed(person), person.look()["received"]
    acknowledged = _acknowledged(path, part)
    person.change(rate=0)
    last = start(send, fake.port, person.environ, path, part, concurrent_from)
    last.join(timeout=60)
    assert last.exitcode == 0
    store = person.store()
    assert store.get(store.ref("model")) == path.read_bytes()
    sent = person.look()["received"] - received
    assert sent == size - (landed if way == "sequence" else acknowledged)
    assert received + sent <= size + (kills * 4 * part if way == "side by side" else 0), "nothing else was taken twice"
    assert person.asked("files/upload_session/append_v2") <= size // part + 1 + 5 * kills
    assert len(person.look()["sessions"]) == 1, "no session is left behind"
    assert [left.name for left in folder.iterdir()] == ["model"], "no note is left behind"


def _landed(person: Person) -> int:
    """Bytes that the service holds of unfinished uploads."""
    return sum(sum(session["pieces"].values()) for session in person.look()["sessions"])


def _acknowledged(path: Path, part: int) -> int:
    """Bytes of parts that the killed processes knew to be there."""
    note = path.with_name(f".{path.name}.upload")
    return len(json.loads(note.read_text())["done"]) * part if note.exists() else 0


def _wait_for(what: Any, sending: Any) -> None:
    end = time.monotonic() + 60
    while not what() and sending.is_alive():
        assert time.monotonic() < end
        time.sleep(0.005)


def _settled(person: Person) -> None:
    """What a killed process had sent may still be landing."""
    before = -1
    while before != (before := _landed(person)):
        time.sleep(0.2)
