"""Examples on ARC as text: all grids at every width, each with its votes, and no gaps where grids differ in size."""

from __future__ import annotations

from itertools import pairwise

import pytest

from relay.app.models.gridtasks import SolvedPairs
from trm.data.arc.shown import ShownAttempt, ShownPair


def filled(color: int, rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    return ((color,) * columns,) * rows


@pytest.mark.parametrize("width", [20, 80, 300])
@pytest.mark.parametrize("truth", [None, filled(4, 6, 6)])
def test_every_grid_is_shown_whole(width: int, truth: tuple[tuple[int, ...], ...] | None) -> None:
    wrong = None if truth is None else False
    attempts = (ShownAttempt(filled(2, 30, 30), 3, 0.25, wrong), ShownAttempt(filled(3, 1, 1), 1, 0.5, wrong))
    pair = ShownPair(7, "some", filled(1, 2, 3), truth, attempts, 5)
    lines = [line.plain for line in SolvedPairs("raw", [pair]).text(width, True)]
    text = "\n".join(lines)
    assert all(part in text for part in ("Row 7", "some", "3 of 5 votes, 25%", "1 of 5 votes, 50%"))
    cells = [word for line in lines for word in line.split() if line.replace(" ", "").isdigit()]
    counts = {color: cells.count(color) for color in "1234"}
    assert counts["2"] == 900 and counts["4"] == (0 if truth is None else 36)
    assert not any(not one and not other for one, other in pairwise(lines))
