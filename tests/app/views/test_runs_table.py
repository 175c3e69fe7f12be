"""The table of runs at some widths: text to copy stays whole as long as there is room, and nothing is lost."""

from __future__ import annotations

import pytest

from relay.app.terminal.cells import Column, table
from relay.app.views.runstable import runs_text
from relay.core.errors import BadData
from relay.core.runs.registered import RegisteredRun

LONG = "sudoku_rotation_with_attention"
OURS = [
    RegisteredRun("sudoku4", LONG, 123_456_789),
    RegisteredRun("sudoku4", "practice", 1, trouble=BadData("damaged")),
]


def test_a_name_is_folded_after_everything_else_and_its_project_told_once() -> None:
    told = runs_text(OURS, 0.0, 72, True)
    assert f" {LONG} " in told and told.count("sudoku4") == 1
    both = runs_text([*OURS, RegisteredRun("maze", "practice", 2)], 0.0, 80, True)
    assert f"sudoku4/{LONG}" in both and "maze/practice" in both


@pytest.mark.parametrize("width", [60, 66, 80, 120])
def test_every_column_is_shown(width: int) -> None:
    rows = runs_text(OURS, 0.0, width, True).splitlines()
    assert max(map(len, rows)) <= width
    assert any("size" in row for row in rows) and any("MB" in row for row in rows)
    assert "unreadable" in "".join(rows)


@pytest.mark.parametrize("size", range(4, 60))
def test_a_heading_of_any_width_leaves_the_last_column_on_the_screen(size: int) -> None:
    """The state has a blank at which it can be folded; the first column is copied from."""
    columns = [Column("h" * size, ["short"], whole=True), Column("state", ["training (account_1)"])]
    shown = table([*columns, Column("size", ["123.5 MB"], right=True)], 80).splitlines()
    assert max(map(len, shown)) <= 80
    assert any("123.5" in row for row in shown) and any("MB" in row for row in shown)


def test_a_file_or_a_pipe_gets_whole_names() -> None:
    assert runs_text(OURS, 0.0, None, True).splitlines()[0].startswith(f"sudoku4/{LONG}  new")
