"""A model's two attempts at ARC pairs, with their votes, to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from trm.data.arc.rows import ArcData
from trm.data.arc.votes import ATTEMPTS, Votes
from trm.evaluate import answers
from trm.model import Inner

MOST = 32
"""Variants that vote on a shown pair; a score takes all."""

Cells = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ShownAttempt:
    """One of the attempts."""

    grid: Cells
    votes: int
    chance: float
    """Mean chance of being right, by the model."""
    right: bool | None
    """None if the truth is not known."""


@dataclass(frozen=True)
class ShownPair:
    """A test input with the best answers of its variants."""

    row: int
    """From 1."""
    task: str
    question: Cells
    truth: Cells | None
    attempts: tuple[ShownAttempt, ...]
    """At most two, the best first; none if no variant was answered with a grid."""
    voters: int


@dataclass(frozen=True)
class ShownPairs:
    """Pairs, and the weights whose answers they show."""

    weights: str
    """'averaged' or 'raw'."""
    pairs: tuple[ShownPair, ...]


def shown_pairs(
    inner: Inner, data: ArcData, rows: Sequence[int], weights: Mapping[str, Tensor] | None
) -> list[ShownPair]:
    """The pairs of those rows (from 1). Raises ValueError for a row that does not exist."""
    odd = [row for row in rows if not 1 <= row <= data.size]
    if odd:
        raise ValueError(f"no row {odd[0]:,}: the rows are 1 to {data.size:,}")
    return [_shown(inner, data, row, weights) for row in rows]


def _shown(inner: Inner, data: ArcData, row: int, weights: Mapping[str, Tensor] | None) -> ShownPair:
    split, votes = data.split, Votes(data)
    pair = int(split.where(np.array([row - 1]))[0][0])
    group = int(np.searchsorted(split.pairs, pair, side="right")) - 1
    size, count = int(np.diff(split.pairs)[group]), int(np.diff(split.variants)[group])
    first = int(split.rows[group]) + pair - int(split.pairs[group])
    voters = min(count, MOST)
    for variant in range(voters):
        at = first + variant * size
        batch = data.rows(at, 1)
        tensors = [tensor.to(inner.H_init.device) for tensor in vars(batch).values()]
        votes.see(at, *answers(inner, type(batch)(*tensors), weights))
    truth = votes.truth(pair)
    found = votes.ranked(pair)[:ATTEMPTS]
    attempts = tuple(
        ShownAttempt(_cells(one.grid), one.votes, one.mean(exact=True), None if truth is None else one.key == truth)
        for one in found
    )
    shapes = split.shapes[pair].tolist()
    question, answer = (_cells(split.grids[pair, w, : shapes[w][0], : shapes[w][1]]) for w in (0, 1))
    name = data.names.of(int(split.identifiers[split.variants[group]]))
    return ShownPair(row, name, question, answer or None, attempts, voters)


def _cells(grid: np.ndarray) -> Cells:
    return tuple(tuple(row) for row in grid.tolist())
