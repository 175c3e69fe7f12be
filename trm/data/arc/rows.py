"""Rows of ARC data, computed on a device from originals, variants and offsets; batches as functions of (seed, step)."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.faults import DataError
from trm.data.arc.variants import SWAPS, VOCABULARY, Build, Names, Split
from trm.data.dataset import IGNORE, Batch

END = 1
"""Token right of and below a grid."""
_FLIP_DOWN = (0, 0, 1, 1, 0, 1, 0, 1)
_FLIP_ACROSS = (0, 1, 1, 0, 1, 0, 0, 1)
"""The eight symmetries: cell (r, c) comes from (r, c), exchanged if SWAPS, then counted from the end if flipped."""


class Place(NamedTuple):
    """How the rows of a batch are made from their originals, each (B,)."""

    turn: Tensor
    down: Tensor
    across: Tensor


def tokens(grids: Tensor, shapes: Tensor, colors: Tensor, place: Place) -> Tensor:
    """uint8 (B, side^2): variants of grids on a canvas, with the ends marked.

    grids: uint8 (B, side, side), at the corner; shapes: (B, 2), 0 for an absent grid, whose row is all padding;
    colors: uint8 (B, 10), the new color of each.
    """
    side, device = grids.shape[-1], grids.device
    swap, flip_down, flip_across = (
        torch.tensor(table, dtype=torch.bool, device=device)[place.turn.long()][:, None, None]
        for table in (SWAPS, _FLIP_DOWN, _FLIP_ACROSS)
    )
    line = torch.arange(side, dtype=torch.int16, device=device)
    r = line[None, :, None] - place.down.to(torch.int16)[:, None, None]
    c = line[None, None, :] - place.across.to(torch.int16)[:, None, None]
    height, width = (shapes[:, which].to(torch.int16)[:, None, None] for which in (0, 1))
    high, wide = torch.where(swap, width, height), torch.where(swap, height, width)
    in_rows, in_columns = (r >= 0) & (r < high), (c >= 0) & (c < wide)
    a, b = torch.where(swap, c, r), torch.where(swap, r, c)
    a, b = torch.where(flip_down, height - 1 - a, a), torch.where(flip_across, width - 1 - b, b)
    source = (a.clamp(0, side - 1).to(torch.int64) * side + b.clamp(0, side - 1)).flatten(1)
    cells = colors.gather(1, grids.flatten(1).gather(1, source).to(torch.int64)).view(grids.shape) + 2
    ends = ((r == high) & in_columns) | ((c == wide) & in_rows)
    return torch.where(in_rows & in_columns, cells, ends.to(torch.uint8) * END).flatten(1)


class ArcData:
    """One split on a device; the same interface as trm.data.dataset.Dataset.

    Epoch e visits every group once, in an order drawn from (seed, e); a visit takes one of the group's variants, each
    equally likely, and all its pairs, in an order drawn too. Step n takes rows n * batch to (n + 1) * batch - 1 of the
    sequence of all epochs, so a puzzle that does not fit in a batch goes on in the next one, and none is lost.
    """

    vocab_size = VOCABULARY
    augment = groups = judge = None

    def __init__(self, split: Split, names: Names, side: int, content_hash: str) -> None:
        if not split.count:
            raise DataError("The data holds no pairs. Name a data.test_set that is among data.subsets.")
        self.split, self.names, self.side, self.content_hash = split, names, side, content_hash
        self.num_identifiers = len(names)
        self._arrays = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in _device(split, names)}
        self._epochs: OrderedDict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = OrderedDict()

    @property
    def size(self) -> int:
        """Rows."""
        return self.split.count

    @property
    def visits(self) -> int:
        """Groups."""
        return len(self.split.pairs) - 1

    @property
    def rows_each_epoch(self) -> int:
        """Pairs of all groups: rows of an epoch."""
        return int(self.split.pairs[-1])

    @property
    def seq_len(self) -> int:
        """Cells of the canvas."""
        return self.side * self.side

    @property
    def device(self) -> torch.device:
        """Device of the originals and batches."""
        return self._arrays["grids"].device

    def to(self, device: rng.Device) -> ArcData:
        """Move the originals, in place."""
        self._arrays = {name: tensor.to(device) for name, tensor in self._arrays.items()}
        self._epochs.clear()
        return self

    def batch_at(self, seed: int, step: int, batch_size: int) -> Batch:
        """The batch that takes the state from `step` to `step + 1`; depends on the arguments only."""
        parts, start, count = list[Tensor](), step * batch_size, batch_size
        while count:
            epoch, offset = divmod(start, self.rows_each_epoch)
            some = min(count, self.rows_each_epoch - offset)
            parts.append(self._visited(seed, epoch, offset, some))
            start, count = start + some, count - some
        return self._batch(torch.cat(parts))

    def rows(self, start: int, count: int) -> Batch:
        """Rows start .. start + count - 1, in order; fewer at the end."""
        return self._batch(torch.arange(start, min(start + count, self.size), device=self.device))

    def at(self, rows: np.ndarray) -> Batch:
        """Rows of these numbers."""
        return self._batch(torch.from_numpy(rows).to(self.device))

    def _visited(self, seed: int, epoch: int, offset: int, count: int) -> Tensor:
        """Row numbers at those places of an epoch."""
        starts, first_rows, orders = self._epoch(seed, epoch)
        places = torch.arange(offset, offset + count, device=self.device)
        visit = torch.searchsorted(starts, places, right=True) - 1
        return first_rows[visit] + orders[places]

    def _epoch(self, seed: int, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """First place and first row of each visit, and the pair at each place. The newest few are kept."""
        key = (seed, epoch)
        if key not in self._epochs:
            a, device = self._arrays, self.device
            order = rng.permutations(seed, epoch, rng.Stream.EPOCH_ORDER, 1, self.visits, device)[0]
            sizes, spans = a["sizes"][order], a["spans"][order]
            starts = sizes.cumsum(0) - sizes
            variant = rng.below(seed, epoch, rng.Stream.VARIANT, spans)
            first_rows = a["rows"][order] + variant * sizes
            total = self.rows_each_epoch
            visit = torch.searchsorted(starts, torch.arange(total, device=device), right=True) - 1
            keys = (rng.bits(seed, epoch, rng.Stream.PAIRS, (total,), device) >> 1) & ~0xFFFFFFFF
            shuffled = (keys.abs() | torch.arange(total, device=device)).argsort()
            shuffled = shuffled[visit[shuffled].argsort(stable=True)]
            self._epochs[key] = starts, first_rows, shuffled - starts[visit]
            if len(self._epochs) > 4:
                self._epochs.popitem(last=False)
        return self._epochs[key]

    def tokens(self, start: int, count: int) -> list[Tensor]:
        """uint8 inputs and labels of some rows in order, as the reference stores them."""
        return self._tokens(torch.arange(start, min(start + count, self.size), device=self.device))[0]

    def _batch(self, rows: Tensor) -> Batch:
        made, identifier = self._tokens(rows)
        inputs, labels = (each.to(torch.int32) for each in made)
        return Batch(inputs, labels.masked_fill(labels == 0, IGNORE), identifier)

    def _tokens(self, rows: Tensor) -> tuple[list[Tensor], Tensor]:
        a = self._arrays
        group = torch.searchsorted(a["rows"], rows, right=True) - 1
        inside, size = rows - a["rows"][group], a["sizes"][group]
        pair = a["pairs"][group] + inside % size
        identifier = a["identifiers"][a["variants"][group] + inside // size]
        turn, colors = a["turn"][identifier.long() - 1], a["colors"][identifier.long() - 1]
        offsets = a["offsets"][rows]
        place = Place(turn, offsets[:, 0], offsets[:, 1])
        return [tokens(a["grids"][pair, w], a["shapes"][pair, w], colors, place) for w in (0, 1)], identifier


def _device(split: Split, names: Names) -> list[tuple[str, np.ndarray]]:
    own = {name: getattr(split, name) for name in ("grids", "shapes", "identifiers", "offsets")}
    groups = {"pairs": split.pairs[:-1], "variants": split.variants[:-1], "rows": split.rows[:-1]}
    sizes = {"sizes": np.diff(split.pairs), "spans": np.diff(split.variants)}
    return list({**own, **groups, **sizes, "turn": names.turn, "colors": names.colors}.items())


def of_build(made: Build, split: Split) -> ArcData:
    """A split of a build as data."""
    return ArcData(split, made.names, made.side, made.content_hash(split))


def held_out(split: Split, groups: np.ndarray) -> tuple[Split, Split]:
    """The split without the last pair of these groups, and these pairs, in their original variant."""
    sizes, spans = np.diff(split.pairs), np.diff(split.variants)
    last = split.pairs[groups + 1] - 1
    kept = np.ones(len(split.grids), dtype=bool)
    kept[last] = False
    rest = np.ones(split.count, dtype=bool)
    for group in groups:
        rest[split.rows[group] : split.rows[group + 1]].reshape(spans[group], sizes[group])[:, -1] = False
    fewer = sizes.copy()
    fewer[groups] -= 1
    edges = np.concatenate(([0], np.cumsum(fewer))).astype(np.int64)
    train = Split(split.grids[kept], split.shapes[kept], edges, split.variants, split.identifiers, split.offsets[rest])
    ones = np.arange(len(groups) + 1, dtype=np.int64)
    ids = split.identifiers[split.variants[groups]]
    return train, Split(split.grids[last], split.shapes[last], ones, ones, ids, np.zeros((len(groups), 2), np.uint8))
