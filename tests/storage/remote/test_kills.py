"""An upload killed at any moment goes on where the last acknowledged part ended, and leaves one file.

On S3 the server keeps the parts: tests/storage/s3/test_parts.py.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.remote.services import OnDrive, OnDropbox
from tests.storage.remote.work import send, start

MIB = 1 << 20
NAME = "checkpoints/p/r/step_5.e1/weights.bin"
UPLOADS = max(1, int(os.environ.get("RELAY_KILLS", "8")) // 4)
"""Each killed four times."""


@dataclass(frozen=True)
class Way:
    """A service, bytes of a file and of its parts, and the size from which parts go side by side."""

    make: Callable[[], OnDrive | OnDropbox]
    size: int
    part: int
    concurrent_from: int = 16 * MIB

    @property
    def side_by_side(self) -> bool:
        return self.size >= self.concurrent_from


WAYS = {
    "drive": Way(OnDrive, 8 * MIB + 5, MIB),
    "dropbox-sequence": Way(OnDropbox, 8 * MIB + 5, MIB),
    "dropbox-side-by-side": Way(OnDropbox, 20 * MIB + 5, 4 * MIB),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_upload_goes_on(tmp_path: Path, way: str) -> None:
    kill_and_go_on(WAYS[way], tmp_path, kills=1, chance=Random(way))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_uploads_killed_at_random_points_go_on(
    tmp_path: Path, way: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("kills", UPLOADS * 4)
    chance = Random(f"{way} twenty times")
    for _ in range(UPLOADS):
        kill_and_go_on(WAYS[way], tmp_path, kills=4, chance=chance)


def kill_and_go_on(way: Way, folder: Path, kills: int, chance: Random) -> None:
    """Kill an upload at random numbers of bytes landed, then let it end: what was acknowledged is sent once."""
    service = way.make()
    person = service.person if isinstance(service, OnDrive) else service.people[0]
    path = folder / "weights.bin"
    path.write_bytes(chance.randbytes(way.size))
    sending = (send, service.environs[0], service.address, path, NAME, way.part, way.concurrent_from)
    person.change(rate=(40 if way.side_by_side else 10) * MIB)
    for goal in sorted(chance.randrange(way.size - way.part) for _ in range(kills)):
        process = start(*sending)
        _wait_for(lambda goal=goal: landed(person) > goal, process)
        process.kill()
        process.join()
    _settled(person)
    there = acknowledged(path) * way.part if way.side_by_side else landed(person)
    there = way.size if any(session.get("done") for session in person.look()["sessions"]) else there
    received = person.look()["received"]
    person.change(rate=0)
    last = start(*sending)
    last.join(timeout=60)
    assert last.exitcode == 0
    store = service.store()
    (found,) = store.list("")
    assert found.name == NAME and store.get(found.ref) == path.read_bytes(), "one file, and no parts of it"
    assert person.look()["received"] - received == way.size - there, "what the service had was not sent again"
    assert len(person.look()["sessions"]) == 1, "all went through one session"
    assert [left.name for left in folder.iterdir()] == ["weights.bin"], "no note is left behind"


def landed(person: Any) -> int:
    """Bytes that the service holds of unfinished uploads."""
    return sum(
        session["held"] if "held" in session else sum(session["pieces"].values())
        for session in person.look()["sessions"]
        if not session.get("done")
    )


def acknowledged(path: Path) -> int:
    """Parts that the killed processes knew to be there."""
    note = path.with_name(f".{path.name}.upload")
    return len(json.loads(note.read_text())["done"]) if note.exists() else 0


def _wait_for(what: Callable[[], bool], process: Any) -> None:
    end = time.monotonic() + 60
    while not what() and process.is_alive():
        assert time.monotonic() < end
        time.sleep(0.005)


def _settled(person: Any) -> None:
    """What a killed process had sent may still be landing."""
    before = -1
    while before != (before := landed(person)):
        time.sleep(0.2)
