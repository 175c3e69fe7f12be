"""The recursion of one training step with a hand-written backward pass. Knows no loss, no halting, no optimizer.

The definition is trm/model.py: cycles without gradient keep nothing; the last one keeps what its blocks' backward
passes read. Injections are added by the norm in front of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trm.config import Arch
from trm.kernels.blocks import FastBlock, Saved


@dataclass
class Tape:
    """Blocks' saved tensors, one list a call of F, in the order of the calls."""

    calls: list[list[Saved]] = field(default_factory=list)


class Recursion:
    """F and the order in which it is called."""

    def __init__(self, arch: Arch, blocks: list[FastBlock]) -> None:
        self.arch, self.blocks = arch, blocks

    def apply(self, x: Tensor, injection: Tensor | None, keep_y: bool, tape: Tape | None) -> tuple[Tensor, Tensor]:
        """F on x, which has its injection already: (y, y + injection).

        Without tape y only if `keep_y`, and x may be overwritten.
        """
        if tape is None:
            for index, block in enumerate(self.blocks):
                x = block.advance(x, index > 0)
            return self.blocks[-1].norm(x, injection, keep_y)
        *earlier, last = self.blocks
        call = []
        for block in earlier:
            x, _, saved = block.forward(x, None)
            call.append(saved)
        y, z, saved = last.forward(x, injection)
        tape.calls.append([*call, saved])
        return y, z

    def cycle(self, z_H: Tensor, z_L: Tensor, embedding: Tensor, tape: Tape | None) -> tuple[Tensor, Tensor]:
        """One H cycle: L_cycles updates of z_L, then one of z_H."""
        injection = z_H + embedding
        x = z_L + injection
        for _ in range(self.arch.L_cycles - 1):
            _, x = self.apply(x, injection, False, tape)
        z_L, x = self.apply(x, z_H, True, tape)
        return self.apply(x, None, True, tape)[0], z_L

    def forward(self, z_H: Tensor, z_L: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor, Tape]:
        """(z_H, z_L, tape of the last cycle), all (B, L, D)."""
        for _ in range(self.arch.H_cycles - 1):
            z_H, z_L = self.cycle(z_H, z_L, embedding, None)
        tape = Tape()
        z_H, z_L = self.cycle(z_H, z_L, embedding, tape)
        return z_H, z_L, tape

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
