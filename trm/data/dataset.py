"""Puzzles in memory and the batch of each step."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.device import has_kernels
from trm.data.augment import sudoku as symmetries

IGNORE = -100
"""Label of a position that is not scored."""

Judge = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(inputs, labels, predicted tokens), all (B, seq_len) -> bool (B,): a right answer, possibly not the label."""

Augment = Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]]
"""(inputs, labels, seed, step) -> the same, transformed; rows are slots of the batch."""


@dataclass(frozen=True)
class Batch:
    """Input of one training step."""

    inputs: Tensor
    """int32 (B, seq_len): tokens, 0 is padding."""
    labels: Tensor
    """int32 (B, seq_len): tokens, IGNORE for unscored cells."""
    puzzle_identifiers: Tensor
    """int32 (B,): row of the puzzle embedding table."""


class Dataset:
    """N puzzles as uint8 tokens on one device.

    inputs, labels: uint8 (N, seq_len), tokens below vocab_size; a label of 0 is padding and becomes IGNORE.
    augment: drawn again for every slot of every step, or None. content_hash ignores it and the device.
    groups: int64 (G + 1,) offsets of rows that are variants of one puzzle, or None if each row stands for itself. An
    epoch visits every group once, and takes one of its rows by chance (reference/trm.md 11).
    """

    num_identifiers = 1
    """Sudoku puzzles share one embedding row, number 0."""

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        vocab_size: int,
        augment: Augment | None = None,
        groups: Tensor | None = None,
    ) -> None:
        if inputs.shape != labels.shape or inputs.dim() != 2 or not len(inputs):
            raise ValueError(f"inputs {tuple(inputs.shape)} and labels {tuple(labels.shape)} must be (N > 0, seq_len)")
        self.inputs, self.labels = (each.to(torch.uint8).contiguous() for each in (inputs, labels))  # for kernels
        self.vocab_size = vocab_size
        self.judge: Judge | None = None
        self.augment = augment
        self.groups = None if groups is None or len(groups) > len(inputs) else groups
        self.content_hash = _content_hash(self.inputs, self.labels, vocab_size, self.groups)
        self._orders: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

    @property
    def size(self) -> int:
        """Number of puzzles N, variants counted."""
        return len(self.inputs)

    @property
    def visits(self) -> int:
        """Puzzles of an epoch: groups, or N."""
        return self.size if self.groups is None else len(self.groups) - 1

    @property
    def seq_len(self) -> int:
        """Cells of a puzzle."""
        return self.inputs.shape[1]

    @property
    def device(self) -> torch.device:
        """Device of the puzzles and batches."""
        return self.inputs.device

    def to(self, device: rng.Device) -> Dataset:
        """Move the puzzles, in place; batches then come from that device and hold the same numbers."""
        self.inputs, self.labels = self.inputs.to(device), self.labels.to(device)
        self.groups = None if self.groups is None else self.groups.to(device)
        self._orders.clear()
        return self

    def batch_at(self, seed: int, step: int, batch_size: int) -> Batch:
        """The batch that takes the state from `step` to `step + 1` (the first batch is that of step 0).

        Row j is position p = step * batch_size + j of an endless sequence: epoch p // N is one permutation of the
        puzzles, drawn from (seed, epoch); N counts groups if there are any. Depends on the
        arguments only, never on earlier calls.
        """
        rows = self._positions(seed, step * batch_size, batch_size)
        if self.groups is not None:
            first, end = self.groups[rows], self.groups[rows + 1]
            rows = first + rng.below(seed, step, rng.Stream.VARIANT, end - first)
        if self.augment in (None, symmetries) and has_kernels(self.device):
            return self._batch_by_kernel(rows, seed, step)
        inputs, labels = self.inputs[rows], self.labels[rows]
        if self.augment is not None:
            inputs, labels = self.augment(inputs, labels, seed, step)
        return self._batch(inputs, labels)

    def rows(self, start: int, count: int) -> Batch:
        """Puzzles start .. start + count - 1, unchanged, in order; fewer at the end."""
        return self._batch(self.inputs[start : start + count], self.labels[start : start + count])

    def _batch(self, inputs: Tensor, labels: Tensor) -> Batch:
        labels = labels.to(torch.int32)
        return Batch(
            inputs=inputs.to(torch.int32),
            labels=labels.masked_fill(labels == 0, IGNORE),
            puzzle_identifiers=torch.zeros(len(inputs), dtype=torch.int32, device=self.device),
        )

    def _batch_by_kernel(self, rows: Tensor, seed: int, step: int) -> Batch:
        """The same numbers in one launch."""
        from trm.kernels.batch import batch

        inputs, labels = batch(self.inputs, self.labels, rows, seed, step, IGNORE, self.augment is not None)
        return Batch(inputs, labels, torch.zeros(len(rows), dtype=torch.int32, device=self.device))

    def _positions(self, seed: int, start: int, count: int) -> Tensor:
        """int64 (count,): the puzzles at positions start .. start + count - 1."""
        parts = []
        while count:
            epoch, offset = divmod(start, self.visits)
            part = self._order(seed, epoch)[offset : offset + count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return torch.cat(parts)

    def _order(self, seed: int, epoch: int) -> Tensor:
        """The epoch's permutation. The newest few are kept, because sorting a large set each step would cost more."""
        key = (seed, epoch)
        if key not in self._orders:
            self._orders[key] = rng.permutations(seed, epoch, rng.Stream.EPOCH_ORDER, 1, self.visits, self.device)[0]
            if len(self._orders) > 2:
                self._orders.popitem(last=False)
        return self._orders[key]


def _content_hash(inputs: Tensor, labels: Tensor, vocab_size: int, groups: Tensor | None) -> str:
    """SHA-256 (hexadecimal) over shape, vocabulary, both token arrays, and the groups if there are any."""
    digest = hashlib.sha256(f"{tuple(inputs.shape)} {vocab_size}\n".encode())
    for tokens in (inputs, labels) if groups is None else (inputs, labels, groups):
        digest.update(tokens.cpu().contiguous().numpy().data)
    return digest.hexdigest()
