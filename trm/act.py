"""Adaptive computation time: a sequence stays in its slot for up to halt_max_steps steps.

reference/trm.md 3. A step refills the slots that have halted, runs the network once, and decides which halt.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from relay.torch import rng
from trm.config import Arch
from trm.data.dataset import Batch
from trm.model import Inner, Sizes


@dataclass
class Carry:
    """State from one step to the next. Rows of halted slots are never read again, except `halted` itself."""

    z_H: Tensor
    """(B, L, D), activation type."""
    z_L: Tensor
    steps: Tensor
    """int32 (B,): supervision steps the sequence has had."""
    halted: Tensor
    """bool (B,)."""
    inputs: Tensor
    """int32 (B, S)."""
    labels: Tensor
    """int32 (B, S)."""
    puzzle_identifiers: Tensor
    """int32 (B,)."""

    def canonical(self) -> dict[str, Tensor]:
        """Copies by name with zeros in the rows of halted slots, so that unused values are never compared."""
        masked = {f.name: _clear(getattr(self, f.name), self.halted) for f in fields(self) if f.name != "halted"}
        return masked | {"halted": self.halted.clone()}

    def part(self, rows: slice) -> Carry:
        """Views of some rows."""
        return Carry(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def replaced(self, rows: slice, by: Carry) -> Carry:
        """A copy with some rows of another."""
        new = {f.name: getattr(self, f.name).clone() for f in fields(self)}
        for name, value in new.items():
            value[rows] = getattr(by, name)
        return Carry(**new)


def joined(parts: list[Carry]) -> Carry:
    """One carry of all rows, in order; a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    return Carry(**{f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Carry)})


def seated(carry: Carry, batch: Batch) -> Carry:
    """The batch's row in each halted slot; the states of these slots are still to be reset."""
    row = carry.halted
    table = row[:, None]
    return replace(
        carry,
        steps=carry.steps.masked_fill(row, 0),
        inputs=torch.where(table, batch.inputs, carry.inputs),
        labels=torch.where(table, batch.labels, carry.labels),
        puzzle_identifiers=torch.where(row, batch.puzzle_identifiers, carry.puzzle_identifiers),
    )


def _clear(value: Tensor, rows: Tensor) -> Tensor:
    """A copy of `value` (B, ...) with zeros where `rows` (bool, B) is true."""
    return value.masked_fill(rows.view(-1, *[1] * (value.dim() - 1)), 0)


@dataclass(frozen=True)
class Output:
    """Results of one step; `labels` are those of the sequences now in the slots."""

    logits: Tensor
    """(B, S, V), activation type."""
    q: Tensor
    """float32 (B, 2): halt and continue logits."""
    labels: Tensor
    """int32 (B, S)."""
    halted: Tensor
    """bool (B,): after this step."""
    steps: Tensor
    """int32 (B,): after this step."""


def exploration(arch: Arch, seed: int, step: int | Tensor, batch_size: int, device: rng.Device) -> Tensor:
    """int32 (B,): the step before which a slot may not halt; 0 for most, uniform in 2..max for a few (3 d)."""
    shape = (batch_size,)
    coin = rng.uniform(seed, step, rng.Stream.EXPLORE_COIN, shape, device) < arch.halt_exploration_prob
    deepest = max(2, arch.halt_max_steps)
    depth = rng.integers(seed, step, rng.Stream.EXPLORE_STEPS, shape, 2, deepest + 1, device)
    return (coin * depth).to(torch.int32)


class TRM(nn.Module):
    """The network with its halting rule; state-dict names start with `inner.`, as in the reference."""

    def __init__(self, arch: Arch, sizes: Sizes, seed: int = 0) -> None:
        super().__init__()
        self.arch = arch
        self.inner = Inner(arch, sizes, seed)

    def initial_carry(self, batch_size: int) -> Carry:
        """All slots halted: the first step fills them."""
        inner, device = self.inner, self.inner.H_init.device
        z = torch.zeros(batch_size, inner.length, self.arch.hidden_size, dtype=inner.dtype, device=device)
        tokens = torch.zeros(batch_size, inner.sizes.seq_len, dtype=torch.int32, device=device)
        row = torch.zeros(batch_size, dtype=torch.int32, device=device)
        halted = torch.ones(batch_size, dtype=torch.bool, device=device)
        return Carry(z, z.clone(), row, halted, tokens, tokens.clone(), row.clone())

    def refill(self, carry: Carry, batch: Batch) -> Carry:
        """Start the batch's row in each halted slot; the rows of the other slots are not used (3 a)."""
        cube = carry.halted[:, None, None]
        z_H, z_L = torch.where(cube, self.inner.H_init, carry.z_H), torch.where(cube, self.inner.L_init, carry.z_L)
        return replace(seated(carry, batch), z_H=z_H, z_L=z_L)

    def decide(self, steps: Tensor, q: Tensor, min_halt: Tensor | None) -> Tensor:
        """bool (B,): who halts after `steps` (3 c, d). In evaluation min_halt is None: only the maximum counts."""
        last = steps >= self.arch.halt_max_steps
        if min_halt is None or self.arch.halt_max_steps == 1:
            return last
        return (last | (q[:, 0] > 0)) & (steps >= min_halt)

    def forward(self, carry: Carry, puzzle_rows: Tensor | None, min_halt: Tensor | None) -> tuple[Carry, Output]:
        """One step on a refilled carry. puzzle_rows: `inner.puzzle_rows(carry.puzzle_identifiers)`."""
        z_H, z_L, logits, q = self.inner(carry.z_H, carry.z_L, carry.inputs, puzzle_rows)
        with torch.no_grad():
            steps = carry.steps + 1
            halted = self.decide(steps, q, min_halt)
        after = Carry(z_H, z_L, steps, halted, carry.inputs, carry.labels, carry.puzzle_identifiers)
        return after, Output(logits, q, carry.labels, halted, steps)
