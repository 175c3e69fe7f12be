"""Eight processes append to every slot at once: one winner each, which knows it, also when answers were lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.log import Log
from tests.storage.remote.services import SERVICES, Fault
from tests.storage.remote.work import LEDGER, SPAWN, payload, race, start

RACERS = 8
SLOTS = int(os.environ.get("RELAY_RACES", "0"))
"""Slots raced for; 0: as many as are quick (`make soak` races for 400)."""
QUICK = {"s3-ministack": 8, "s3-seaweedfs": 4, "hf": 8, "dropbox": 8, "drive": 8, "drive-newest": 4}
LOST: dict[Fault, float] = {"drop-after": 0.2, "500-after": 0.1, "drop-before": 0.1, "429": 0.1}
"""What happens to writes, and how often."""


@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
@pytest.mark.parametrize("name", QUICK)
def test_of_racing_processes_exactly_one_wins_each_slot_and_knows_it(
    name: str, faults: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    slots = SLOTS // (4 if name == "drive-newest" else 1) or QUICK[name]  # there each costs five requests
    record_property("races", slots)
    with SERVICES[name]() as service:
        for kind, chance in LOST.items() if faults else ():
            service.fault(kind, "write", times=-1, chance=chance)
        barrier = SPAWN.Barrier(RACERS)
        results = [tmp_path / str(racer) for racer in range(RACERS)]
        of = [service.environs[n % len(service.environs)] for n in range(RACERS)]
        racing = [start(race, of[n], service.address, n, slots, barrier, results[n]) for n in range(RACERS)]
        for process in racing:
            process.join(timeout=3000 if SLOTS else 280)
        assert [process.exitcode for process in racing] == [0] * RACERS
        assert not faults or service.met() > slots / 2
        service.heal()
        told = [json.loads(path.read_text()) for path in results]
        winners = {slot: racer for racer, said in enumerate(told) for slot in said["won"]}
        assert sorted(slot for said in told for slot in said["won"]) == list(range(slots)), "one winner a slot"
        log = Log(service.store(), LEDGER, sleep=lambda _: None)
        assert log.tail() == slots - 1
        for slot, winner in winners.items():
            assert log.read(slot) == payload(winner, slot)
        for said in told:
            for slot, seen in said["lost"].items():
                assert seen.encode() == payload(winners[int(slot)], int(slot)), "a loser sees the winner's bytes"
        named = [stat.name for stat in service.store().list(LEDGER)]
        assert name == "drive-newest" or len(named) == slots, "however often an append is sent, a slot is one object"
