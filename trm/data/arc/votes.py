"""Scores answers as the competition does: crop, undo the variant, count equal grids, take the best two.

Variants of one test input are so many votes (reference/arc.md 5, trm.md 12). The result does not depend on the order of
rows: means are exact sums rounded once, and equal candidates are ordered by their hash.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from torch import Tensor

from trm.data.arc import submission
from trm.data.arc.rows import ArcData
from trm.data.arc.submission import RawTask, Submission
from trm.data.arc.tasks import COLORS
from trm.presets import KS

ATTEMPTS = 2
_WORST, _LARGEST = -700.0, 700.0
"""Halting logits beyond change no chance that a float can hold."""


@dataclass
class Candidate:
    """One grid that was answered to a test input."""

    grid: np.ndarray
    chances: array[float] = field(default_factory=lambda: array("d"))
    """Chance of being right by the model, of each vote."""

    @property
    def votes(self) -> int:
        """Rows that answered it."""
        return len(self.chances)

    @property
    def key(self) -> bytes:
        """Sizes and cells."""
        return _key(self.grid)

    @property
    def hash(self) -> str:
        """SHA-256 of sizes and cells."""
        return hashlib.sha256(self.key).hexdigest()

    def mean(self, exact: bool) -> float:
        """Mean chance. exact: independent of the order of votes."""
        return (math.fsum(self.chances) if exact else sum(self.chances)) / self.votes


@dataclass(frozen=True)
class Answer:
    """The answer to one row."""

    row: int
    grid: np.ndarray | None
    """Turned back to the original variant; None if the answer holds no grid."""
    halt: float
    """Halting logit, finite."""


class Votes:
    """The answers to the rows of a test split."""

    def __init__(self, data: ArcData, upstream: bool = False) -> None:
        """upstream: keep the reference's rules, where an empty grid is a candidate and equal ones keep their order."""
        self.data, self.upstream = data, upstream
        self._found: list[dict[bytes, Candidate]] = [{} for _ in range(int(data.split.pairs[-1]))]
        self._asked = np.zeros(len(self._found), dtype=bool)
        self.rows = self.invalid = 0
        """Rows added; rows whose answer holds no grid."""

    def add(self, start: int, predicted: np.ndarray, halts: np.ndarray) -> None:
        """Count the answers to rows from `start` on."""
        self.count(self.read(np.arange(start, start + len(predicted)), predicted, halts))

    def read(self, rows: np.ndarray, predicted: np.ndarray, halts: np.ndarray) -> list[Answer]:
        """Answers to rows: tokens (B, cells), and halting logits (B,), of which NaN is the worst."""
        identifiers = self.data.split.where(rows)[1]
        side = self.data.side
        canvases = predicted.reshape(-1, side, side)
        heights, widths = cropped(canvases)
        finite = np.clip(np.nan_to_num(halts.astype(np.float64), nan=_WORST), _WORST, _LARGEST)
        found = []
        for i, (row, identifier) in enumerate(zip(rows.tolist(), identifiers.tolist(), strict=True)):
            grid = None
            if heights[i]:
                cells = (canvases[i, : heights[i], : widths[i]] - 2).astype(np.uint8)
                grid = self.data.names.variant(identifier).undo(cells)
            found.append(Answer(row, grid, float(finite[i])))
        return found

    def count(self, answers: Iterable[Answer]) -> None:
        """Add votes; each row counts once, which the caller ensures."""
        answers = list(answers)
        pairs = self.data.split.where(np.array([answer.row for answer in answers], dtype=np.int64))[0]
        self._asked[pairs] = True
        for pair, answer in zip(pairs.tolist(), answers, strict=True):
            self.rows += 1
            grid = answer.grid
            if grid is None:
                self.invalid += 1
                if not self.upstream:
                    continue
                grid = np.zeros((0, 0), np.uint8)
            found = self._found[pair].setdefault(_key(grid), Candidate(grid))
            found.chances.append(float(1 / (1 + np.exp(-answer.halt))))

    def see(self, start: int, predicted: Tensor, halts: Tensor) -> None:
        """`add` for tensors on any device."""
        self.add(start, predicted.cpu().numpy(), halts.cpu().numpy())

    def metrics(self) -> dict[str, float]:
        """pass@K and the official score, where labels are known, and the extent."""
        found = self.score()
        return (found.metrics() if found else {}) | self.extent()

    def extent(self) -> dict[str, float]:
        """Rows for each test input, and the share of test inputs with a valid candidate."""
        return {"candidates": self.candidates, "coverage": self.coverage}

    def ranked(self, pair: int) -> list[Candidate]:
        """Candidates of a pair, the best first: by votes, then by their mean chance."""
        found = list(self._found[pair].values())
        if self.upstream:
            return sorted(found, key=lambda one: (one.votes, one.mean(exact=False)), reverse=True)
        return sorted(found, key=lambda one: (-one.votes, -one.mean(exact=True), one.hash))

    def groups(self) -> Iterator[tuple[str, range]]:
        """Each task with its pairs."""
        split = self.data.split
        for group in range(len(split.pairs) - 1):
            name = self.data.names.of(int(split.identifiers[split.variants[group]]))
            yield name, range(int(split.pairs[group]), int(split.pairs[group + 1]))

    def truth(self, pair: int) -> bytes | None:
        """The key of the true output; None if it is not known."""
        height, width = self.data.split.shapes[pair, 1].tolist()
        return _key(self.data.split.grids[pair, 1, :height, :width]) if height else None

    def score(self) -> Score | None:
        """Shares of tasks and of outputs that have votes; None without labels."""
        if not self.data.split.labelled:
            return None
        of_tasks, right = list[list[float]](), [0, 0]
        outputs = 0
        for _, pairs in self.groups():
            if not self.upstream and not self._asked[pairs.start : pairs.stop].any():
                continue  # only some rows were answered
            places = [self._place(pair) for pair in pairs]
            of_tasks.append([sum(place < k for place in places) / len(places) for k in KS])
            right = [count + sum(place < k for place in places) for count, k in zip(right, (1, 2), strict=True)]
            outputs += len(places)
        tasks = max(len(of_tasks), 1)
        by_task = {k: math.fsum(one[i] for one in of_tasks) / tasks for i, k in enumerate(KS)}
        return Score(by_task, (right[0], right[1]), len(of_tasks), outputs)

    def _place(self, pair: int) -> int:
        """Rank of the true output, from 0; more than all of KS if it was not answered."""
        wanted = self.truth(pair)
        return next((at for at, one in enumerate(self.ranked(pair)) if one.key == wanted), KS[-1])

    @property
    def candidates(self) -> float:
        """Rows for each test input, on average."""
        return self.rows / max(int(self._asked.sum()), 1)

    @property
    def coverage(self) -> float:
        """Share of test inputs with a valid candidate."""
        return sum(bool(found) for found in self._found) / max(len(self._found), 1)

    def submission(self, tasks: Mapping[str, RawTask]) -> Submission:
        """Two attempts for each test input of these tasks: the best candidates, then the fallback."""
        return {
            name: [submission.attempts(self._grids(pair), tasks[name], test) for test, pair in enumerate(pairs)]
            for name, pairs in self.groups()
        }

    def reference_submission(self) -> Submission:
        """As the reference writes it: an input without candidates is left out, and grids may be empty."""
        return {
            name: [{"attempt_1": grids[0], "attempt_2": grids[-1]} for pair in pairs if (grids := self._grids(pair))]
            for name, pairs in self.groups()
        }

    def _grids(self, pair: int) -> list[list[list[int]]]:
        return [one.grid.tolist() for one in islice(self.ranked(pair), ATTEMPTS)]


