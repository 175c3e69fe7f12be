"""Puzzles, a model's answers to them, and the result in each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import Any, Protocol

from relay.app.messages.wording import counted

UNASKED = "?"
"""In a label: any answer is right. In an answer: not a cell."""


class ShownAttempt(Protocol):
    """The answer after one step of the recursion."""

    @property
    def answer(self) -> str:
        """A character a cell, row by row."""
        ...

    @property
    def wrong(self) -> int:
        """Cells that differ from the label."""
        ...

    @property
    def q_halt(self) -> float:
        """Logit of being right, by the model; above 0 training halts."""
        ...

    @property
    def accepted(self) -> bool | None:
        """Right, although possibly not the label; None if only the label is right."""
        ...


class ShownPuzzle(Protocol):
    """One row and the model's answers."""

    @property
    def row(self) -> int:
        """From 1."""
        ...

    @property
    def side(self) -> int:
        """Cells in a line."""
        ...

    @property
    def box(self) -> int:
        """Side of a Sudoku's box; 0 for a maze."""
        ...

    @property
    def question(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def attempts(self) -> Sequence[ShownAttempt]: ...

    @property
    def halts_at(self) -> int:
        """The step after which training would have halted."""
        ...


class Cell(Enum):
    """The result in a cell after one step."""

    given = "given"
    right = "right"
    found = "right since this step"
    wrong = "wrong"
    changed = "wrong, and another answer than before"


def cells(puzzle: ShownPuzzle, step: int) -> list[Cell]:
    """Kinds of the cells after that step (from 1); the first step has no changes."""
    now = puzzle.attempts[step - 1].answer
    before = puzzle.attempts[max(0, step - 2)].answer
    return [_cell(*each, blank(puzzle)) for each in zip(puzzle.question, puzzle.label, before, now, strict=True)]


def blank(puzzle: ShownPuzzle) -> str:
    """The character of an empty cell."""
    return "." if puzzle.box else " "


def _cell(question: str, label: str, before: str, now: str, free: str) -> Cell:
    if now != label and label != UNASKED:
        return Cell.wrong if now == before else Cell.changed
    if question != free:
        return Cell.given
    return Cell.right if now == before else Cell.found


def stretches(puzzle: ShownPuzzle) -> list[tuple[int, int]]:
    """(first, last) of neighbouring steps with the same answer."""
    found, at = [], 1
    for _, same in groupby(one.answer for one in puzzle.attempts):
        length = len(list(same))
        found.append((at, at + length - 1))
        at += length
    return found


def named(stretch: tuple[int, int]) -> str:
    """step 3, steps 4 to 8."""
    first, last = stretch
    return f"step {first}" if first == last else f"steps {first} to {last}"


def solved(puzzle: ShownPuzzle) -> bool:
    """Whether the last answer is right: the label, or as good."""
    last = puzzle.attempts[-1]
    return not last.wrong or bool(last.accepted)


def likely(q_halt: float) -> float:
    """The logit as a probability; NaN stays NaN."""
    if math.isnan(q_halt):
        return q_halt
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, q_halt))))


def share(q_halt: float) -> str:
    """The probability as text, like 37%; a question mark for NaN."""
    chance = likely(q_halt)
    return "?" if math.isnan(chance) else f"{chance:.0%}"


def asks(puzzle: ShownPuzzle) -> bool:
    """Whether the model asks to halt after any step."""
    return any(one.q_halt > 0 for one in puzzle.attempts)


def verdict(puzzle: ShownPuzzle) -> str:
    """The result, in a sentence."""
    last = puzzle.attempts[-1]
    steps = len(puzzle.attempts)
    if not solved(puzzle):
        end = f"not solved, {last.wrong} of {len(puzzle.label)} cells wrong after {counted(steps, 'step')}"
    elif last.wrong:
        end = f"solved by another path as short, after {counted(steps, 'step')}"
    else:
        right = next(first for first, _ in reversed(stretches(puzzle)))
        end = f"solved, right from step {right} on"
    return f"{end}; {f'it would halt after step {puzzle.halts_at}' if asks(puzzle) else 'it never asks to halt'}"


def document(puzzle: ShownPuzzle) -> dict[str, Any]:
    """One of `puzzles` in relay.examples/1."""
    return {
        "row": puzzle.row,
        "side": puzzle.side,
        "question": puzzle.question,
        "label": puzzle.label,
        "solved": solved(puzzle),
        "halts_at": puzzle.halts_at,
        "steps": [
            {
                "answer": one.answer,
                "wrong": one.wrong,
                "q_halt": round(one.q_halt, 4) if math.isfinite(one.q_halt) else None,
                "accepted": one.accepted,
            }
            for one in puzzle.attempts
        ],
    }
