"""Draws puzzles and the answer after each step of the recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.models.puzzles import Cell, Puzzle, asks, blank, cells, named, share, solved, stretches, verdict
from relay.app.plots.paper import DARK, WIDTH, Palette, page, place, shown, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE, GAP, HEAD, CAPTION, LEGEND = 0.15, 0.16, 0.44, 0.5, 0.5
"""Inches: outer margin, between grids, for a puzzle's title, above a grid, for the legend."""
MOST_STEPS = 10
"""Number of answers to draw: the first, the last, and some in between."""
WALL, PATH = "#", "o"


@dataclass(frozen=True)
class Panel:
    """One grid and the text above it."""

    title: str
    about: str
    grid: str
    kinds: Sequence[Cell] | None
    """None: nothing is judged."""
    halts: bool = False


@dataclass(frozen=True)
class Tints:
    """Background and text colors of cells."""

    given: str
    wrong: str
    found: str
    right_ink: str
    wrong_ink: str


LIGHT_TINTS = Tints("#e6e9ed", "#fbdcc8", "#d3e8f5", "#005a8f", "#b34700")
DARK_TINTS = Tints("#333c47", "#5a2f14", "#173f57", "#7cc4ee", "#ffa36b")


def draw_puzzles(puzzles: Sequence[Puzzle], title: str, colours: Palette) -> Figure:
    """The picture; to be drawn inside `drawing`."""
    drawn = [(puzzle, panels(puzzle)) for puzzle in puzzles]
    columns = per_row(puzzles[0])
    size = (WIDTH - 2 * EDGE - (columns - 1) * GAP) / columns
    heights = [HEAD + -(-len(each) // columns) * (CAPTION + size) for _, each in drawn]
    figure = page(0.4 + sum(heights) + 0.2 * len(heights) + LEGEND)
    write(figure, EDGE, 0.14, shown(title, "examples", WIDTH - 2 * EDGE), color=colours.quiet)
    top = 0.4
    for (puzzle, each), height in zip(drawn, heights, strict=True):
        write(figure, EDGE, top + 0.12, f"row {puzzle.row}", fontsize=11, fontweight="bold")
        write(figure, EDGE, top + 0.33, verdict(puzzle), fontsize=8.5)
        for number, panel in enumerate(each):
            left = EDGE + (size + GAP) * (number % columns)
            down = top + HEAD + CAPTION + (CAPTION + size) * (number // columns)
            _panel(figure, puzzle, panel, (left, down, size), colours)
        top += height + 0.2
    _legend(figure, puzzles[0], top + 0.3, colours)
    return figure


def per_row(puzzle: Puzzle) -> int:
    """Number of grids in a row that are still readable."""
    return 4 if puzzle.side <= 4 else 3 if puzzle.side <= 12 else 2


def panels(puzzle: Puzzle) -> list[Panel]:
    """The question, answers that differ from the one before, and the solution if it was not found."""
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
    """The first, the last, and others at even distances."""
    if len(all_) <= MOST_STEPS:
        return list(all_)
    return [all_[round(number * (len(all_) - 1) / (MOST_STEPS - 1))] for number in range(MOST_STEPS)]


def _panel(figure: Figure, puzzle: Puzzle, panel: Panel, at: tuple[float, float, float], colours: Palette) -> None:
    left, top, size = at
    write(figure, left, top - 0.37, panel.title, fontsize=9, fontweight="bold")
    write(figure, left, top - 0.2, panel.about, fontsize=8, color=colours.quiet)
    axes = place(figure, left, top, size, size)
    axes.set(xlim=(0, puzzle.side), ylim=(puzzle.side, 0), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(edgecolor=colours.ink, linewidth=3.0 if panel.halts else 0.8)
    kinds = panel.kinds or [_unjudged(puzzle, question) for question in puzzle.question]
    (_sudoku if puzzle.box else _maze)(axes, puzzle, panel.grid, kinds, colours)


def _unjudged(puzzle: Puzzle, question: str) -> Cell:
    """Kind of a cell in the question and the solution: given, or not."""
    return Cell.right if question == blank(puzzle) else Cell.given


def _sudoku(axes: Axes, puzzle: Puzzle, grid: str, kinds: Sequence[Cell], colours: Palette) -> None:
    """Given: grey and bold; wrong: struck through; changed: framed. Colours only add to that."""
    side = puzzle.side
    for number in range(1, side):
        thick = 1.2 if number % puzzle.box == 0 else 0.4
        axes.axhline(number, color=colours.quiet, linewidth=thick, zorder=2)
        axes.axvline(number, color=colours.quiet, linewidth=thick, zorder=2)
    letter = 9.5 if side > 4 else 13
    for cell, (digit, kind) in enumerate(zip(grid, kinds, strict=True)):
        _square(axes, cell % side, cell // side, kind, colours)
        if digit != blank(puzzle):
            _digit(axes, (cell % side, cell // side), digit, kind, letter, colours)


def _square(axes: Axes, left: float, top: float, kind: Cell, colours: Palette) -> None:
    from matplotlib.patches import Rectangle

    tints = _tints(colours)
    fill = {Cell.given: tints.given, Cell.wrong: tints.wrong, Cell.changed: tints.wrong, Cell.found: tints.found}
    if kind in fill:
        axes.add_patch(Rectangle((left, top), 1, 1, facecolor=fill[kind], edgecolor="none", zorder=1))
    ink = tints.wrong_ink if kind in (Cell.wrong, Cell.changed) else tints.right_ink
    if kind in (Cell.found, Cell.changed):
        frame = Rectangle((left + 0.1, top + 0.1), 0.8, 0.8, facecolor="none", edgecolor=ink, linewidth=1.0, zorder=3)
        axes.add_patch(frame)
    if kind in (Cell.wrong, Cell.changed):
        axes.plot([left + 0.16, left + 0.84], [top + 0.84, top + 0.16], color=ink, linewidth=1.0, zorder=3)


def _digit(axes: Axes, at: tuple[float, float], digit: str, kind: Cell, size: float, colours: Palette) -> None:
    tints = _tints(colours)
    ink = {Cell.given: colours.ink, Cell.wrong: tints.wrong_ink, Cell.changed: tints.wrong_ink}.get(
        kind, tints.right_ink
    )
    weight = "bold" if kind is Cell.given else "normal"
    text: dict[str, Any] = {"color": ink, "fontsize": size, "fontweight": weight, "ha": "center", "zorder": 4}
    axes.text(at[0] + 0.5, at[1] + 0.53, digit, va="center", **text)


def _maze(axes: Axes, puzzle: Puzzle, grid: str, kinds: Sequence[Cell], colours: Palette) -> None:
    """Walls, and the path: right as squares (new ones with a point), wrong as crosses, missing as circles."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    side, free, tints = puzzle.side, blank(puzzle), _tints(colours)
    bad = (Cell.wrong, Cell.changed)
    groups: dict[str, list[tuple[int, int]]] = {}
    for cell, (letter, kind) in enumerate(zip(grid, kinds, strict=True)):
        name = ("missing" if letter == free else "wrong") if kind in bad else "found" if kind is Cell.found else letter
        if not (name == "found" and letter == free):
            groups.setdefault(name, []).append((cell % side, cell // side))
    squares = {WALL: colours.quiet, PATH: colours.people[0], "found": colours.people[0]}
    for name, fill in squares.items():
        made = [Rectangle(at, 1, 1) for at in groups.get(name, ())]
        axes.add_collection(PatchCollection(made, facecolor=fill, edgecolor=fill, linewidth=0.2, gid=f"cells:{name}"))
    unit = 72 * 2.7 / side
    _signs(axes, groups.get("found", ()), "o", (0.3 * unit) ** 2, facecolors=colours.paper, linewidths=0)
    _signs(axes, groups.get("wrong", ()), "x", (0.6 * unit) ** 2, color=tints.wrong_ink, linewidths=1.2)
    _signs(axes, groups.get("missing", ()), "o", (0.6 * unit) ** 2, facecolors="none", edgecolors=tints.wrong_ink)
    for name in "SG":
        for left, top in groups.get(name, ()):
            axes.text(left + 0.5, top + 0.53, name, ha="center", va="center", fontsize=0.85 * unit, fontweight="bold")


def _signs(axes: Axes, at: Sequence[tuple[int, int]], marker: str, size: float, **style: Any) -> None:
    if at:
        style = {"linewidths": 1.0, "zorder": 3, **style}
        axes.scatter([left + 0.5 for left, _ in at], [top + 0.5 for _, top in at], marker=marker, s=size, **style)


def _legend(figure: Figure, puzzle: Puzzle, top: float, colours: Palette) -> None:
    """The meaning of each look; a thick frame is where the model would halt."""
    words = {
        Cell.given: "given",
        Cell.right: "right",
        Cell.found: "now right",
        Cell.wrong: "wrong",
        Cell.changed: "changed",
    }
    text = "thick frame: it would halt"
    if puzzle.box:
        for number, (kind, word) in enumerate(words.items()):
            left = EDGE + (0.0, 0.66, 1.28, 2.12, 2.82)[number]
            axes = place(figure, left, top - 0.1, 0.2, 0.2)
            axes.set(xlim=(0, 1), ylim=(1, 0))
            axes.axis("off")
            _square(axes, 0, 0, kind, colours)
            _digit(axes, (0, 0), "4", kind, 9, colours)
            write(figure, left + 0.25, top, word, va="center", fontsize=8)
    else:
        text = "Squares: path, with a point where it is new; crosses: wrong; circles: missing; " + text
    write(figure, WIDTH - EDGE, top, text, va="center", ha="right", fontsize=8, color=colours.quiet)


def _tints(colours: Palette) -> Tints:
    return DARK_TINTS if colours is DARK else LIGHT_TINTS
