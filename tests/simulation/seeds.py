"""Which seeds a run of the tests lives through: the usual ones, one alone, or tens of thousands."""

from __future__ import annotations

import os

CI_SEEDS, CHUNKS = 300, 12
MOST = 50
"""Seeds of one test at most: many small tests are shared out evenly over any number of workers."""


def chunks() -> list[range]:
    """RELAY_SIM_SEED=123 replays one seed; RELAY_SIM_SEEDS=20000 is the long mode."""
    if alone := os.environ.get("RELAY_SIM_SEED"):
        return [range(int(alone), int(alone) + 1)]
    total = int(os.environ.get("RELAY_SIM_SEEDS", CI_SEEDS))
    size = min(MOST, -(-total // CHUNKS))
    return [range(begin, min(begin + size, total)) for begin in range(0, total, size)]


def name(seeds: range) -> str:
    """For the test's id."""
    return f"{seeds.start}-{seeds.stop - 1}"
