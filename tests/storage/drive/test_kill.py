"""An upload killed at any moment goes on where the last acknowledged part ended, and leaves one file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.drive.clients import send
from tests.storage.drive.conftest import MIB
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.processes import start
from tests.storage.drive.stores import Drive, holding

SIZE, PART = 8 * MIB + 5, MIB
NAME = "checkpoints/p/r/step_5.e1/weights.bin"


def test_a_killed_upload_goes_on(fake: Fake, tmp_path: Path) -> None:
    kill_and_go_on(fake, tmp_path, kills=2, chance=Random(1))


@pytest.mark.slow
def test_uploads_killed_at_twenty_random_points_go_on(
    fake: Fake, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("kills", 5 * 4)
    chance = Random(2)
    for _ in range(5):
        kill_and_go_on(fake, tmp_path, kills=4, chance=chance)


def kill_and_go_on(fake: Fake, folder: Path, kills: int, chance: Random) -> None:
    """Kill an upload at random numbers of bytes landed, then let it end."""
    person = fake.person()
    drive = Drive(person)
    path = folder / "weights.bin"
    path.write_bytes(chance.randbytes(SIZE))
    person.change(rate=20 * MIB)
    for goal in sorted(chance.randrange(SIZE - PART) for _ in range(kills)):
        sending = start(send, fake.port, holding(person), drive.address, path, NAME, PART)
        _wait_for(lambda goal=goal: _held(person) > goal, sending)
        sending.kill()
        sending.join()
    time.sleep(0.3)  # what a killed process had sent may still be landing
    held, asked, sessions = _held(person), person.asked("v3.upload/put"), len(person.look()["sessions"])
    person.change(rate=0)
    last = start(send, fake.port, holding(person), drive.address, path, NAME, PART)
    last.join(timeout=60)
    assert last.exitcode == 0
    store = drive.store()
    (found,) = store.list("checkpoints/")
    assert store.get(found.ref) == path.read_bytes()
    missing = -(-(SIZE - held) // PART)
    assert person.asked("v3.upload/put") - asked <= missing, "what the service had was not sent again"
    assert sessions <= 1, "all went through one session"
    assert drive.names() == [NAME], "one file, and no parts of it"
    assert [left.name for left in folder.iterdir()] == ["weights.bin"], "no note is left behind"


def _held(person: Person) -> int:
    """Bytes that the service holds of unfinished uploads."""
    return sum(session["held"] for session in person.look()["sessions"] if not session["done"])


def _wait_for(what: Any, sending: Any) -> None:
    end = time.monotonic() + 60
    while not what() and sending.is_alive():
        assert time.monotonic() < end
        time.sleep(0.005)
