"""Many processes and one Drive: one winner a slot, who knows it, also when replies are lost; in both ways of a log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.drive.members import go_on_by_newest
from storage.log import Log
from tests.storage.drive.clients import LEDGER, payload, race
from tests.storage.drive.handle import Fake
from tests.storage.drive.processes import SPAWN, start
from tests.storage.drive.stores import Drive, holding

pytestmark = pytest.mark.slow

RACERS = 8
SLOTS = int(os.environ.get("RELAY_RACES", "50"))
"""Slots raced for in a chain; a quarter in the other way, where each costs five requests."""
LOST = (("drop-after", 0.1), ("500-after", 0.1), ("drop-before", 0.05), ("429", 0.05), ("userRateLimit", 0.05))


@pytest.mark.parametrize("way", ["chain", "newest"])
@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
def test_of_racing_processes_exactly_one_wins_each_slot_and_knows_it(
    fake: Fake, tmp_path: Path, way: str, faults: bool, record_property: Callable[[str, object], None]
) -> None:
    person = fake.person()
    drive = Drive(person)
    slots = SLOTS
    if way == "newest":
        go_on_by_newest(drive.store())
        slots //= 4
    record_property("races", slots)
    for kind, chance in LOST if faults else ():
        for route in ("v3.files.create", "v2.files.update"):
            person.fault(kind, route=route, chance=chance, times=-1, retry_after=0)
    barrier = SPAWN.Barrier(RACERS)
    results = [tmp_path / str(racer) for racer in range(RACERS)]
    racing = [
        start(race, fake.port, holding(person), drive.address, n, slots, barrier, results[n]) for n in range(RACERS)
    ]
    for process in racing:
        process.join(timeout=280)
    assert [process.exitcode for process in racing] == [0] * RACERS
    person.heal()
    told = [json.loads(path.read_text()) for path in results]
    winners = {slot: racer for racer, said in enumerate(told) for slot in said["won"]}
    assert sorted(slot for said in told for slot in said["won"]) == list(range(slots)), "one winner a slot"
    log = Log(drive.store(), LEDGER, sleep=lambda _: None)
    assert log.tail() == slots - 1
    for slot, winner in winners.items():
        assert log.read(slot) == payload(winner, slot)
    for said in told:
        for slot, seen in said["lost"].items():
            assert seen.encode() == payload(winners[int(slot)], int(slot)), "a loser sees the winner's bytes"
    if way == "chain":
        named = [name for name in drive.names() if name.startswith(LEDGER)]
        assert len(named) == slots, "however often a create is sent, a slot is one file"
    if faults:
        assert len(person.look()["met"]) > slots / 2
