"""The two mixers of a block with hand-written backward passes, over packed weights. Know no channel MLP, no recursion.

Weights are cast and packed once a step. Weight gradients of the calls in a step are summed in float32 where they are
made, in the order of the calls; `finish` writes them to the flat gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from trm.kernels.layout import CHUNK, PAD, Sum, Total, add_product, pair_rows, unpair_rows
from trm.kernels.parts import Parts

_PARTS = 33
"""Parts of the batch whose token-mixer gradients are summed apart: 4 x 33 programs fill the 132 multiprocessors."""

Saved = tuple[Tensor, ...]


class Mixer(Protocol):
    """x <- norm(x + mix(x))."""

    def pack(self) -> None:
        """Cast the parameters and forget the last step's gradients."""
        ...

    def advance(self, x: Tensor | Total) -> Sum:
        """(B, L, D), or what it is the norm of -> the same of the output. Keeps nothing, and may overwrite x."""
        ...

    def forward(self, x: Tensor) -> tuple[Sum, Saved]:
        """(B, L, D) -> what the output is the norm of, and what `backward` needs."""
        ...

    def backward(self, saved: Saved, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; sum the weights' gradients, from zero if this is the step's `first`.

        dy: the output's gradient; of a `Sum` not yet normed that of its rows and what is added, the size held fixed.
        """
        ...

    def finish(self) -> None:
        """Write the flat gradients."""
        ...


class TokenMixer:
    """x <- rms_L(x + SwiGLU over the sequence)."""

    def __init__(
        self, prefix: str, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], parts: Parts,
        dtype: torch.dtype, eps: float, batch: int,
    ) -> None:  # fmt: skip
        names = [f"{prefix}mlp_t.{part}.weight" for part in ("gate_up_proj", "down_proj")]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.part, self.norm, self.eps = parts.mixer, parts.norm, eps
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
        """(B, L, D), or what it is the norm of -> the output."""
        if isinstance(x, Total):
            y: Tensor = self.norm.forward(x.r.flatten(0, 1), None, self.eps, squares=x.squares)[0]
            return self.forward(y.view_as(x.r))[0]
        return self.forward(x)[0]

    def forward(self, x: Tensor) -> tuple[Sum, Saved]:
        """(B, L, D) -> the output, and what `backward` needs."""
        y, rstd = self.part.forward(x, self.wgu, self.wd, self.eps)
        return Sum(y), (x, y, rstd)

    def backward(self, saved: Saved, dy: Tensor, dx: Tensor, first: bool) -> None:
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
        self, prefix: str, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], parts: Parts,
        dtype: torch.dtype, eps: float, heads: int, rotary: tuple[Tensor, Tensor],
    ) -> None:  # fmt: skip
        names = [f"{prefix}self_attn.{part}.weight" for part in ("qkv_proj", "o_proj")]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.parts, self.eps, self.heads, self.rotary = parts, eps, heads, rotary
        self.qkv, self.out = (torch.empty_like(w, dtype=dtype) for w in self.source)
        self.to_add = torch.empty_like(self.out)

    def pack(self) -> None:
        """Cast the parameters and forget the last step's gradients."""
        self.qkv.copy_(self.source[0])
        self.out.copy_(self.source[1])
        self.parts.attention.pack_out(self.source[1], self.to_add)
        for target in self.target:
            target.zero_()

    def advance(self, x: Tensor | Total) -> Sum:
        """(B, L, D), or what it is the norm of -> what the output is the norm of: x, overwritten."""
        if isinstance(x, Total):
            qkv, rstd = self.parts.attention.project_total(x, self.qkv, *self.rotary, self.heads, self.eps)
            x = x.r
        else:
            qkv, rstd = self.parts.attention.project(x, self.qkv, *self.rotary, self.heads), None
        mixed, _ = self.parts.attention.forward(qkv, *self.rotary, self.heads)
        rows = x.flatten(0, 1)
        return Sum(x, self.parts.attention.add(rows, mixed.flatten(0, 1), self.to_add, rows, rstd))

    def forward(self, x: Tensor) -> tuple[Sum, Saved]:
        """(B, L, D) -> what the output is the norm of, and what `backward` needs."""
        part, rows, r = self.parts.attention, x.flatten(0, 1), torch.empty_like(x)
        qkv = part.project(x, self.qkv, *self.rotary, self.heads)
        mixed, kept = part.forward(qkv, *self.rotary, self.heads)
        squares = part.add(rows, mixed.flatten(0, 1), self.to_add, r.flatten(0, 1))
        return Sum(r, squares), (rows, qkv, mixed, r.flatten(0, 1), squares, *kept)

    def backward(self, saved: Saved, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; go on summing the weights' gradients (`pack` starts the sum)."""
        rows, qkv, mixed, r, squares, *kept = saved
        dr = self.parts.norm.backward_of_sum(dy.flatten(0, 1), r, squares, self.eps, dx.flatten(0, 1))
        add_product(self.target[1], dr, mixed.flatten(0, 1))
        dmixed = (dr @ self.out).view_as(mixed)
        dqkv = self.parts.attention.backward(qkv, *self.rotary, mixed, kept, dmixed, self.heads).flatten(0, 1)
        add_product(self.target[0], dqkv, rows)
        dr.addmm_(dqkv, self.qkv)

    def finish(self) -> None:
        """Nothing: the flat gradients are the sums."""
