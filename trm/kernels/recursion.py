"""The recursion of one training step with a hand-written backward pass. Knows no loss, no halting, no optimizer.

The definition is trm/model.py: cycles without gradient keep nothing; the last one keeps what its blocks' backward
passes read. Injections are added by the norm in front of them, a cycle's first by what looks the embedding up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trm.config import Arch
from trm.kernels.blocks import FastBlock, Saved
from trm.kernels.layout import Anew, Tables
from trm.kernels.parts import Part


@dataclass
class Tape:
    """Blocks' saved tensors, one list a call of F, in the order of the calls."""

    calls: list[list[Saved]] = field(default_factory=list)


class Recursion:
    """F and the order in which it is called."""

    def __init__(self, arch: Arch, blocks: list[FastBlock], embedding: Part) -> None:
        self.arch, self.blocks, self.embedding = arch, blocks, embedding

    def apply(
        self, x: Tensor, injection: Tensor | None, keep_y: bool, tape: Tape | None, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """F on x, which has its injection already: (y, y + injection).

        Without tape y only if `keep_y`, and x may be overwritten; with it y is in `out` if that is given.
        """
        *earlier, last = self.blocks
        if tape is None:
            total = self.blocks[0].advance(x)
            for block in self.blocks[1:]:
                total = block.advance(total)
            return last.norm(total, injection, keep_y)
        call = []
        for block in earlier:
            x, _, saved = block.forward(x, None)
            call.append(saved)
        y, z, saved = last.forward(x, injection, out)
        tape.calls.append([*call, saved])
        return y, z

    def cycle(
        self, z_H: Tensor, z_L: Tensor, tables: Tables, anew: Anew | None, tape: Tape | None = None,
        out: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """One H cycle: L_cycles updates of z_L, then one of z_H. (z_H, z_L), with a tape in `out` if that is given."""
        injection, x = self.embedding.inject(z_H, z_L, tables, anew)
        for _ in range(self.arch.L_cycles - 1):
            _, x = self.apply(x, injection, False, tape)
        z_L, x = self.apply(x, z_H, True, tape, out[1])
        return self.apply(x, None, True, tape, out[0])[0], z_L

    def forward(self, z_H: Tensor, z_L: Tensor, tables: Tables, anew: Anew) -> Tape:
        """Write the new z_H and z_L (B, L, D) over the old ones; the tape of the last cycle."""
        now, tape = (z_H, z_L), Tape()
        for index in range(self.arch.H_cycles):
            last = index == self.arch.H_cycles - 1
            start = anew if index == 0 else None
            now = self.cycle(*now, tables, start, tape, (z_H, z_L)) if last else self.cycle(*now, tables, start)
        return tape

    def backward(self, tape: Tape, dz_H: Tensor) -> Tensor:
        """Gradient of z_H (B, L, D) -> those of the embedding in each z_L update, (L_cycles, B, L, D)."""
        grads = dz_H.new_empty(self.arch.L_cycles, *dz_H.shape)
        inner, first, dy = torch.empty_like(dz_H), True, dz_H
        for slot in (self.arch.L_cycles, *reversed(range(self.arch.L_cycles))):
            saved = tape.calls.pop()
            dx = grads[slot] if slot < self.arch.L_cycles else torch.empty_like(dz_H)
            for index in reversed(range(len(self.blocks))):
                target = dx if index == 0 else inner
                self.blocks[index].backward(saved.pop(), dy, target, first)
                dy = target
            first = False
        return grads
