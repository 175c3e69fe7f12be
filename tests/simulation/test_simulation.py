"""Whole worlds of sessions, machines and weather, each from one seed, under a judge that sees every effect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation import seeds
from tests.simulation.simulate import play
from tests.simulation.stores import like
from tests.simulation.trace import Summary, Violation, told
from tests.storage.s3.servers import ENVIRONMENT, UNWANTED

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nobodys_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks with the credentials of the person who runs it."""
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", seeds.chunks(), ids=str)
def test_no_seed_breaks_an_invariant(chunk: seeds.Chunk, record_property: Callable[[str, object], None]) -> None:
    """I1–I9 after every effect on the store; at the end a newcomer finishes each run, the state as if unbroken.

    On every other store a seed goes the same way, action by action, as on a memory that promises the same (`like`).
    """
    total, broken = Summary(chunk.store), []
    for seed in chunk.seeds:
        try:
            total = total + live(seed, chunk.store, chunk.kind)
        except Violation as violation:
            total = total + Summary(chunk.store, seeds=1, violations=1)
            broken.append(violation)
    record_property("simulation", total.plain())
    if broken:
        pytest.fail(told(broken), pytrace=False)


def live(seed: int, store: str, kind: seeds.Kind) -> Summary:
    summary, trace = play(seed, on=store, kind=kind)
    if store != like(store):
        trace.compare(play(seed, on=like(store), kind=kind)[1])
    return summary


def test_a_seed_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = "from tests.simulation.simulate import play; print(play(7)[1].digest())"
    environ = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-W", "error", "-c", code]
    there = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == play(7)[1].digest()


def test_a_seed_repeats_itself_action_by_action() -> None:
    (_, one), (_, two) = play(7), play(7)
    assert len(one.actions) > 100
    assert one.actions == two.actions
