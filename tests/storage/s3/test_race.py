"""Eight processes append to every slot at once: one winner each, which knows it, also when its answer was lost."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.log import Log
from tests.storage.s3.conftest import opened
from tests.storage.s3.proxy import proxy_to
from tests.storage.s3.racing import LOG, entry, race
from tests.storage.s3.servers import server

pytestmark = pytest.mark.slow

RACERS = 8
SLOTS = int(os.environ.get("RELAY_RACES", "0"))
"""Slots raced for; 0: as many as are quick."""


def run_race(address: str, slots: int, folder: Path) -> list[int]:
    """The winner of each slot, by the racers' own word. Fails unless there is exactly one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.storage.s3.racing", "storage.s3.store"])
    barrier = context.Barrier(RACERS)
    results = [folder / f"result-{racer}" for racer in range(RACERS)]
    processes = [
        context.Process(target=race, args=(address, racer, slots, barrier, results[racer])) for racer in range(RACERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=3000)
    assert [process.exitcode for process in processes] == [0] * RACERS
    wins = [(int(slot), racer) for racer, path in enumerate(results) for slot in path.read_text().split()]
    assert Counter(slot for slot, _ in wins) == Counter(range(slots)), "each slot has exactly one winner"
    return [racer for _, racer in sorted(wins)]


def check_slots(address: str, winners: list[int]) -> None:
    """The store holds what the winners wrote."""
    log = Log(opened(address), LOG, sleep=lambda _: None)
    assert log.tail() == len(winners) - 1
    for slot, racer in enumerate(winners):
        assert log.read(slot) == entry(racer, slot)


@pytest.mark.parametrize(("name", "quick"), [("ministack", 40), ("seaweedfs", 6)])
def test_each_slot_has_one_winner_which_knows_it(
    name: str, quick: int, prefix: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("races", SLOTS or quick)
    address = server(name).address(prefix)
    check_slots(address, run_race(address, SLOTS or quick, tmp_path))


@pytest.mark.parametrize(("name", "quick"), [("ministack", 25), ("seaweedfs", 4)])
def test_so_it_does_when_answers_are_lost_after_the_server_wrote(
    name: str, quick: int, prefix: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("races", SLOTS or quick)
    running = server(name)
    with proxy_to(running.endpoint_url) as proxy:
        proxy.fail("after", lambda request: request.conditional, every=3)
        proxy.fail("error after", lambda request: request.conditional, every=3)
        winners = run_race(running.address(prefix, proxy.endpoint_url), SLOTS or quick, tmp_path)
    check_slots(running.address(prefix), winners)
    assert len(proxy.failed) > len(winners)
