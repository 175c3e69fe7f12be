"""Puzzles that were never solved by any model: one 2x2-boxed grid, answered with so many wrong cells a step."""

from __future__ import annotations

from dataclasses import dataclass

QUESTION, LABEL = "12..3.12.1432.2.", "1234341221432321"


@dataclass(frozen=True)
class Tried:
    """An answer of one step."""

    answer: str
    wrong: int
    q_halt: float
    accepted: bool | None = None


@dataclass(frozen=True)
class Solved:
    """The grid; the first so many blanks are wrong after each step, and it asks to halt where none is."""

    row: int
    wrong: tuple[int, ...] = (3, 1, 0)
    side: int = 4
    box: int = 2
    question: str = QUESTION
    label: str = LABEL

    @property
    def attempts(self) -> tuple[Tried, ...]:
        return tuple(Tried(self._answer(count), count, -2.0 if count else 3.0) for count in self.wrong)

    @property
    def halts_at(self) -> int:
        return next((step for step, count in enumerate(self.wrong, 1) if not count), len(self.wrong))

    def _answer(self, count: int) -> str:
        bad = [place for place, letter in enumerate(self.question) if letter == "."][:count]
        return "".join(str(int(c) % 4 + 1) if place in bad else c for place, c in enumerate(self.label))
