"""Shared memory that knows of each element who still reads it, and whether what is there may be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.trm.kernels.gluon.machine import Machine, Race
from tests.trm.kernels.gluon.values import Values

UNSET, READY, ARRIVING, UNFENCED = range(4)
NAMES = (
    "that was never written",
    "",
    "that a bulk load is still to bring",
    "that threads stored without fence_async_shared",
)


class Shared:
    """A buffer, or a part of one."""

    def __init__(self, data: torch.Tensor, readers: torch.Tensor, state: torch.Tensor) -> None:
        self.data, self.readers, self.state = data, readers, state
        self.dtype, self.shape = data.dtype, data.shape

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        nothing = torch.zeros(tuple(shape), dtype=torch.int8)
        return cls(torch.full(tuple(shape), float("nan"), dtype=dtype), nothing, nothing + UNSET)

    def _view(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Shared:
        return Shared(change(self.data), change(self.readers), change(self.state))

    def index(self, i: int) -> Shared:
        assert 0 <= i < len(self.data), f"buffer {i} of {len(self.data)}"
        return self._view(lambda x: x[i])

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        return self._view(lambda x: x.narrow(dim, start, length))

    def reshape(self, shape: Sequence[int]) -> Shared:
        return self._view(lambda x: x.view(*shape))

    def permute(self, order: Sequence[int]) -> Shared:
        return self._view(lambda x: x.permute(*order))

    def _reinterpret(self, dtype: torch.dtype, shape: Sequence[int], _layout: Any) -> Shared:
        assert dtype == self.dtype
        return self.reshape(shape)

    def load(self, _layout: Any) -> Values:
        Machine.present.pause()
        self._may_be_read(READY, UNFENCED)
        return Values(self.data.clone())

    def store(self, value: Values) -> None:
        assert value.shape == self.shape
        assert value.data.dtype == self.dtype
        Machine.present.pause()
        self.may_be_written()
        self.data.copy_(value.data)
        self.state.fill_(UNFENCED)
        Machine.present.current.unfenced.append(self)

    def hold(self) -> None:
        """Something that is not a thread begins to read this."""
        self._may_be_read(READY)
        self.readers += 1

    def let_go(self) -> None:
        self.readers -= 1

    def announce(self) -> None:
        """A bulk load begins."""
        self.may_be_written()
        if (self.state == UNFENCED).any():
            raise Race(f"a bulk load over shared memory {NAMES[UNFENCED]}")
        self.state.fill_(ARRIVING)

    def bring(self, values: torch.Tensor) -> None:
        """It ends."""
        self.data.copy_(values.view(self.data.shape))
        self.state.fill_(READY)

    def fence(self) -> None:
        self.state.masked_fill_(self.state == UNFENCED, READY)

    def may_be_written(self) -> None:
        if self.readers.any():
            raise Race("written over what a product or a bulk store still reads")
        if (self.state == ARRIVING).any():
            raise Race(f"written over shared memory {NAMES[ARRIVING]}")

    def _may_be_read(self, *states: int) -> None:
        for state in set(range(4)) - set(states):
            if (self.state == state).any():
                raise Race(f"read from shared memory {NAMES[state]}")


def fence_async_shared() -> None:
    """What the thread stored may be read by products and bulk stores."""
    Machine.present.pause()
    task = Machine.present.current
    for part in task.unfenced:
        part.fence()
    task.unfenced.clear()
