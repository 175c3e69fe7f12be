"""Changes of a large puzzle table by training, kept as rows and signs, so that a replay gives the same bits.

A step changes only the rows of its batch: `w <- w (1 - lr wd) - lr sign(G)`, one product and one difference, each
rounded once, where `lr sign` is exact (docs/decisions/0008). A sign takes two bits, because a gradient of exactly 0
leaves only the decay.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trm.optim import sign_sgd_

BUFFER_BYTES = 32 << 20
"""Limit on the device, bytes, for steps that are not in a chunk yet."""
MOST_STEPS = 1_000_000
"""Steps of one journal: a replay takes some 50 µs for each, and a foreign journal must not take for ever."""


@dataclass(frozen=True)
class Record:
    """Steps one after another, on the CPU."""

    counts: Tensor
    """int32 (steps,): rows of each step."""
    rates: Tensor
    """float64 (steps, 2): 1 - lr wd, and lr."""
    rows: Tensor
    """int32 (sum of counts,), each once in its step."""
    signs: Tensor
    """uint8 (sum of counts, ceil(width / 4)): two bits an element, 0, 1, or 3 for minus."""

    @property
    def steps(self) -> int:
        """How many."""
        return len(self.counts)

    @property
    def bytes(self) -> int:
        """Size of all tensors, bytes."""
        return sum(t.numel() * t.element_size() for t in vars(self).values())

    def check(self, table: tuple[int, int]) -> None:
        """Raises ValueError (one line) unless it can be replayed on a table of that shape, inside it and in any order
        of a step's rows."""
        rows, width = table
        steps, total = self.steps, len(self.rows)
        shapes = {"counts": (steps,), "rates": (steps, 2), "rows": (total,), "signs": (total, -(-width // 4))}
        for name, shape in shapes.items():
            if tuple(getattr(self, name).shape) != shape:
                raise ValueError(f"its {name} have the shape {tuple(getattr(self, name).shape)}, not {shape}")
        if steps > MOST_STEPS:
            raise ValueError(f"it has {steps:,} steps, more than {MOST_STEPS:,}")
        counts = self.counts.long()
        if bool((counts < 0).any()) or int(counts.sum()) != total:
            raise ValueError("its steps do not have as many rows as it holds")
        if bool(((self.rows < 0) | (self.rows >= rows)).any()):
            raise ValueError(f"it names rows outside 0 .. {rows - 1}")
        places = torch.arange(steps).repeat_interleave(counts) * rows + self.rows
        places = places.sort().values
        if bool((places[1:] == places[:-1]).any()):
            raise ValueError("a step names a row twice")
        if bool((self.signs >> 1 & ~self.signs & 0x55).any()):
            raise ValueError("it holds an invalid sign")
        if not bool(self.rates.isfinite().all()):
            raise ValueError("it holds a rate that is not finite")

    def replay(self, table: Tensor) -> None:
        """The same steps on a float32 table (rows, width) on the CPU, in its state before the first; `check` first."""
        edges = [0, *self.counts.long().cumsum(0).tolist()]
        for step, (keep, lr) in enumerate(self.rates.tolist()):
            part = slice(edges[step], edges[step + 1])
            index = self.rows[part].long()
            table[index] = table[index] * keep - lr * unpacked(self.signs[part], table.shape[1])


def joined(records: list[Record], width: int) -> Record:
    """One after another; an empty one of that width for none."""
    empty = Record(
        torch.zeros(0, dtype=torch.int32),
        torch.zeros(0, 2, dtype=torch.float64),
        torch.zeros(0, dtype=torch.int32),
        torch.zeros(0, -(-width // 4), dtype=torch.uint8),
    )
    found = records or [empty]
    return Record(*(torch.cat([getattr(record, name) for record in found]) for name in vars(empty)))


def packed(sign: Tensor) -> Tensor:
    """-1, 0, 1 (float, (n, width)) as uint8 (n, ceil(width / 4))."""
    codes = F.pad(sign, (0, -sign.shape[1] % 4)).to(torch.int8).view(torch.uint8) & 3
    four = codes.view(len(codes), -1, 4)
    return four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6


def unpacked(codes: Tensor, width: int) -> Tensor:
    """float32 (n, width)."""
    return _VALUES[codes.long()].flatten(1)[:, :width]


_VALUES = torch.tensor([[(0.0, 1.0, 0.0, -1.0)[byte >> shift & 3] for shift in (0, 2, 4, 6)] for byte in range(256)])
"""The four signs in each byte."""


@dataclass(frozen=True)
class Noted:
    """Steps noted by a `Journal`, in the device's memory."""

    rates: Tensor
    """float64 (steps, 2), on the CPU: 1 - lr wd, and lr."""
    rows: Tensor
    """int32 (steps, batch), -1 for none."""
    signs: Tensor
    """uint8 (steps, batch, ceil(width / 4))."""

    @property
    def steps(self) -> int:
        """How many."""
        return len(self.rates)

    @property
    def bytes(self) -> int:
        """Size of their record at most, bytes."""
        return self.rows.numel() * 4 + self.signs.numel() + 20 * self.steps

    def record(self) -> Record:
        """Copy to the CPU, on the current stream."""
        rows, signs = self.rows.cpu(), self.signs.cpu()
        there = rows >= 0
        return Record(there.sum(1, dtype=torch.int32), self.rates, rows[there], signs[there])


class Chunk:
    """Some steps, from `start` on: on the device at first, on the CPU after the first use of the record."""

    def __init__(self, start: int, steps: Noted | Record) -> None:
        self.start, self.stop = start, start + steps.steps
        self._steps = steps
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Size of the record, bytes; an upper limit while it is on the device."""
        return self._steps.bytes

    @property
    def record(self) -> Record:
        """Copy to the CPU, on the current stream, and free the device's memory. From any thread."""
        with self._lock:
            if isinstance(self._steps, Noted):
                self._steps = self._steps.record()
            return self._steps


@torch.no_grad()
def replays(device: torch.device) -> bool:
    """Whether training a table on the device gives the bits that a CPU replay of its journal gives: some steps on a
    small one.

    A device that rounds differently, or flushes subnormals to zero, would write journals that every load refuses.
    """
    g = torch.Generator().manual_seed(0)
    scales = torch.tensor([1e-40, 1e-37, 1e-5, 1e-3, 0.1, 1, 10, 0.0]).repeat(8)[:, None]
    table = torch.randn(64, 32, generator=g) * scales
    live, journal = table.to(device, copy=True), Journal(16, 32, device, 0)
    for step in range(12):
        ids = torch.randint(0, 64, (16,), generator=g, dtype=torch.int32).to(device)
        grads = torch.randint(-1, 2, (16, 32), generator=g).float().to(device)
        lr, decay = 0.7 * 10.0 ** -(step % 5), 0.1
        kept = torch.tensor(lr, dtype=torch.float64, device=device) if step % 2 else lr  # as either step has it
        journal.open(lr, decay)
        journal.note(ids, sign_sgd_(live, ids, grads, kept, decay))
    journal.take().record.replay(table)
    return torch.equal(live.cpu().view(torch.int32), table.view(torch.int32))


class Journal:
    """The newest steps, in the device's memory. A step writes into the slot that was opened for it."""

    def __init__(self, batch: int, width: int, device: torch.device, start: int) -> None:
        """start: the step of the present table."""
        each = batch * (4 + -(-width // 4))
        self.room = max(16, min(1024, BUFFER_BYTES // each))
        self._rows = torch.full((self.room, batch), -1, dtype=torch.int32, device=device)
        self._signs = torch.zeros(self.room, batch, -(-width // 4), dtype=torch.uint8, device=device)
        self._slot = torch.zeros(1, dtype=torch.int64, device=device)
        self._places = torch.arange(batch, device=device)
        self._start, self._rates = start, list[tuple[float, float]]()

    @property
    def full(self) -> bool:
        """Whether `take` must come before the next step."""
        return len(self._rates) == self.room

    def open(self, lr: float, weight_decay: float) -> None:
        """A slot for the next step; requires that the journal is not `full`."""
        self._slot.fill_(len(self._rates))
        self._rates.append((1 - lr * weight_decay, lr))

    @torch.no_grad()
    def note(self, ids: Tensor, sign: Tensor) -> None:
        """The change by `sign_sgd_` with these ids, in the open slot. Only device operations of fixed shapes."""
        first = (ids[:, None] == ids[None, :]).to(torch.uint8).argmax(dim=1)
        rows = torch.where(first == self._places, ids.to(torch.int32), -1)
        self._rows.index_copy_(0, self._slot, rows[None])
        self._signs.index_copy_(0, self._slot, packed(sign)[None])

    def take(self) -> Chunk:
        """All steps so far, copied; on a GPU only queued. The next one begins at slot 0."""
        used = len(self._rates)
        rates = torch.tensor(self._rates, dtype=torch.float64).view(-1, 2)
        chunk = Chunk(self._start, Noted(rates, self._rows[:used].clone(), self._signs[:used].clone()))
        self._start, self._rates = chunk.stop, []
        return chunk
