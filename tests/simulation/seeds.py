"""Which seeds a run of the tests lives through, and on which stores: the usual ones, one alone, or tens of thousands.

RELAY_SIM_SEED=123 replays one seed, RELAY_SIM_SEEDS=20000 is the long mode, from seed RELAY_SIM_FIRST on; both on
memory, or on the backend that RELAY_SIM_STORE names (`stores.STORES`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.simulation.stores import MEMORY

Kind = Literal["", "sharing", "misreading"]
"""What is special in a world: checkpoints share tables, or much is read wrongly."""
CI_SEEDS = 300
SHARING = range(200, CI_SEEDS)
"""Those of them whose checkpoints share tables."""
MISREADING: dict[str, Sequence[int]] = {"memory": range(120, SHARING.start), "local": range(20, 26)}
"""Those in which much is read wrongly."""
FEW = (30, 168, 189, 205)
"""Short worlds for backends behind a server; together they meet four fifths of all kinds of trouble."""
CI: dict[str, Sequence[int]] = {
    MEMORY: range(MISREADING["memory"][0]),
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
    kind: Kind = ""

    def __str__(self) -> str:
        """For the test's id."""
        ends = dict.fromkeys((self.seeds[0], self.seeds[-1]))
        return "-".join([self.store, *([self.kind] if self.kind else []), *map(str, ends)])


def chunks(environ: Mapping[str, str] = os.environ) -> list[Chunk]:
    """All tests of this run; a seed that is asked for is lived through in each kind of world."""
    chosen = _chosen(environ)
    asked = chosen is not CI
    kinds: list[tuple[Kind, Mapping[str, Sequence[int]]]] = [
        ("", chosen),
        ("sharing", {MEMORY: chosen.get(MEMORY, ()) if asked else SHARING}),
        ("misreading", chosen if asked else MISREADING),
    ]
    return [
        Chunk(store, seeds[begin : begin + size], kind)
        for kind, of in kinds
        for store, seeds in of.items()
        for size in (MOST.get(store, MOST_OF_A_SERVER),)
        for begin in range(0, len(seeds), size)
    ]


def _chosen(environ: Mapping[str, str]) -> dict[str, Sequence[int]]:
    store = environ.get("RELAY_SIM_STORE")
    if alone := environ.get("RELAY_SIM_SEED"):
        return {store or MEMORY: (int(alone),)}
    if many := environ.get("RELAY_SIM_SEEDS"):
        first = int(environ.get("RELAY_SIM_FIRST", "0"))
        return {store or MEMORY: range(first, first + int(many))}
    return {store: CI.get(store, FEW)} if store else CI
