"""The two mixers of a block with hand-written backward passes, over packed weights. Know no channel MLP, no recursion.

Weights are cast and packed once a step. Weight gradients of the calls in a step are summed in float32 where they are
made, in the order of the calls; `finish` writes them to the flat gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from trm.kernels.layout import CHUNK, PAD, add_product, pair_rows, unpair_rows
from trm.kernels.parts import Parts

_PARTS = 33
"""Parts of the batch whose token-mixer gradients are summed apart: 4 x 33 programs fill the 132 multiprocessors."""

Saved = tuple[Tensor, ...]


class Mixer(Protocol):
    """x <- norm(x + mix(x))."""

    def pack(self) -> None:
        """Cast the parameters and forget the last step's gradients."""
        ...

    def advance(self, x: Tensor) -> Tensor:
        """(B, L, D) -> the same shape. Keeps nothing for `backward`; x may be overwritten."""
        ...

    def forward(self, x: Tensor) -> tuple[Tensor, Saved]:
        """(B, L, D) -> the same shape, and what `backward` needs."""
        ...

    def backward(self, saved: Saved, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; sum the weights' gradients, from zero if this is the step's `first`."""
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
        self.part, self.eps = parts.mixer, eps
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

    def advance(self, x: Tensor) -> Tensor:
        """(B, L, D) -> the same shape."""
        return self.forward(x)[0]

    def forward(self, x: Tensor) -> tuple[Tensor, Saved]:
        """(B, L, D) -> the same shape, and what `backward` needs."""
        y, rstd = self.part.forward(x, self.wgu, self.wd, self.eps)
        return y, (x, y, rstd)

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

    def pack(self) -> None:
        """Cast the parameters and forget the last step's gradients."""
        self.qkv.copy_(self.source[0])
        self.out.copy_(self.source[1])
        for target in self.target:
            target.zero_()

    def advance(self, x: Tensor) -> Tensor:
        """(B, L, D) -> the same shape; x is overwritten by the sum that is normed."""
        qkv = self.parts.attention.project(x, self.qkv, *self.rotary, self.heads)
        mixed, _ = self.parts.attention.forward(qkv, *self.rotary, self.heads)
        rows = x.flatten(0, 1).addmm_(mixed.flatten(0, 1), self.out.T)
        y: Tensor = self.parts.norm.forward(rows, None, self.eps)[0]
        return y.view_as(x)

    def forward(self, x: Tensor) -> tuple[Tensor, Saved]:
        """(B, L, D) -> the same shape, and what `backward` needs."""
        rows = x.flatten(0, 1)
        qkv = self.parts.attention.project(x, self.qkv, *self.rotary, self.heads)
        mixed, kept = self.parts.attention.forward(qkv, *self.rotary, self.heads)
        y, _, rstd = self.parts.norm.forward(rows, mixed.flatten(0, 1) @ self.out.T, self.eps)
        return y.view_as(x), (rows, qkv, mixed, y, rstd, *kept)

    def backward(self, saved: Saved, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the input's gradient into dx; go on summing the weights' gradients (`pack` starts the sum)."""
        rows, qkv, mixed, y, rstd, *kept = saved
        dr = self.parts.norm.backward(dy.flatten(0, 1), y, rstd, dx.flatten(0, 1))
        add_product(self.target[1], dr, mixed.flatten(0, 1))
        dmixed = (dr @ self.out).view_as(mixed)
        dqkv = self.parts.attention.backward(qkv, *self.rotary, mixed, kept, dmixed, self.heads).flatten(0, 1)
        add_product(self.target[0], dqkv, rows)
        dr.addmm_(dqkv, self.qkv)

    def finish(self) -> None:
        """Nothing: the flat gradients are the sums."""
