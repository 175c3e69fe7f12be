"""Adapting: it learns demonstrations alone, the same for given steps however it was interrupted, and ends in time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trm.competition.conftest import made
from trm.competition import adapt
from trm.competition.adapt import Adaptation, Adapted, Recipe
from trm.competition.layout import Layout, lay_out
from trm.competition.pace import Pace
from trm.competition.votestore import NoRoom
from trm.competition.weights import Trained
from trm.data.arc.submission import read_tasks

RECIPE = Recipe(steps=8, share=0.25, batch=4, lr=1e-2, warmup=1, threads=1)


class Stopped(Exception):
    """As a kill."""


@pytest.fixture
def layout(tasks: Path, trained: Trained) -> Layout:
    """Two of the five tasks are unknown."""
    raw = {f"new-{name}" if at < 2 else name: task for at, (name, task) in enumerate(read_tasks(tasks).items())}
    return lay_out(tasks, raw, trained, 2)


Run = Callable[..., Adapted]


@pytest.fixture
def run(layout: Layout, trained: Trained, tmp_path: Path) -> Run:
    """run(recipe, stop=None, clock=…): one process; stop: it is killed in that step."""

    def runs(recipe: Recipe = RECIPE, stop: int | None = None, **more: Any) -> Adapted:
        made = Adaptation(trained, layout, recipe, torch.device("cpu"), tmp_path / more.get("path", "a"), "tasks")
        losses = more.get("losses", [])

        def report(step: int, loss: float) -> None:
            losses.append(loss)
            if step == stop:
                raise Stopped

        pace = Pace(more.get("now", lambda: 0.0), more.get("deadline", float("inf")))
        return made.run(pace, lambda: more.get("votes_s", 0.0), report)

    return runs


def test_the_table_moves_first_and_then_everything(run: Run, layout: Layout, trained: Trained) -> None:
    table = run(Recipe(steps=4, share=1.0, batch=4, lr=1e-2, warmup=1, threads=1), path="t")
    assert table.steps == (4, 0) and not torch.equal(table.layout.table, layout.table)
    assert all(torch.equal(table.trained.trunk[name], value) for name, value in trained.trunk.items())
    both = run()
    assert both.steps == (2, 6)
    moved = [name for name, value in trained.trunk.items() if not torch.equal(both.trained.trunk[name], value)]
    assert len(moved) == len(list(trained.trunk)) - 2, "all but the initial states, which are never trained"
    assert both.trained.hash != trained.hash


@pytest.mark.slow
def test_it_learns_the_demonstrations(run: Run) -> None:
    losses = list[float]()
    run(Recipe(steps=60, share=0.1, batch=8, lr=1e-2, warmup=1, threads=1), losses=losses)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5]), losses


@pytest.mark.slow
def test_interrupted_anywhere_it_ends_at_the_same_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapt, "SAVE_S", -1.0)  # every step
    whole = run(path="whole")
    for stop in range(1, 8):
        with pytest.raises(Stopped):
            run(stop=stop)
    found = run()
    assert (found.steps, found.trained.hash) == (whole.steps, whole.trained.hash)
    assert run().trained.hash == whole.trained.hash, "a finished one is not trained again"


def test_a_saved_state_of_others_is_not_used(run: Run, layout: Layout, trained: Trained, tmp_path: Path) -> None:
    first = run()
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-7])
    assert run().trained.hash == first.trained.hash, "a cut file is begun anew"
    other = Adaptation(made(seed=1), layout, RECIPE, torch.device("cpu"), tmp_path / "a", "tasks")
    assert (
        other._phase == 0 and Adaptation(trained, layout, RECIPE, torch.device("cpu"), tmp_path / "a", "t")._phase == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deadline", "votes_s", "wanted", "most"),
    [(1e9, 0.0, 100.0, 100.0), (1e9, 1e6, 100.0, 100.0), (105.0, 40.0, 1e9, 60.0), (105.0, 90.0, 1e9, 50.0)],
)
def test_time_is_divided_between_adapting_and_votes(
    run: Run, deadline: float, votes_s: float, wanted: float, most: float
) -> None:
    """A second a step or more. The votes keep what they need, at most half of the time."""
    ticks = iter(range(10**6))
    recipe = Recipe(seconds=wanted, share=0.25, batch=1, warmup=1, threads=1)
    found = run(recipe, now=lambda: next(ticks) / 4, deadline=deadline, votes_s=votes_s)
    assert 0.75 * most <= found.seconds <= most + 2 and found.steps[0] > 0
    assert 0.15 <= found.steps[0] / sum(found.steps) <= 0.35


def test_steps_end_with_the_budget_and_go_on(run: Run) -> None:
    """A second a step, and three a process: the steps are many, the time is not."""
    whole = run(path="whole")
    found, processes = None, 0
    while found is None or not found.complete:
        found, processes = run(now=count(0, 0.5).__next__, deadline=9.0), processes + 1
        assert processes < 9
    assert processes > 1 and (found.steps, found.trained.hash) == (whole.steps, whole.trained.hash)


def test_a_saved_state_that_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(NoRoom, match="/a "):
        run()


def test_a_loss_that_is_not_finite_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Step:
        step = staticmethod(lambda state, batch: torch.full((7,), float("nan"), dtype=torch.float64))

    monkeypatch.setattr(adapt, "strategy_for", lambda *_: (None, Step))
    with pytest.raises(adapt.TaskError, match="--adapt-lr"):
        run()
