"""Continuations of a text, and how the guess of the next token changes with each refinement step: text and picture."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rich.text import Text

from relay.app.messages.wording import printable
from relay.app.plots.style import WIDTH, Palette, page, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMPT = 160
"""Letters of the text before a continuation, from its end."""


class Guess(Protocol):
    """A guess of the next token."""

    @property
    def token(self) -> str: ...

    @property
    def chance(self) -> float: ...


class Continued(Protocol):
    """The beginning of a row and its continuations."""

    @property
    def row(self) -> int:
        """From 1."""
        ...

    @property
    def prompt(self) -> str: ...

    @property
    def truth(self) -> str: ...

    @property
    def steps(self) -> Sequence[Sequence[Guess]]:
        """The best guesses after each step."""
        ...

    @property
    def greedy(self) -> str: ...

    @property
    def drawn(self) -> str: ...


@dataclass(frozen=True)
class Continuations:
    """Rows as the examples of a model (relay.app.models.plugin.Examples)."""

    rows: Sequence[Continued]
    weights: str = "raw"

    def document(self) -> Mapping[str, Any]:
        """The part of relay.examples/1 that holds them."""
        return {"continuations": [_document(row) for row in self.rows]}

    def text(self, width: int, utf8: bool) -> Iterator[Text]:
        """Text, guesses of the next token after each step, continuations."""
        for row in self.rows:
            yield Text(f"Row {row.row}", style="bold")
            yield from _folded("text", row.prompt[-PROMPT:], width)
            for number, guesses in enumerate(row.steps, 1):
                told = ", ".join(f"{printable(repr(guess.token))} {guess.chance:.0%}" for guess in guesses)
                yield Text(f"  after step {number}: {told}")
            for name, text in (("likeliest", row.greedy), ("drawn", row.drawn), ("in the text", row.truth)):
                yield from _folded(name, text, width)
            yield Text()

    def figure(self, title: str, colors: Palette) -> Figure:
        """The chances of the best guesses after each step."""
        figure = page(shown(title, "examples", WIDTH), 0.6 + 1.9 * len(self.rows), size=9)
        grid = figure.add_gridspec(len(self.rows), 1, hspace=0.9)
        for place, row in enumerate(self.rows):
            axes = figure.add_subplot(grid[place, 0])
            width = 0.8 / max(len(guesses) for guesses in row.steps)
            for number, guesses in enumerate(row.steps, 1):
                for rank, guess in enumerate(guesses):
                    x = number + (rank - (len(guesses) - 1) / 2) * width
                    axes.bar(x, guess.chance, width * 0.9, color=colors.ink, alpha=1 / (rank + 1))
                    axes.text(x, guess.chance, printable(repr(guess.token)), ha="center", va="bottom", size=7)
            axes.set(ylim=(0, 1.15), xticks=range(1, len(row.steps) + 1), xlabel="refinement step", ylabel="chance")
            axes.set_title(f"row {row.row}: …{printable(row.prompt[-40:])}", size=8, loc="left")
        return figure


def _folded(name: str, text: str, width: int) -> Iterator[Text]:
    """A text that a model or a stranger wrote, in lines below its name."""
    yield Text(f"  {name}:", style="dim")
    for line in textwrap.wrap(printable(text), max(20, width - 4)) or [""]:
        yield Text(f"    {line}")


def _document(row: Continued) -> dict[str, Any]:
    return {
        "row": row.row,
        "prompt": row.prompt,
        "truth": row.truth,
        "steps": [[{"token": guess.token, "chance": round(guess.chance, 6)} for guess in step] for step in row.steps],
        "likeliest": row.greedy,
        "drawn": row.drawn,
    }
