"""The network's forward and hand-written backward pass, over packed weights: mixers, blocks, recursion, heads.

The definition is trm/model.py. Weights are cast and packed once a step. Weight gradients of the calls in a step are
summed in float32 where they are made, in the order of the calls; `finish` writes them to the flat gradient.

Where the mixer leaves its norm unwritten (layout.Sum; attention does), the MLP's hidden values and the sum after them
are as much larger, and their gradients as much smaller, as its rows are (trm/kernels/norm.py).

Cycles without gradient keep nothing; the last one keeps the inputs of its blocks' backward passes. Injections are added
by the norm in front of them, a cycle's first by the kernel that looks up the embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from trm.config import Arch
from trm.kernels.components import Component, Components
from trm.kernels.layout import CHUNK, PAD, PAIR, Anew, Sum, Tables, Total, add_product, pair_rows, unpair_rows

_PARTS = 33
"""Parts of the batch whose token-mixer gradients are summed apart: 4 x 33 programs fill the 132 multiprocessors."""

Kept = tuple[Tensor, ...]


class Mixer(Protocol):
    """x <- norm(x + mix(x))."""

    def pack(self) -> None:
        """Cast the parameters and forget the last step's gradients."""
        ...

    def advance(self, x: Tensor | Total) -> Sum:
        """(B, L, D), or a sum with that norm -> the same of the output. Keeps nothing, and may overwrite x."""
        ...

    def forward(self, x: Tensor) -> tuple[Sum, Kept]:
        """(B, L, D) -> the sum with the output as its norm, and the input of `backward`."""
        ...

    def backward(self, saved: Kept, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; sum the weights' gradients, from zero if this is the step's `first`.

        dy: the output's gradient; for a `Sum` not yet normed, that of its rows and addends, with the size held fixed.
        """
        ...

    def finish(self) -> None:
        """Write the flat gradients."""
        ...


class TokenMixer:
    """x <- rms_L(x + SwiGLU over the sequence)."""

    def __init__(
        self, prefix: str, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], components: Components,
        dtype: torch.dtype, eps: float, batch: int,
    ) -> None:  # fmt: skip
        names = [f"{prefix}mlp_t.{part}.weight" for part in ("gate_up_proj", "down_proj")]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.part, self.norm, self.eps = components.mixer, components.norm, eps
        rows, device = len(self.source[0]), self.source[0].device
        self.wgu = torch.zeros(rows, PAD, dtype=dtype, device=device)
        self.wd = torch.zeros(rows // 2, PAD, dtype=dtype, device=device)
        parts_of_batch = min(_PARTS, batch)
        self.dwgu = torch.zeros(parts_of_batch, rows, PAD, device=device)
        self.dwd = torch.zeros(parts_of_batch, rows // 2, PAD, device=device)

    def pack(self) -> None:
        """Cast the parameters."""
        pair_rows(self.source[0], self.wgu, CHUNK)
        self.wd[:, : len(self.source[1])].copy_(self.source[1].T)

    def advance(self, x: Tensor | Total) -> Sum:
        """(B, L, D), or a sum with that norm -> the output."""
        if isinstance(x, Total):
            y: Tensor = self.norm.forward(x.r.flatten(0, 1), None, self.eps, squares=x.squares)[0]
            return self.forward(y.view_as(x.r))[0]
        return self.forward(x)[0]

    def forward(self, x: Tensor) -> tuple[Sum, Kept]:
        """(B, L, D) -> the output, and the input of `backward`."""
        y, rstd = self.part.forward(x, self.wgu, self.wd, self.eps)
        return Sum(y), (x, y, rstd)

    def backward(self, saved: Kept, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; start (`first`) or go on summing the weights' gradients."""
        x, y, rstd = saved
        dr = self.part.input_grad(x, y, rstd, dy, self.wgu, self.wd, dx)
        self.part.weight_grad(x, dr, self.wgu, self.wd, self.dwgu, self.dwd, not first)

    def finish(self) -> None:
        """Write the flat gradients."""
        unpair_rows(self.dwgu.sum(0), self.target[0], CHUNK)
        self.target[1].copy_(self.dwd.sum(0)[:, : len(self.target[1])].T)


class AttentionMixer:
    """x <- rms_D(x + attention over the sequence)."""

    def __init__(
        self, prefix: str, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], components: Components,
        dtype: torch.dtype, eps: float, heads: int, rotary: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        names = [f"{prefix}self_attn.{part}.weight" for part in ("qkv_proj", "o_proj")]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.components, self.eps, self.heads, self.rotary = components, eps, heads, rotary
        self.qkv, self.out = (torch.empty_like(w, dtype=dtype) for w in self.source)
        self.to_add = torch.empty_like(self.out)

    def pack(self) -> None:
        """Cast the parameters and forget the last step's gradients."""
        self.qkv.copy_(self.source[0])
        self.out.copy_(self.source[1])
        self.components.attention.pack_out(self.source[1], self.to_add)
        for target in self.target:
            target.zero_()

    def advance(self, x: Tensor | Total) -> Sum:
        """(B, L, D), or a sum with that norm -> the sum with the output as its norm: x, overwritten."""
        if isinstance(x, Total):
            qkv, rstd = self.components.attention.project_total(x, self.qkv, *self.rotary, self.heads, self.eps)
            x = x.r
        else:
            qkv, rstd = self.components.attention.project(x, self.qkv, *self.rotary, self.heads), None
        mixed, _ = self.components.attention.forward(qkv, *self.rotary, self.heads)
        rows = x.flatten(0, 1)
        return Sum(x, self.components.attention.add(rows, mixed.flatten(0, 1), self.to_add, rows, rstd))

    def forward(self, x: Tensor) -> tuple[Sum, Kept]:
        """(B, L, D) -> the sum with the output as its norm, and the input of `backward`."""
        part, rows, r = self.components.attention, x.flatten(0, 1), torch.empty_like(x)
        qkv = part.project(x, self.qkv, *self.rotary, self.heads)
        mixed, kept = part.forward(qkv, *self.rotary, self.heads)
        squares = part.add(rows, mixed.flatten(0, 1), self.to_add, r.flatten(0, 1))
        return Sum(r, squares), (rows, qkv, mixed, r.flatten(0, 1), squares, *kept)

    def backward(self, saved: Kept, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; go on summing the weights' gradients (`pack` starts the sum)."""
        rows, qkv, mixed, r, squares, *kept = saved
        dr = self.components.norm.backward_of_sum(dy.flatten(0, 1), r, squares, self.eps, dx.flatten(0, 1))
        add_product(self.target[1], dr, mixed.flatten(0, 1))
        dmixed = (dr @ self.out).view_as(mixed)
        dqkv = self.components.attention.backward(qkv, *self.rotary, mixed, kept, dmixed, self.heads).flatten(0, 1)
        add_product(self.target[0], dqkv, rows)
        dr.addmm_(dqkv, self.qkv)

    def finish(self) -> None:
        """Nothing: the flat gradients are the sums."""


@dataclass
class SavedBlock:
    """The input of a block's backward pass."""

    mixer: tuple[Tensor, ...]
    r1: Tensor
    """(B, L, D): the rows of the mixer's `Sum`."""
    gu: Tensor
    hidden: Tensor
    y2: Tensor
    rstd2: Tensor


class FastBlock:
    """A mixer, then x <- rms(x + SwiGLU over channels)."""

    def __init__(
        self, prefix: str, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], components: Components,
        dtype: torch.dtype, eps: float, mixer: Mixer,
    ) -> None:  # fmt: skip
        names = [f"{prefix}mlp.{part}.weight" for part in ("gate_up_proj", "down_proj")]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.components, self.eps, self.mixer = components, eps, mixer
        self.wgu, self.wd = (torch.empty_like(w, dtype=dtype) for w in self.source)
        self.dwgu = torch.zeros_like(self.source[0])

    def pack(self) -> None:
        """Cast the parameters."""
        self.mixer.pack()
        pair_rows(self.source[0], self.wgu, PAIR)
        self.wd.copy_(self.source[1])

    def start(self) -> None:
        """Forget the last step's gradients."""
        self.dwgu.zero_()
        self.target[1].zero_()

    def advance(self, x: Tensor | Total) -> Total:
        """(B, L, D), or a sum with that norm -> the sum with the output as its norm. Keeps nothing, may overwrite x.

        A residual that is added while its other half is written is read once less than one added by the norm.
        """
        mixed = self.mixer.advance(x)
        rows, squares = mixed.r.flatten(0, 1), mixed.squares
        hidden, _ = self.components.channel.gate_up(rows, self.wgu, False, squares, self.eps)
        return Total(rows.addmm_(hidden, self.wd.T).view_as(mixed.r), squares)

    def norm(self, x: Total, injection: Tensor | None, keep_y: bool) -> tuple[Tensor, Tensor]:
        """(y, y + injection), y only if `keep_y`, from the result of `advance`."""
        inj = None if injection is None else injection.flatten(0, 1)
        y, z, _ = self.components.norm.forward(x.r.flatten(0, 1), None, self.eps, inj, keep_y, squares=x.squares)
        return y.view_as(x.r), z.view_as(x.r)

    def forward(
        self, x: Tensor, injection: Tensor | None, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, SavedBlock]:  # fmt: skip
        """x (B, L, D) -> (y, y + injection, the input of `backward`); y in `out` if that is given."""
        mixed, saved = self.mixer.forward(x)
        rows, squares = mixed.r.flatten(0, 1), mixed.squares
        hidden, gu = self.components.channel.gate_up(rows, self.wgu, True, squares, self.eps)
        inj, to = (None if t is None else t.flatten(0, 1) for t in (injection, out))
        y2, z, rstd2 = self.components.norm.forward(rows, hidden @ self.wd.T, self.eps, inj, out=to, squares=squares)
        return y2.view_as(x), z.view_as(x), SavedBlock(saved, mixed.r, gu, hidden, y2, rstd2)

    def backward(self, saved: SavedBlock, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the gradient of x into dx (B, L, D), given that of y."""
        dr = self.components.norm.backward(dy.flatten(0, 1), saved.y2, saved.rstd2)
        add_product(self.target[1], dr, saved.hidden)
        dgu = self.components.channel.hidden_grad(dr, self.wd, saved.gu)
        add_product(self.dwgu, dgu, saved.r1.flatten(0, 1))
        dr1 = dr.addmm_(dgu, self.wgu)
        self.mixer.backward(saved.mixer, dr1.view_as(dy), dx, first)

    def finish(self) -> None:
        """Write the flat gradients."""
        self.mixer.finish()
        unpair_rows(self.dwgu, self.target[0], PAIR)


@dataclass
class Tape:
    """Blocks' saved tensors, one list a call of F, in the order of the calls."""

    calls: list[list[SavedBlock]] = field(default_factory=list)


class Recursion:
    """F and the order in which it is called."""

    def __init__(self, arch: Arch, blocks: list[FastBlock], embedding: Component) -> None:
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


_TILE = 16


class Heads:
    """Columns of the joint logits: vocabulary, halt, continue, zeros up to a multiple of 16."""

    def __init__(self, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        names = ["inner.lm_head.weight", "inner.q_head.weight", "inner.q_head.bias"]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.vocab, width = self.source[0].shape
        columns = -(-(self.vocab + 2) // _TILE) * _TILE
        device = self.source[0].device
        self.weight = torch.zeros(columns, width, dtype=dtype, device=device)
        self.bias = torch.zeros(columns, dtype=dtype, device=device)
        self.total = torch.zeros(columns, width, device=device)

    def pack(self) -> None:
        """Cast the parameters."""
        self.weight[: self.vocab].copy_(self.source[0])
        self.weight[self.vocab : self.vocab + 2].copy_(self.source[1])
        self.bias[self.vocab : self.vocab + 2].copy_(self.source[2])

    def forward(self, z_H: Tensor) -> Tensor:
        """(B, L, D) -> logits (B, L, columns)."""
        return torch.nn.functional.linear(z_H, self.weight, self.bias)

    def backward(self, z_H: Tensor, grad: Tensor) -> Tensor:
        """Gradient of z_H from that of the logits (B, L, columns); writes the flat gradients."""
        self.total.zero_()
        add_product(self.total, grad.flatten(0, 1), z_H.flatten(0, 1))
        self.target[0].copy_(self.total[: self.vocab])
        self.target[1].copy_(self.total[self.vocab : self.vocab + 2])
        self.target[2].copy_(grad[:, 0, self.vocab : self.vocab + 2].float().sum(0))
        return grad @ self.weight
