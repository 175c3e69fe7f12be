"""Draws puzzles and the answers after each step of the recursion; knows no model and no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.models.puzzles import Cell, ShownPuzzle, asks, blank, cells, named, share, solved, stretches, verdict
from relay.app.plots.style import WIDTH, Palette, page, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE, CAPTION, HEAD, LEGEND = 0.4, 0.52, 0.4, 0.45
"""Inches: left and right together, around a grid, of a puzzle's title, of the legend."""
MOST_STEPS = 10
"""Answers of a puzzle that are drawn: the first, the last, and some between."""
WALL, PATH = "#", "o"
LEGENDS = {
    Cell.given: "given",
    Cell.right: "right",
    Cell.found: "now right",
    Cell.wrong: "wrong",
    Cell.changed: "changed",
}
WRONG = (Cell.wrong, Cell.changed)
HALTS = "thick frame: it would halt"
MAZE = f"Squares: path, with a point where it is new; crosses: wrong; circles: missing; {HALTS}"


@dataclass(frozen=True)
class Panel:
    """One grid with its title, and the numbers below it."""

    title: str
    about: str
    grid: str
    kinds: Sequence[Cell] | None
    """None: nothing is judged."""
    halts: bool = False


def draw_puzzles(puzzles: Sequence[ShownPuzzle], title: str, colors: Palette) -> Figure:
    """The picture; within `drawing`."""
    columns = per_row(puzzles[0])
    size = (WIDTH - EDGE) / columns - 0.1
    drawn = [(puzzle, panels(puzzle)) for puzzle in puzzles]
    lines = [
        (puzzle, each[at : at + columns], at == 0) for puzzle, each in drawn for at in range(0, len(each), columns)
    ]
    heights = [size + CAPTION + HEAD * first for _, _, first in lines]
    figure = page(shown(title, "examples", WIDTH - EDGE), 0.4 + sum(heights) + LEGEND, size=9, weight="normal")
    grid = figure.add_gridspec(len(lines) + 1, columns, height_ratios=[*heights, LEGEND])
    for row, (puzzle, each, first) in enumerate(lines):
        for column, panel in enumerate(each):
            axes = figure.add_subplot(grid[row, column])
            _panel(axes, puzzle, panel, size, colors)
            if first and column == 0:
                place: dict[str, Any] = {"xytext": (0, 24), "xycoords": "axes fraction", "textcoords": "offset points"}
                text = f"row {puzzle.row}: {verdict(puzzle)}"
                axes.annotate(text, (0, 1), **place, size=8.5, weight="bold", in_layout=False)
    _legend(figure.add_subplot(grid[-1, :]), puzzles[0], colors)
    return figure


def per_row(puzzle: ShownPuzzle) -> int:
    """Grids next to each other that can still be read."""
    return 4 if puzzle.side <= 4 else 3 if puzzle.side <= 12 else 2


def panels(puzzle: ShownPuzzle) -> list[Panel]:
    """The question, answers that differ from the one before, and the solution where it was not found."""
    made = [Panel("question", "", puzzle.question, None)]
    for stretch in _some(stretches(puzzle)):
        one = puzzle.attempts[stretch[0] - 1]
        halts = asks(puzzle) and stretch[0] <= puzzle.halts_at <= stretch[1]
        about = f"{one.wrong} wrong, halt {share(one.q_halt)}"
        made.append(Panel(named(stretch), about, one.answer, cells(puzzle, stretch[0]), halts))
    if not solved(puzzle):
        made.append(Panel("solution", "", puzzle.label, None))
    return made


