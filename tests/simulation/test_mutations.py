"""The judge is judged: the product broken in one place at a time, and how many seeds it takes to see it.

Each mutation remembers a seed that caught it. Where worlds are drawn otherwise by now, or with RELAY_SIM_MUTATIONS set
to the file for the table, or in the long mode, seeds are tried from 0 on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.simulation.mutations.base import ALL, Mutation
from tests.simulation.mutations.catalog import CAUGHT, HARMLESS
from tests.simulation.simulate import simulate

MOST = 150
"""Seeds until a mutation counts as not caught."""
ON_A_DISK = ("overwrite", "exists-is-ours", "entry-before-files", "delete-before-retire", "key-without-epoch")
SEARCHING = not {"RELAY_SIM_MUTATIONS", "RELAY_SIM_SEEDS"}.isdisjoint(os.environ)
DIRECTED = {(one.scene, one.pinned): one for one in CAUGHT if one.scene is not simulate}
"""Each world that was made for mutations, with one of them."""
Record = Callable[[str, object], None]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("broken", CAUGHT, ids=lambda one: one.name)
def test_the_judge_sees(broken: Mutation, record_property: Record) -> None:
    strange: dict[int, str] = {}
    for seed in range(MOST) if SEARCHING else (broken.pinned, *range(MOST)):
        verdict = broken.verdict(seed)
        if broken.caught(verdict):
            _record(record_property, broken, verdict, seed + 1)
            return
        if verdict:
            strange[seed] = verdict
    pytest.fail(f"{broken.name} ({broken.breaks}) lived through {MOST} seeds; other verdicts: {strange}")


@pytest.mark.parametrize("broken", [one for one in CAUGHT if one.name in ON_A_DISK], ids=lambda one: one.name)
def test_the_judge_sees_it_on_a_disk_as_in_memory(broken: Mutation) -> None:
    verdict = broken.verdict(broken.pinned, on="local")
    assert broken.caught(verdict)
    assert verdict == broken.verdict(broken.pinned, on="memory")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("broken", HARMLESS, ids=lambda one: one.name)
def test_another_rule_covers(broken: Mutation, record_property: Record) -> None:
    """That these do nothing shows the worth of the rules next to them."""
    for seed in range(20 if SEARCHING else 2):
        assert not broken.verdict(seed)
    _record(record_property, broken, broken.covered_by, 0)


@pytest.mark.parametrize("broken", DIRECTED.values(), ids=lambda one: one.name)
def test_a_directed_world_is_silent_without_its_mutation(broken: Mutation) -> None:
    broken.scene(broken.pinned, mutation=nullcontext)


def _record(record_property: Record, broken: Mutation, verdict: str, seeds: int) -> None:
    world = "drawn" if broken.scene is simulate else broken.scene.__name__.replace("_", " ")
    row = (ALL.index(broken), broken.name, broken.breaks, world, verdict, seeds, not broken.covered_by)
    record_property("mutation", row)
