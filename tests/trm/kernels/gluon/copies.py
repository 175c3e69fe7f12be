"""Copies in bulk: loads land at some time; stores read as late as they may and reach memory later still."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tests.trm.kernels.gluon.barriers import Barrier
from tests.trm.kernels.gluon.machine import Machine
from tests.trm.kernels.gluon.shared import Shared

SIZES = {torch.float64: 2}
"""Bytes of an element on a card: a test that wants no rounding gives float64 where bfloat16 is meant."""


class Descriptor:
    """Blocks of a tensor; what lies outside reads as zero and is not written."""

    def __init__(self, tensor: torch.Tensor, block: Sequence[int]) -> None:
        self.tensor, self.block, self.dtype, self.layout = tensor, tuple(block), tensor.dtype, None
        self.block_type = SimpleNamespace(shape=list(block))

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, block: Sequence[int], _layout: Any) -> Descriptor:
        return cls(tensor, block)

    def both(self, at: Sequence[int], tile: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the part of the tensor, the part of the tile) that belong together."""
        assert min(at) >= 0
        sizes = [max(0, min(n, s - a)) for n, s, a in zip(self.block, self.tensor.shape, at, strict=True)]
        inside = tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))
        return self.tensor[inside], tile.view(self.block)[tuple(slice(0, n) for n in sizes)]


def load(source: Descriptor, at: Sequence[int], barrier: Barrier, tile: Shared, pred: bool = True) -> None:
    """Begin a load: until it lands, nothing else may touch the tile."""
    Machine.present.pause()
    if not pred:
        return
    assert source.dtype == tile.dtype
    tile.announce()

    def land() -> None:
        found = torch.zeros_like(tile.data)
        values, place = source.both(at, found)
        place.copy_(values)
        tile.bring(found)
        barrier.meet(0, -SIZES.get(found.dtype, found.element_size()) * found.numel())

    Machine.present.send(land)


def store(target: Descriptor, at: Sequence[int], tile: Shared) -> None:
    """Begin a store: until it is waited for, the tile must stay as it is."""
    Machine.present.pause()
    assert target.dtype == tile.dtype
    tile.hold()
    Machine.present.current.stores.append((target, tuple(at), tile))


def store_wait(pending: int) -> None:
    """All stores but so many have read what they write; when that is in memory is another matter."""
    Machine.present.pause()
    task = Machine.present.current
    while len(task.stores) > pending:
        target, at, tile = task.stores.pop(0)
        place, values = target.both(at, tile.data.clone())
        tile.let_go()
        task.writes.append(lambda place=place, values=values: place.copy_(values))


def written() -> None:
    """All stores are in memory, in any order."""
    store_wait(0)
    task = Machine.present.current
    Machine.present.chance.shuffle(task.writes)
    for write in task.writes:
        write()
    task.writes.clear()