def _some(all_: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first, the last, and others evenly between them."""
    if len(all_) <= MOST_STEPS:
        return list(all_)
    return [all_[round(number * (len(all_) - 1) / (MOST_STEPS - 1))] for number in range(MOST_STEPS)]


def _panel(axes: Axes, puzzle: ShownPuzzle, panel: Panel, size: float, colors: Palette) -> None:
    """`size`: of a grid, in inches."""
    axes.set_title(panel.title, size=9)
    axes.set_xlabel(panel.about, size=8, loc="left")
    axes.set(xlim=(0, puzzle.side), ylim=(puzzle.side, 0), xticks=[], yticks=[], aspect="equal")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=colors.ink, linewidth=3.0 if panel.halts else 0.8)
    kinds = panel.kinds or [Cell.right if cell == blank(puzzle) else Cell.given for cell in puzzle.question]
    draw, unit = _sudoku if puzzle.box else _maze, 72 * size / puzzle.side
    draw(axes, puzzle, panel.grid, kinds, unit, colors)


def _sudoku(axes: Axes, puzzle: ShownPuzzle, grid: str, kinds: Sequence[Cell], unit: float, colors: Palette) -> None:
    """Given: gray and bold; wrong: struck through; changed: framed. Colors only add to that. `unit`: points a cell."""
    side = puzzle.side
    for number in range(1, side):
        style: dict[str, Any] = {"color": colors.quiet, "linewidth": 0.4 if number % puzzle.box else 1.2, "zorder": 2}
        axes.axhline(number, **style)
        axes.axvline(number, **style)
    for cell, (digit, kind) in enumerate(zip(grid, kinds, strict=True)):
        _cell(
            axes,
            (cell % side, cell // side),
            "" if digit == blank(puzzle) else digit,
            kind,
            min(13, 0.6 * unit),
            colors,
        )


def _cell(axes: Axes, at: tuple[float, float], digit: str, kind: Cell, size: float, colors: Palette) -> None:
    from matplotlib.patches import Rectangle

    left, top = at
    ink = colors.ink if kind is Cell.given else colors.wrong if kind in WRONG else colors.right
    if kind is not Cell.right:
        fill = colors.rule if kind is Cell.given else (ink, 0.2)
        axes.add_patch(Rectangle(at, 1, 1, facecolor=fill, edgecolor="none", zorder=1))
    if kind in (Cell.found, Cell.changed):
        frame = Rectangle((left + 0.1, top + 0.1), 0.8, 0.8, facecolor="none", edgecolor=ink, linewidth=1.0, zorder=3)
        axes.add_patch(frame)
    if kind in WRONG:
        axes.plot([left + 0.16, left + 0.84], [top + 0.84, top + 0.16], color=ink, linewidth=1.0, zorder=3)
    weight = "bold" if kind is Cell.given else "normal"
    axes.text(left + 0.5, top + 0.53, digit, color=ink, size=size, weight=weight, ha="center", va="center", zorder=4)


def _maze(axes: Axes, puzzle: ShownPuzzle, grid: str, kinds: Sequence[Cell], unit: float, colors: Palette) -> None:
    """Walls, and the path: right as squares (new ones with a point), wrong as crosses, missing as circles."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    groups: dict[str, list[tuple[int, int]]] = {}
    for cell, (letter, kind) in enumerate(zip(grid, kinds, strict=True)):
        wrong = "missing" if letter == blank(puzzle) else "wrong"
        name = wrong if kind in WRONG else "found" if kind is Cell.found and letter == PATH else letter
        groups.setdefault(name, []).append((cell % puzzle.side, cell // puzzle.side))
    for name, fill in {WALL: colors.quiet, PATH: colors.people[0], "found": colors.people[0]}.items():
        squares = [Rectangle(at, 1, 1) for at in groups.get(name, ())]
        axes.add_collection(
            PatchCollection(squares, facecolor=fill, edgecolor=fill, linewidth=0.2, gid=f"cells:{name}")
        )
    signs: dict[str, dict[str, Any]] = {
        "found": {"marker": "o", "s": (0.3 * unit) ** 2, "facecolors": colors.paper, "linewidths": 0},
        "wrong": {"marker": "x", "s": (0.6 * unit) ** 2, "color": colors.wrong, "linewidths": 1.2},
        "missing": {"marker": "o", "s": (0.6 * unit) ** 2, "facecolors": "none", "edgecolors": colors.wrong},
    }
    for name, style in signs.items():
        for left, top in groups.get(name, ()):
            axes.scatter(left + 0.5, top + 0.5, **{"linewidths": 1.0, "zorder": 3, **style})
    for name in "SG":
        for left, top in groups.get(name, ()):
            axes.text(left + 0.5, top + 0.53, name, ha="center", va="center", size=0.7 * unit, weight="bold")


def _legend(axes: Axes, puzzle: ShownPuzzle, colors: Palette) -> None:
    """The meaning of each look."""
    axes.set(xlim=(0, 28), ylim=(1, 0), aspect="equal")
    axes.axis("off")
    for number, (kind, word) in enumerate(LEGENDS.items() if puzzle.box else ()):
        _cell(axes, (3.9 * number, 0), "4", kind, 9, colors)
        axes.text(3.9 * number + 1.2, 0.53, word, va="center", size=8)
    axes.text(28, 0.53, HALTS if puzzle.box else MAZE, va="center", ha="right", size=8, color=colors.quiet)
