"""People who archive, bring back, delete and clean up runs in a simulated world, as the command line does it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from relay.core.ledger.frozen import WAIT_S
from relay.core.runs import archive as archiving
from relay.core.runs.archive import clear, decide
from relay.core.runs.opening import RunHandle

if TYPE_CHECKING:
    from tests.simulation.fleet import Command, Fleet

LIKELY = 0.25
"""The share of worlds in which somebody puts a run away."""
SLEEP_S = WAIT_S + 8 * 3600.0


def archive(one: Command) -> str:
    locks = one.machine.locks.of(one.process)
    archiving.archive(one.ledger(), one.process, locks, session=one.process.token())
    return "archive-0"


def unarchive(one: Command) -> str:
    archiving.unarchive(one.ledger(), session=one.process.token())
    return "unarchive-0"


def delete(one: Command) -> str:
    ledger = one.ledger()
    archiving.mark_deleted(ledger, one.store, session=one.process.token())
    return _cleared(one, full=True, what="delete")


def gc(one: Command) -> str:
    return _cleared(one, full=False, what="gc")


def _cleared(one: Command, full: bool, what: str) -> str:
    ledger = one.ledger()
    stores = one.stores(one.process.token())
    opened = RunHandle(ledger, stores.registry(), ledger.read())
    state, judged = decide(opened, stores, full)
    left = [file for file in clear(judged, ledger.names, stores, state.epoch) if not file.goes]
    files = [file for file in left if ledger.names.parse_checkpoint(file.stat.name)]
    return f"{what}-{'rest' if what == 'delete' and files else '0'}"


def wishes(seed: int, begin: float, length: float) -> Iterator[tuple[float, str, int]]:
    """When somebody does what to which run; a day lies between an archive and the deletions, more or less."""
    random = Random(f"rest {seed}")
    if random.random() >= LIKELY:
        return
    run = random.randrange(3)
    first = begin + random.uniform(0.1, 1.5) * length
    for later in (0.0, 0.5, 60.0, 900.0, 3600.0, 5 * 3600.0)[: random.choice((2, 6))]:
        yield first + later, "archive", run
    if random.random() < 0.4:
        yield first + random.choice((1.0, 600.0, 20 * 3600.0, WAIT_S, WAIT_S + 5 * 3600.0)), "unarchive", run
    day = first + WAIT_S + random.choice((-3600.0, 0.0, 1800.0, 2 * 3600.0, 6 * 3600.0))
    for verb in ("delete", "delete", "run", "fork", "delete", "gc", "verify", "push", "unarchive", "delete"):
        if random.random() < 0.7:
            yield day + random.choice((0.0, 1.0, 30.0, 600.0)) + random.random(), verb, run


def send_to_sleep(fleet: Fleet, seed: int) -> None:
    """Whoever lives sleeps through all of it, and goes on then."""
    random = Random(f"sleepers {seed}")
    for process, one in fleet.crew.items():
        if one.actor.alive and random.random() < 0.5:
            process.suspend(SLEEP_S)
            one.actor.troubled_at = one.actor.woke_at = fleet.world.now + SLEEP_S
            fleet.summary.faults["sleeps-a-day"] += 1
