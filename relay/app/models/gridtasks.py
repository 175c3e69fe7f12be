"""Tasks on colored grids: the input, two attempts with their votes, and the truth, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rich.text import Text

from relay.app.messages.wording import counted
from relay.app.models.puzzletext import beside
from relay.app.plots.style import WIDTH, Palette, page, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cells = Sequence[Sequence[int]]
COLORS = ("#000000", "#0074d9", "#ff4136", "#2ecc40", "#ffdc00", "#aaaaaa", "#f012be", "#ff851b", "#7fdbff", "#870c25")
"""The customary color of each number; a cell always shows its number too."""
BLACK = "."
"""Number 0 in text."""
HEAD, LEGEND = 0.55, 0.3
"""Inches above a row of grids, and below all."""


class Attempt(Protocol):
    """One of the two answers."""

    @property
    def grid(self) -> Cells: ...

    @property
    def votes(self) -> int: ...

    @property
    def chance(self) -> float:
        """Mean chance of being right, by the model."""
        ...

    @property
    def right(self) -> bool | None:
        """None if the truth is not known."""
        ...


class Pair(Protocol):
    """A test input and its answers."""

    @property
    def row(self) -> int:
        """From 1."""
        ...

    @property
    def task(self) -> str: ...

    @property
    def question(self) -> Cells: ...

    @property
    def truth(self) -> Cells | None: ...

    @property
    def attempts(self) -> Sequence[Attempt]: ...

    @property
    def voters(self) -> int:
        """Variants that were answered."""
        ...


@dataclass(frozen=True)
class SolvedPairs:
    """Pairs as the examples of a model (relay.app.models.plugin.Examples)."""

    weights: str
    """'averaged' or 'raw'."""
    pairs: Sequence[Pair]

    def document(self) -> Mapping[str, Any]:
        """The part of relay.examples/1 that holds them."""
        return {"pairs": [_document(pair) for pair in self.pairs]}

    def text(self, width: int, utf8: bool) -> Iterator[Text]:
        """Input, attempts and truth next to each other."""
        for pair in self.pairs:
            yield Text(f"Row {pair.row}: task {pair.task}, {verdict(pair)}.", style="bold")
            yield from beside([_block(title, grid) for title, grid in _panels(pair)], width)
        told = "Votes: answers of the task's variants, turned back. Percent: the model's own chance of being right."
        yield Text(f"{BLACK} is color 0. {told}", style="dim")

    def figure(self, title: str, colors: Palette) -> Figure:
        """The same as a picture."""
        from matplotlib.colors import BoundaryNorm, ListedColormap

        columns, size = 4, WIDTH / 4 - 0.2
        figure = page(shown(title, "examples", WIDTH), 0.4 + len(self.pairs) * (size + HEAD) + LEGEND, size=9)
        grid = figure.add_gridspec(len(self.pairs), columns)
        style: dict[str, Any] = {"cmap": ListedColormap(COLORS), "norm": BoundaryNorm([n - 0.5 for n in range(11)], 10)}
        for line, pair in enumerate(self.pairs):
            for column, (name, cells) in enumerate(_panels(pair)):
                axes = figure.add_subplot(grid[line, column])
                axes.imshow([list(row) for row in cells], **style)
                axes.set(xticks=[], yticks=[])
                axes.grid(False)
                axes.set_title(f"row {pair.row}: {pair.task}\n{name}" if column == 0 else name, size=8, loc="left")
                for down, row in enumerate(cells):
                    for across, cell in enumerate(row):
                        ink = colors.paper if cell in (0, 1, 9) else colors.ink
                        points = min(8.0, 40 * size / max(len(cells), len(row)))
                        axes.text(across, down, str(cell), color=ink, size=points, ha="center", va="center")
        return figure


def verdict(pair: Pair) -> str:
    """The result, in a few words."""
    if not pair.attempts:
        return "no answer holds a grid"
    if pair.truth is None:
        return "the truth is not known"
    right = [number for number, one in enumerate(pair.attempts, 1) if one.right]
    return f"solved by attempt {right[0]}" if right else "not solved"


def _panels(pair: Pair) -> list[tuple[str, Cells]]:
    """Titles and grids."""
    attempts = [
        (f"attempt {number}: {one.votes:,} of {counted(pair.voters, 'vote')}, {one.chance:.0%}{_mark(one)}", one.grid)
        for number, one in enumerate(pair.attempts, 1)
    ]
    return [("input", pair.question), *attempts, *([("truth", pair.truth)] if pair.truth else [])]


def _mark(one: Attempt) -> str:
    return "" if one.right is None else ", right" if one.right else ", wrong"


def _block(title: str, grid: Cells) -> list[Text]:
    lines = [Text(title)]
    for row in grid:
        line = Text()
        for cell in row:
            line.append(f"{cell or BLACK} ", f"bold {COLORS[cell]}" if cell else "dim")
        lines.append(line)
    return lines


def _document(pair: Pair) -> dict[str, Any]:
    return {
        "row": pair.row,
        "task": pair.task,
        "input": pair.question,
        "truth": pair.truth,
        "voters": pair.voters,
        "attempts": [
            {"grid": one.grid, "votes": one.votes, "chance": round(one.chance, 6), "right": one.right}
            for one in pair.attempts
        ],
    }
