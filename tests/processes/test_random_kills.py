"""SIGKILL at random moments, many times, over several accounts and machines: the cost, and that it stays in bounds.

`make soak` does 500; RELAY_SEED repeats a run's choices; RELAY_KILLS_RECORD names a file for the numbers.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.field import Field, Session, until
from tests.processes.losses import Summary, loss_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
KILLS = int(os.environ.get("RELAY_KILLS", "12"))
PER_RUN = 20
EVERY, STEP_S, WEIGHTS = 20, 0.002, 200_000
SLOWEST_S = 30.0
"""No machine needs that long from one of the toy's commits to the next; a longer bound says that commits stopped."""


def kill_sometime(session: Session, chance: random.Random) -> float:
    """In the start, or after so many commits that a slow machine, too, gets there; then at any moment of a commit."""
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0.0, 0.4))
    else:
        commits = chance.choice((0, 1, 2, 4))
        wanted = "landed-commit" if commits else "landed-lease"
        until(lambda: len(session.noted(wanted)) >= (commits or 1), 120, lambda: session.err)
        time.sleep(chance.uniform(0.0, 0.15))
    assert session.poll() is None, f"it ended before it was killed: {session.code}\n{session.err}"
    return session.kill()


def test_i6_a_kill_costs_at_most_the_commit_interval_and_the_way_of_a_snapshot_to_its_append(
    field: Field, record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("RELAY_SEED", str(random.SystemRandom().randrange(10**6))))
    print(f"replay with RELAY_SEED={seed}")
    chance, summary, began = random.Random(seed), Summary(), time.monotonic()
    for first in range(0, KILLS, PER_RUN):
        killed_in_one_run(field, f"chain-{first}", min(PER_RUN, KILLS - first), chance, summary)
    record_property("summary", f"{summary.line()}; seed {seed}")
    keep(summary, seed, time.monotonic() - began)
    assert summary.bound_s <= SLOWEST_S, f"seed {seed}"
    for loss in summary.losses:  # a machine that rests between two snapshots makes that interval long, in no number yet
        short = loss.steps <= EVERY if loss.waiting else loss.seconds <= summary.bound_s
        assert short, f"seed {seed}: {loss}, bound {summary.bound_s} s"
    assert statistics.median(loss.steps for loss in summary.losses) <= 3 * EVERY, f"seed {seed}"


def killed_in_one_run(field: Field, run: str, kills: int, chance: random.Random, summary: Summary) -> None:
    """Each session continues from the state left by the killed one before it; the last one ends by itself."""
    before, advanced = 0, 0
    for kill in range(kills):
        session = field.train(
            10**9,
            account=f"account_{chance.randrange(4)}",
            machine=chance.choice(("one", "two", "three")),
            run=run,
            every=EVERY,
            ttl_s=0.6,
            wait_s=60,
            evaluate=chance.choice((0, 2)),
            step_s=STEP_S,
            weights=WEIGHTS,
        )
        killed_at = kill_sometime(session, chance)
        durable = field.assert_whole(run).step if field.state(run) else 0
        assert durable >= before, f"{run}, kill {kill}: went back from {before} to {durable}"
        summary.losses.append(loss_of(session.notes, killed_at, durable))
        advanced, before = advanced + (durable > before), durable
    field.call(field.train(before + EVERY, account="account_0", run=run, wait_s=60, step_s=STEP_S, weights=WEIGHTS))
    assert field.assert_whole(run).step >= before + EVERY, "beyond it if a killed one left a later step unsent here"
    assert advanced >= kills // 4, f"{run}: only {advanced} of {kills} had committed"


def keep(summary: Summary, seed: int, seconds: float) -> None:
    """Write the numbers down if they are wanted."""
    if path := os.environ.get("RELAY_KILLS_RECORD"):
        record = {"seed": seed, "seconds": round(seconds), "steps_between_commits": EVERY, "step_s": STEP_S}
        Path(path).write_text(json.dumps(record | summary.document(), indent=1) + "\n")
