"""A training step as a strategy, and a batch in parts: micro-batches of one process, and the rows of several.

A step is a named callable that takes (state, batch) and advances the state by one step. So fused kernels, a captured
graph or several processes can replace the plain operations on the same state. The parts' sums are added up in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from torch import Tensor

from storage.wording import counted


class LiveState(Protocol):
    """A training state on one device."""

    step: int

    def tensors(self) -> dict[str, Tensor]: ...


State = TypeVar("State", bound=LiveState, contravariant=True)
Batch = TypeVar("Batch", contravariant=True)


class Step(Protocol[State, Batch]):
    """One way to compute a training step."""

    name: str
    """Part of the digest's path: results of differently named steps may differ in bits."""
    parts: int
    """Micro-batches that a process takes one after another."""

    @property
    def atomic(self) -> bool:
        """Whether the state is as before if the exchange with other processes fails."""
        ...

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds of work that only the first step does: compile, capture."""
        ...

    @property
    def groups(self) -> str:
        """The division of the batch, for the path: '' without one."""
        ...

    def __call__(self, state: State, batch: Batch) -> Tensor:
        """Advance the state by one step in place; the step's metrics, float64, on the device."""
        ...


class Sharing(Protocol):
    """The processes that share a batch (relay/torch/peers.py)."""

    size: int

    def rows(self, batch: int) -> slice:
        """This process's rows."""
        ...

    def exchange(self, sums: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
        """Add up `sums` over the processes; fill in the others' rows of `rows`."""
        ...


def slices(rows: int, parts: int, first: int = 0) -> list[slice]:
    """`rows` rows from `first` on in `parts` groups, equal up to one row. Raises ValueError for too many."""
    if not 0 < parts <= rows:
        raise ValueError(f"{counted(rows, 'row')} cannot be split into {counted(parts, 'part')}")
    edges = [first + rows * index // parts for index in range(parts + 1)]
    return [slice(*edge) for edge in pairwise(edges)]


def own_slices(batch: int, parts: int, peers: Sharing | None) -> list[slice]:
    """This process's parts of the batch."""
    mine = peers.rows(batch) if peers else slice(0, batch)
    return slices(mine.stop - mine.start, parts, mine.start)


def groups(parts: int, peers: Sharing | None) -> str:
    """'/N' for N groups of rows whose gradients are added in order; '/NxM' if N processes take M parts each."""
    if peers is None:
        return f"/{parts}" if parts > 1 else ""
    return f"/{peers.size}x{parts}" if parts > 1 else f"/{peers.size}"
