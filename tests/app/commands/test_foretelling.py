"""Rows that have warmed up predict an evaluation's duration, as a range that holds the actual one."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.app.commands.weights.evaluating import about, foretell
from tests.app.cli import Desk, Toy


class Machine:
    """Evaluates rows at so many seconds each, and so many for each call; the first call warms up."""

    def __init__(self, row_s: float, call_s: float, warm_up_s: float) -> None:
        self.now, self.row_s, self.call_s, self.warm_up_s = 0.0, row_s, call_s, warm_up_s
        self.asked: list[int] = []

    def evaluate(self, rows: int) -> None:
        self.now += self.call_s + rows * self.row_s + (0.0 if self.asked else self.warm_up_s)
        self.asked.append(rows)


@pytest.mark.parametrize("row_s", [0.001, 0.078, 3.0])
@pytest.mark.parametrize("call_s", [0.0, 0.05])
@pytest.mark.parametrize("rows", [1, 2, 7, 1000, 10_000])
def test_the_range_holds_what_it_takes_and_warming_up_is_no_part_of_it(row_s: float, call_s: float, rows: int) -> None:
    machine = Machine(row_s, call_s, warm_up_s=30.0)
    least, most = foretell(machine.evaluate, rows, lambda: machine.now)
    assert 0.99 * least * rows <= call_s + row_s * rows <= 1.01 * most * rows
    assert most <= 2 * least * 1.01
    assert max(machine.asked) <= rows


def test_foretelling_ends_soon() -> None:
    machine = Machine(0.078, 0.0, warm_up_s=0.0)
    foretell(machine.evaluate, 1000, lambda: machine.now)
    assert machine.now < 6


def test_a_range_that_reads_the_same_at_both_ends_is_told_once() -> None:
    assert about((0.0779, 0.0781), 1000) == "about 78 s"
    assert about((0.05, 0.15), 1000) == "50 s to 2 min"


def test_a_sample_that_was_all_rows_is_not_evaluated_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, plain, asked = Desk(tmp_path), Toy.evaluate, list[int | None]()
    desk.train(3, "evaluation.every_commits=0")

    def counted(self: Toy, split: str, rows: int | None) -> dict[str, float]:
        asked.append(rows)
        return plain(self, split, rows)

    monkeypatch.setattr(Toy, "evaluate", counted)
    shown = desk("evaluate", "--run", "r", "--rows", "1").out
    assert asked == [1, 1], "one to warm up, one to tell the time and the accuracy by"
    assert "exact_accuracy 0.3%" in shown
