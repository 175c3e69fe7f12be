"""Many processes and one Dropbox: one winner a slot, who knows it, also when replies are lost after the commit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.dropbox.handle import Fake
from tests.storage.dropbox.processes import SPAWN, payload, race, start

pytestmark = pytest.mark.slow

RACERS = 8
SLOTS = int(os.environ.get("RELAY_RACES", "50"))
"""Slots raced for."""


@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
def test_of_racing_processes_exactly_one_wins_each_slot_and_knows_it(
    fake: Fake, tmp_path: Path, faults: bool, record_property: Callable[[str, object], None]
) -> None:
    slots = SLOTS
    record_property("races", slots)
    people = [fake.account(), fake.account()]
    shared = f"7{people[0].name.split('-')[0][6:]}"
    fake.control("share", id=shared, accounts={people[0].name: "/ours", people[1].name: "/from a friend"})
    for person in people if faults else ():
        for kind, chance in (("drop-after", 0.2), ("500-after", 0.1), ("drop-before", 0.1), ("429", 0.1)):
            person.fault(kind, route="files/upload", chance=chance, times=-1, retry_after=0)
    barrier = SPAWN.Barrier(RACERS)
    results = [tmp_path / str(racer) for racer in range(RACERS)]
    url = f"dropbox://ns:{shared}/relay"
    racing = [start(race, fake.port, people[n % 2].environ, url, n, slots, barrier, results[n]) for n in range(RACERS)]
    for process in racing:
        process.join(timeout=280)
    assert [process.exitcode for process in racing] == [0] * RACERS
    told = [json.loads(path.read_text()) for path in results]
    winners = {slot: racer for racer, said in enumerate(told) for slot in said["won"]}
    assert sorted(slot for said in told for slot in said["won"]) == list(range(slots)), "one winner a slot"
    store = people[0].store(url)
    for slot, winner in winners.items():
        assert store.get(store.ref(f"runs/p/r/ledger/{slot:020d}.json")) == payload(winner, slot)
    for said in told:
        for slot, seen in said["lost"].items():
            assert seen.encode() == payload(winners[int(slot)], int(slot)), "a loser sees the winner's bytes"
    if faults:
        assert sum(len(person.look()["met"]) for person in people) > slots
