"""Solved puzzles, described so that no reader needs colors, and drawn."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from relay.app.models.puzzleplot import MOST_STEPS, draw_puzzles, panels
from relay.app.models.puzzles import Cell, cells, likely, stretches, verdict
from relay.app.models.puzzletext import MAZE_LEGEND, STYLES, SUDOKU_LEGEND, legend, page
from relay.app.plots.style import DARK, LIGHT, Palette, drawing, encoded
from relay.app.terminal.cells import plain, printed
from tests.app.plots.drawn import assert_readable
from tests.app.puzzles import Solved, Tried

TOLD = """\
Row 1: solved, right from step 3 on; it would halt after step 3.
step       1     2     3
wrong      3     1     0
halt     12%   12%   95%

question     step 1       step 2       step 3
1 2 | . .    1.2.| 4x1x   1.2.| 4x4+   1.2.| 3+4
3 . | 1 2    3.1x| 1.2.   3.4+| 1.2.   3.4 | 1.2.
----+-----   ----+-----   ----+-----   ----+-----
. 1 | 4 3    2 1.| 4.3.   2 1.| 4.3.   2 1.| 4.3.
2 . | 2 .    2.3 | 2.1    2.3 | 2.1    2.3 | 2.1
"""
MAZE = Solved(1, side=4, box=0, question="S   ### #G  ####", label="Sooo###o#Goo####")


class Walked(Solved):
    """A maze: the path is missed, then partly walked and partly left, then found."""

    @property
    def attempts(self) -> tuple[Tried, ...]:  # type: ignore[override]
        tries = ("S   ###o#G  ####", "Soo o##o#Goo####", MAZE.label)
        return tuple(
            Tried(one, sum(a != b for a, b in zip(one, MAZE.label, strict=True)), 1.0, one == MAZE.label)
            for one in tries
        )


WALKED = Walked(1, side=4, box=0, question=MAZE.question, label=MAZE.label)


def test_marks_tell_cells_apart_without_colours() -> None:
    assert plain(page([Solved(1)], 80, False)).startswith(TOLD)
    assert plain(page([Solved(1)], 80, False)).isascii()
    narrow = plain(page([Solved(1)], 30, False)).splitlines()
    assert max(map(len, narrow[1:-1])) <= 30 and "step 3" in "\n".join(narrow)


def test_colours_add_to_the_text_and_change_none_of_it() -> None:
    out = io.StringIO()
    printed(
        page([Solved(1)], 80, False), Console(file=out, force_terminal=True, color_system="truecolor", no_color=False)
    )
    assert "\x1b[" in out.getvalue()
    assert plain(page([Solved(1)], 80, False)).splitlines()[0] in out.getvalue()
    assert len(set(STYLES.values())) == len(Cell)


def test_a_maze_shows_the_path_and_what_is_amiss() -> None:
    lines = plain(page([WALKED], 80, False)).splitlines()
    assert lines[6:10] == [
        "S          S...       S++.       Soo+",
        "###        ###o       *##o       ###o",
        "#G         #G..       #G++       #Goo",
        "####       ####       ####       ####",
    ]
    assert "█" in plain(page([WALKED], 80, True))


def test_no_mark_of_the_legend_is_parted_from_what_it_means() -> None:
    for marks, puzzle in ((SUDOKU_LEGEND, Solved(1)), (MAZE_LEGEND, WALKED)):
        lines = plain(page([puzzle], 80, False)).splitlines()
        assert max(map(len, lines)) <= 80
        assert all(mark in "\n".join(lines[-2:]) for mark in marks)
    assert len(legend(SUDOKU_LEGEND, 120)) == 1 and len(legend(SUDOKU_LEGEND, 20)) == 4


def test_what_became_of_each_cell() -> None:
    one = Solved(1, (3, 1, 0))
    first, second, third = (cells(one, step) for step in (1, 2, 3))
    asked = [place for place, letter in enumerate(one.question) if letter == "."]
    assert [first[place] for place in asked] == [Cell.wrong] * 3 + [Cell.right] * 3
    assert [second[place] for place in asked] == [Cell.wrong, Cell.found, Cell.found] + [Cell.right] * 3
    assert [third[place] for place in asked] == [Cell.found] + [Cell.right] * 5
    assert {first[place] for place in range(16) if place not in asked} == {Cell.given}
    assert cells(WALKED, 2)[4] is Cell.changed
    assert stretches(Solved(1, (2, 2, 0, 0, 1))) == [(1, 2), (3, 4), (5, 5)]


def test_a_verdict_is_true_of_the_last_answer() -> None:
    said = [verdict(Solved(1, wrong)) for wrong in ((2, 0, 0), (0, 2), (2, 2))]
    assert [re.findall(r"\d+", text) for text in said] == [["2", "2"], ["2", "16", "2", "1"], ["2", "16", "2"]]
    assert [text.startswith("solved") for text in said] == [True, False, False]
    assert likely(0.0) == 0.5 and likely(1e9) == 1.0 and likely(-1e9) == pytest.approx(0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("puzzles", "colors"), [([Solved(1), Solved(2, (2, 2))], LIGHT), ([WALKED], DARK)], ids=["sudoku", "maze"]
)
def test_a_picture_is_the_same_file_twice_and_no_text_lies_on_another(puzzles: list[Solved], colors: Palette) -> None:
    def once() -> bytes:
        with drawing(colors):
            figure = draw_puzzles(puzzles, "$x_1$ " * 90, colors)
            assert_readable(figure)
            return encoded(figure, ".svg", "t")

    assert once() == once()


def test_a_picture_holds_every_digit_of_every_answer() -> None:
    with drawing(LIGHT):
        figure = draw_puzzles([Solved(1)], "t", LIGHT)
    grids = ["".join(text.get_text() for text in axes.texts if len(text.get_text()) == 1) for axes in figure.axes]
    one = Solved(1)
    assert grids[:4] == [one.question.replace(".", ""), *(attempt.answer for attempt in one.attempts)]
    long = Solved(1, tuple(range(5, -1, -1)) * 3)
    shown = [panel.title for panel in panels(long)]
    assert len(shown) == MOST_STEPS + 1 and (shown[1], shown[-1]) == ("step 1", "step 18")
    assert [panel.halts for panel in panels(Solved(1, (2, 0, 1, 0)))] == [False, False, True, False, False]
    assert not any(panel.halts for panel in panels(Solved(1, (2, 2))))
