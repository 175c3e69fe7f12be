"""A model's answers after each step of its recursion, to look at.

The steps are those of trm/evaluate.py: every puzzle gets halt_max_steps of them, and the last answer counts.
reference/trm.md 3 (evaluation mode; the halting rule of c).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trm.data.dataset import IGNORE, Batch, Dataset, Judge
from trm.model import Inner

UNKNOWN = "?"
"""A token that is not a cell of the puzzle: padding."""
_AT_ONCE = 32
"""Puzzles."""


@dataclass(frozen=True)
class Trace:
    """Results of B puzzles of S cells in T steps."""

    answers: Tensor
    """int64 (T, B, S): the predicted token of each cell."""
    q_halt: Tensor
    """float32 (T, B): logits; training halts a sequence after the first step with one above 0."""


@dataclass(frozen=True)
class Attempt:
    """The answer after one step."""

    answer: str
    """A character a cell, row by row."""
    wrong: int
    """Cells to fill that differ from the label."""
    q_halt: float
    """Logit of the answer being right, by the model; training halts above 0."""
    accepted: bool | None
    """Accepted by the judge, although possibly not the label; None without a judge."""


@dataclass(frozen=True)
class Puzzle:
    """One row of a dataset and the model's answers."""

    row: int
    """From 1."""
    side: int
    box: int
    """Side of a Sudoku's box; 0 without boxes."""
    question: str
    label: str
    attempts: tuple[Attempt, ...]

    @property
    def halts_at(self) -> int:
        """The step after which training would have halted; the last one if the model never asks to."""
        return next((step for step, one in enumerate(self.attempts, 1) if one.q_halt > 0), len(self.attempts))


@dataclass(frozen=True)
class Examples:
    """Puzzles, and the weights whose answers they show."""

    weights: str
    """'averaged' or 'raw'."""
    puzzles: tuple[Puzzle, ...]


class _Steps(nn.Module):
    """The recursion as one module that `functional_call` can reweight."""

    def __init__(self, inner: Inner) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor, puzzle_identifiers: Tensor) -> tuple[Tensor, Tensor]:
        """int32 (B, S), int32 (B,) -> int64 (T, B, S) and float32 (T, B), as in Trace."""
        inner, answers, halts = self.inner, [], []
        embedding = inner.embed(inputs, inner.puzzle_rows(puzzle_identifiers))
        z_H, z_L = (start.expand_as(embedding) for start in (inner.H_init, inner.L_init))
        for _ in range(inner.arch.halt_max_steps):
            for _ in range(inner.arch.H_cycles):
                z_H, z_L = inner.cycle(z_H, z_L, embedding)
            logits, q = inner.heads(z_H)
            answers.append(logits.argmax(-1))
            halts.append(q[:, 0].float())
        return torch.stack(answers), torch.stack(halts)


@torch.no_grad()
def trace(inner: Inner, batch: Batch, weights: Mapping[str, Tensor] | None = None) -> Trace:
    """All steps of a batch. weights: parameters by name, or None for the model's."""
    steps, arguments = _Steps(inner), (batch.inputs, batch.puzzle_identifiers)
    answers, q_halt = steps(*arguments) if weights is None else functional_call(steps, dict(weights), arguments)
    return Trace(answers, q_halt)


def examples(
    inner: Inner,
    data: Dataset,
    rows: Sequence[int],
    characters: str,
    box: int,
    weights: Mapping[str, Tensor] | None = None,
) -> list[Puzzle]:
    """The model's answers to those rows (from 1) of the data, on the model's device.

    characters: of the tokens from 1 on. Raises ValueError for a row that does not exist.
    """
    odd = [row for row in rows if not 1 <= row <= data.size]
    if odd:
        raise ValueError(f"no row {odd[0]:,}: the rows are 1 to {data.size:,}")
    device, found = inner.H_init.device, list[Puzzle]()
    for at in range(0, len(rows), _AT_ONCE):
        some = rows[at : at + _AT_ONCE]
        batch = _chosen(data, some, device)
        traced = trace(inner, batch, weights)
        found += _puzzles(some, batch, traced, _Notation(f"{UNKNOWN}{characters}", box), data.judge)
    return found


def _chosen(data: Dataset, rows: Sequence[int], device: torch.device) -> Batch:
    """Those rows as one batch."""
    parts = [data.rows(row - 1, 1) for row in rows]
    return Batch(*(torch.cat([getattr(one, name) for one in parts]).to(device) for name in vars(parts[0])))


@dataclass(frozen=True)
class _Notation:
    """The notation of tokens."""

    characters: str
    box: int

    def text(self, tokens: Tensor) -> str:
        """int (S,) -> a character a cell."""
        known = self.characters
        return "".join(known[token] if 0 <= token < len(known) else UNKNOWN for token in tokens.tolist())


def _puzzles(
    rows: Sequence[int], batch: Batch, traced: Trace, notation: _Notation, judge: Judge | None
) -> list[Puzzle]:
    """The batch as plain values."""
    asked = batch.labels != IGNORE
    wrong = ((traced.answers != batch.labels) & asked).sum(-1)
    accepted = [judge(batch.inputs, batch.labels, answer) for answer in traced.answers] if judge else None
    side = math.isqrt(batch.inputs.shape[1])
    made = []
    for i, row in enumerate(rows):
        attempts = tuple(
            Attempt(
                answer=notation.text(traced.answers[step, i]),
                wrong=int(wrong[step, i]),
                q_halt=float(traced.q_halt[step, i]),
                accepted=bool(accepted[step][i]) if accepted else None,
            )
            for step in range(len(traced.answers))
        )
        question, label = notation.text(batch.inputs[i]), notation.text(batch.labels[i])
        made.append(Puzzle(row, side, notation.box, question, label, attempts))
    return made
