"""Accuracy of a model on puzzles: every sequence gets halt_max_steps steps, forward only.

reference/trm.md 3 (evaluation mode) and 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trm.data.dataset import IGNORE, Batch, Judge
from trm.model import Inner


class Rows(Protocol):
    """Puzzles that can be read in order."""

    @property
    def size(self) -> int: ...

    def rows(self, start: int, count: int) -> Batch: ...


@dataclass(frozen=True)
class Accuracy:
    """Shares of `n` sequences that have labels."""

    exact_accuracy: float
    """Sequences with every labeled cell right."""
    cell_accuracy: float
    """Mean over sequences of the share of labeled cells that are right."""
    n: int
    judged: float | None = None
    """Sequences whose answer the judge accepts, although possibly not the label; None without a judge."""


@dataclass(frozen=True)
class EvalProgress:
    """After each chunk."""

    done: int
    """Sequences."""
    total: int
    seconds_each: float
    """Mean time of a sequence so far; times the size of a dataset, an estimate for all of it."""

    @property
    def seconds_left(self) -> float:
        """Estimate for the rest at the same speed."""
        return self.seconds_each * (self.total - self.done)


Seen = Callable[[int, Tensor, Tensor], None]
"""(first row, predicted tokens int64 (B, S), halting logits float32 (B,)), called for each chunk."""


class _Solver(nn.Module):
    """Some steps from the initial states, as one module that `functional_call` can reweight."""

    def __init__(self, inner: Inner, steps: int) -> None:
        super().__init__()
        self.inner, self.steps = inner, steps

    def forward(self, inputs: Tensor, puzzle_identifiers: Tensor) -> tuple[Tensor, Tensor]:
        """int32 (B, S), int32 (B,) -> logits (B, S, V) and halting logits (B,) after the last step."""
        inner = self.inner
        embedding = inner.embed(inputs, inner.puzzle_rows(puzzle_identifiers))
        z_H, z_L = (start.expand_as(embedding) for start in (inner.H_init, inner.L_init))
        for _ in range(self.steps * inner.arch.H_cycles):
            z_H, z_L = inner.cycle(z_H, z_L, embedding)
        logits, q = inner.heads(z_H)
        return logits, q[:, 0]


def solve(inner: Inner, batch: Batch, weights: Mapping[str, Tensor] | None = None) -> Tensor:
    """int64 (B, S): the predicted token of each cell. weights: parameters by name, or None for the model's."""
    return answers(inner, batch, weights)[0]


@torch.no_grad()
def answers(
    inner: Inner, batch: Batch, weights: Mapping[str, Tensor] | None = None, steps: int | None = None
) -> tuple[Tensor, Tensor]:
    """As `solve`, and float32 (B,): the halting logits. steps: of recursion; None for halt_max_steps."""
    solver = _Solver(inner, steps or inner.arch.halt_max_steps)
    arguments = (batch.inputs, batch.puzzle_identifiers)
    logits, q = solver(*arguments) if weights is None else functional_call(solver, dict(weights), arguments)
    return logits.argmax(-1), q.float()


def evaluate(
    inner: Inner,
    rows: Rows,
    count: int | None = None,
    weights: Mapping[str, Tensor] | None = None,
    chunk: int = 256,
    progress: Callable[[EvalProgress], None] = lambda _: None,
    judge: Judge | None = None,
    steps: int | None = None,
    seen: Seen | None = None,
) -> Accuracy:
    """Accuracy on the first `count` puzzles (None: all), at most `chunk` at a time; the model is left untouched.

    steps: of recursion; None for halt_max_steps. seen: gets the answers.

    The first chunk is small where time grows with it, so that `progress` can soon report how long the rest will take.
    """
    total = rows.size if count is None else min(count, rows.size)
    device = inner.H_init.device
    exact = cells = n = judged = 0.0
    began, done, first = time.monotonic(), 0, _first_chunk(total, chunk, device)
    while done < total:
        batch = _on(device, rows.rows(done, min(chunk, total - done) if done else first))
        predicted, q = answers(inner, batch, weights, steps)
        if seen is not None:
            seen(done, predicted, q)
        part = _score(predicted, batch.labels).tolist()
        judged += judge(batch.inputs, batch.labels, predicted).sum().item() if judge else 0
        exact, cells, n = exact + part[0], cells + part[1], n + part[2]
        done += len(batch.inputs)
        progress(EvalProgress(done, total, (time.monotonic() - began) / done))
    return Accuracy(exact / max(n, 1), cells / max(n, 1), int(n), judged / max(n, 1) if judge else None)


def _first_chunk(total: int, chunk: int, device: torch.device) -> int:
    """A twentieth of all; on a GPU a whole chunk, because a few rows take as long. An estimate from a few rows would
    be twenty times too long, and a session would skip every evaluation."""
    return min(chunk, total if device.type != "cpu" else -(-total // 20))


def _on(device: torch.device, batch: Batch) -> Batch:
    return Batch(batch.inputs.to(device), batch.labels.to(device), batch.puzzle_identifiers.to(device))


def _score(predicted: Tensor, labels: Tensor) -> Tensor:
    """float64 (3,): sequences exactly right, sum of shares of right cells, sequences with labels."""
    asked = labels != IGNORE
    counts = asked.sum(-1)
    right = ((predicted == labels) & asked).sum(-1)
    counted = counts > 0
    return torch.stack(
        (
            ((right == counts) & counted).sum().double(),
            (right.double() / counts.clamp(min=1)).sum(),
            counted.sum().double(),
        )
    )