@dataclass(frozen=True)
class Score:
    """How many test outputs are right."""

    by_task: dict[int, float]
    """pass@K: a task counts its share of right outputs; mean over tasks."""
    right: tuple[int, int]
    """Outputs that are right with one attempt and with two."""
    tasks: int
    outputs: int

    @property
    def official(self) -> float:
        """Share of outputs that are right with two attempts."""
        return self.right[1] / max(self.outputs, 1)

    @property
    def undecided(self) -> bool:
        """Whether more attempts change nothing: one candidate an input, as if the variants were missing or foreign."""
        return len(set(self.by_task.values())) == 1

    def metrics(self) -> dict[str, float]:
        """By name."""
        return {f"pass@{k}": value for k, value in self.by_task.items()} | {"official": self.official}


def cropped(canvases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Heights and widths of the largest rectangle of colors at each corner, 0 for none; the first of equal ones.

    canvases: (B, side, side) tokens.
    """
    colors = (canvases >= 2) & (canvases < 2 + COLORS)
    widths = np.minimum.accumulate(np.cumprod(colors, axis=2).sum(axis=2), axis=1)
    areas = widths * np.arange(1, canvases.shape[1] + 1)
    best = areas.argmax(axis=1)
    some = areas[np.arange(len(best)), best] > 0
    return np.where(some, best + 1, 0), np.where(some, widths[np.arange(len(best)), best], 0)


def _key(grid: np.ndarray) -> bytes:
    return bytes(grid.shape) + np.ascontiguousarray(grid, dtype=np.uint8).tobytes()
