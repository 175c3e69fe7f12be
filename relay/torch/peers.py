"""The processes that share each batch, one GPU each: their rows, and how sums and rows are exchanged.

Started by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Sums are added in the order of the
processes, not in an order that a library chooses. So the bytes depend on the number of processes alone, and equal
those of one process that takes the batch in the same number of parts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relay.torch.launch import launched

ALIGNMENT = 16
PATIENCE = timedelta(days=2)
"""Followers wait for the leader while it evaluates, uploads, or keeps its machine."""
LONGEST_ORDER = 100_000
"""Bytes."""


@cache
def meet() -> Peers:
    """The one group of this process, created at first use."""
    return Peers()


class Peers:
    """One of `size` processes; `rank` 0 leads."""

    def __init__(self) -> None:
        """Connects to the others: NCCL between GPUs, gloo between CPUs and for orders."""
        cuda = torch.cuda.is_available()
        self.rank, self.size = int(os.environ["RANK"]), launched()
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE, rank=self.rank, world_size=self.size)

    def rows(self, batch: int) -> slice:
        """This process's rows of a batch. Raises ValueError if they cannot be shared evenly."""
        if batch % self.size:
            raise ValueError(
                f"{self.size} processes cannot share a batch of {batch} evenly. Start a number that divides it."
            )
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def exchange(self, sums: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
        """In place, in one collective: each of `sums` becomes the sum over all processes in their order; each of `rows`
        (B, ...), of which every process has filled its own rows, becomes complete."""
        mine = [self.rows(len(tensor)) for tensor in rows]
        sent = [*sums, *(tensor[part] for tensor, part in zip(rows, mine, strict=True))]
        packed = _pack(sent)
        received = packed.new_empty(self.size, len(packed))
        dist.all_gather(list(received.unbind(0)), packed)
        for total in sums:
            total.zero_()
        for rank in range(self.size):
            values = _unpack(received[rank], sent)
            for total, value in zip(sums, values[: len(sums)], strict=True):
                total.add_(value)
            for tensor, value in zip(rows, values[len(sums) :], strict=True):
                tensor[rank * len(value) : (rank + 1) * len(value)] = value

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Every process gets the leader's values, in place."""
        buffer = _pack(tensors)
        dist.broadcast(buffer, 0)
        for tensor, value in zip(tensors, _unpack(buffer, tensors), strict=True):
            tensor.copy_(value)

    def order(self, what: Mapping[str, Any]) -> None:
        """The leader sends the followers an order, as plain JSON values."""
        text = json.dumps(what).encode()
        dist.broadcast(torch.tensor([len(text)]), 0)
        dist.broadcast(torch.frombuffer(bytearray(text), dtype=torch.uint8), 0)

    def obey(self) -> dict[str, Any]:
        """A follower waits for the next order."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, 0)
        size = int(length)
        if not 0 < size <= LONGEST_ORDER:
            raise ValueError(f"an order of {size} bytes")
        text = torch.empty(size, dtype=torch.uint8)
        dist.broadcast(text, 0)
        found: dict[str, Any] = json.loads(bytes(text.tolist()))
        return found

    def close(self) -> None:
        """Part."""
        dist.destroy_process_group()


def _padded(tensor: Tensor) -> int:
    """Bytes of a tensor in a packed buffer."""
    return -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT


def _pack(tensors: Sequence[Tensor]) -> Tensor:
    """uint8: the tensors' bytes, one after another."""
    buffer = torch.zeros(sum(_padded(t) for t in tensors), dtype=torch.uint8, device=tensors[0].device)
    at = 0
    for tensor in tensors:
        raw = tensor.contiguous().view(-1).view(torch.uint8)
        buffer[at : at + len(raw)] = raw
        at += _padded(tensor)
    return buffer


def _unpack(buffer: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `buffer` with the shapes and types of `like`."""
    found, at = [], 0
    for tensor in like:
        size = tensor.numel() * tensor.element_size()
        found.append(buffer[at : at + size].view(tensor.dtype).view(tensor.shape))
        at += _padded(tensor)
    return found
