"""Whole worlds of sessions, machines and weather, each from one seed, under a judge that sees every effect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation import seeds
from tests.simulation.simulate import play, simulate
from tests.simulation.trace import Summary, Violation, told

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", seeds.chunks(), ids=seeds.name)
def test_no_seed_breaks_an_invariant(chunk: range, record_property: Callable[[str, object], None]) -> None:
    """I1–I9 after every effect on the store; at the end a newcomer finishes each run, the state as if unbroken."""
    total, broken = Summary(), []
    for seed in chunk:
        try:
            total = total + simulate(seed)
        except Violation as violation:
            total = total + Summary(seeds=1, violations=1)
            broken.append(violation)
    record_property("simulation", total.plain())
    if broken:
        pytest.fail(told(broken), pytrace=False)


def test_a_seed_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = "from tests.simulation.simulate import play; print(play(7)[1].digest())"
    environ = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-W", "error", "-c", code]
    there = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == play(7)[1].digest()


def test_a_seed_repeats_itself_action_by_action() -> None:
    (_, one), (_, two) = play(7), play(7)
    assert one.count > 100
    assert (one.count, one.digest()) == (two.count, two.digest())
