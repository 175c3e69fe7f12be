"""Which seeds a run of the tests lives through, and on which stores: the usual ones, one alone, or tens of thousands.

RELAY_SIM_SEED=123 replays one seed, RELAY_SIM_SEEDS=20000 is the long mode; both on memory, or on the backend that
RELAY_SIM_STORE names (`stores.STORES`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.stores import MEMORY

CI_SEEDS = 300
SHARING = range(200, CI_SEEDS)
"""Those of them whose checkpoints share tables."""
FEW = (30, 168, 189, 205)
"""Short worlds for backends behind a server; together they meet four fifths of all kinds of trouble."""
CI: dict[str, Sequence[int]] = {
    MEMORY: range(SHARING.start),
    "local": range(20),
    "s3-ministack": FEW,
    "dropbox": FEW,
    "drive": FEW,
}
"""By the names in `stores.STORES`."""
MOST = {MEMORY: 25, "local": 10}
"""Seeds of one test at most: small tests are shared out evenly over any number of workers."""
MOST_OF_A_SERVER = 1


@dataclass(frozen=True)
class Chunk:
    """The seeds of one test."""

    store: str
    seeds: Sequence[int]
    shares: bool = False
    """Whether checkpoints share tables in these worlds."""

    def __str__(self) -> str:
        """For the test's id."""
        ends = dict.fromkeys((self.seeds[0], self.seeds[-1]))
        return "-".join([self.store, *(["sharing"] if self.shares else []), *map(str, ends)])


def chunks(environ: Mapping[str, str] = os.environ) -> list[Chunk]:
    """All tests of this run; a seed that is asked for is lived through with shared tables and without."""
    chosen = _chosen(environ)
    shared = chosen.get(MEMORY, ()) if chosen is not CI else SHARING
    return [
        Chunk(store, seeds[begin : begin + size], shares)
        for store, seeds, shares in (
            *((store, seeds, False) for store, seeds in chosen.items()),
            (MEMORY, shared, True),
        )
        for size in (MOST.get(store, MOST_OF_A_SERVER),)
        for begin in range(0, len(seeds), size)
    ]


def _chosen(environ: Mapping[str, str]) -> dict[str, Sequence[int]]:
    store = environ.get("RELAY_SIM_STORE")
    if alone := environ.get("RELAY_SIM_SEED"):
        return {store or MEMORY: (int(alone),)}
    if many := environ.get("RELAY_SIM_SEEDS"):
        return {store or MEMORY: range(int(many))}
    return {store: CI.get(store, FEW)} if store else CI
