# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Rotary attention of one short sequence and head in one tile, forward and backward.

Sequences up to PAD positions fit a tile, so there is no running maximum and no saved statistics: the backward pass
computes the probabilities again and needs no atomics. Rotated halves are kept apart: a product over the head is the sum
of the products over its halves. Longer sequences go to trm/kernels/long_attention.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from trm.kernels import long_attention, norm
from trm.kernels.layout import PAD, Total


@triton.jit
def _half(ptr, rows, start, STRIDE: tl.constexpr, L: tl.constexpr, E: tl.constexpr):
    """(LP, E) of a head from column `start`; rows from L on are zero."""
    return tl.load(
        ptr + rows[:, None] * STRIDE + (start + tl.arange(0, E))[None, :], mask=(rows < L)[:, None], other=0.0
    )


@triton.jit
def _put(ptr, value, rows, start, STRIDE: tl.constexpr, L: tl.constexpr, E: tl.constexpr):
    """The inverse of `_half`."""
    at = rows[:, None] * STRIDE + (start + tl.arange(0, E))[None, :]
    tl.store(ptr + at, value.to(ptr.dtype.element_ty), mask=(rows < L)[:, None])


@triton.jit
def _rotated(ptr, cos, sin, rows, start, STRIDE: tl.constexpr, L: tl.constexpr, E: tl.constexpr):
    """Both halves of q or k, rotated by position in float32, in their own type."""
    a = _half(ptr, rows, start, STRIDE, L, E)
    b = _half(ptr, rows, start + E, STRIDE, L, E)
    a32, b32 = a.to(tl.float32), b.to(tl.float32)
    return (a32 * cos - b32 * sin).to(a.dtype), (b32 * cos + a32 * sin).to(a.dtype)


@triton.jit
def _probabilities(qa, qb, ka, kb, rows, scale, L: tl.constexpr):
    """softmax(q k^T * scale), float32 (LP, LP); columns from L on are zero."""
    s = tl.dot(qb, tl.trans(kb), tl.dot(qa, tl.trans(ka))) * scale
    s = tl.where((rows < L)[None, :], s, float("-inf"))
    p = tl.exp(s - tl.max(s, axis=1)[:, None])
    return p / tl.sum(p, axis=1)[:, None]


@triton.jit
def _attention_forward(qkv_ptr, cos_ptr, sin_ptr, out_ptr, scale, L: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
                       LP: tl.constexpr):  # fmt: skip
    """One program: one sequence, one head. qkv (B, L, 3, H, 2E); cos, sin float32 (L, 2E); out (B, L, H, 2E)."""
    b = (tl.program_id(0) // H).to(tl.int64)
    head = (tl.program_id(0) % H) * 2 * E
    rows = tl.arange(0, LP)
    width: tl.constexpr = 2 * E * H
    qkv = qkv_ptr + b * (L * 3 * width) + head
    cos, sin = _half(cos_ptr, rows, 0, 2 * E, L, E), _half(sin_ptr, rows, 0, 2 * E, L, E)
    qa, qb = _rotated(qkv, cos, sin, rows, 0, 3 * width, L, E)
    ka, kb = _rotated(qkv, cos, sin, rows, width, 3 * width, L, E)
    p = _probabilities(qa, qb, ka, kb, rows, scale, L).to(qa.dtype)
    out = out_ptr + b * (L * width) + head
    v = _half(qkv, rows, 2 * width, 3 * width, L, 2 * E)
    _put(out, tl.dot(p, v), rows, 0, width, L, 2 * E)


@triton.jit
def _unrotated(ptr, da, db, cos, sin, rows, start, STRIDE: tl.constexpr, L: tl.constexpr, E: tl.constexpr):
    """Store the gradient of q or k, given that of its rotated halves."""
    _put(ptr, da * cos + db * sin, rows, start, STRIDE, L, E)
    _put(ptr, db * cos - da * sin, rows, start + E, STRIDE, L, E)


@triton.jit
def _attention_backward(qkv_ptr, cos_ptr, sin_ptr, dout_ptr, dqkv_ptr, scale, L: tl.constexpr, H: tl.constexpr,
                        E: tl.constexpr, LP: tl.constexpr):  # fmt: skip
    """dqkv (B, L, 3, H, 2E) of one sequence and head."""
    b = (tl.program_id(0) // H).to(tl.int64)
    head = (tl.program_id(0) % H) * 2 * E
    rows = tl.arange(0, LP)
    width: tl.constexpr = 2 * E * H
    qkv, dqkv = qkv_ptr + b * (L * 3 * width) + head, dqkv_ptr + b * (L * 3 * width) + head
    cos, sin = _half(cos_ptr, rows, 0, 2 * E, L, E), _half(sin_ptr, rows, 0, 2 * E, L, E)
    qa, qb = _rotated(qkv, cos, sin, rows, 0, 3 * width, L, E)
    ka, kb = _rotated(qkv, cos, sin, rows, width, 3 * width, L, E)
    p = _probabilities(qa, qb, ka, kb, rows, scale, L)
    dout = _half(dout_ptr + b * (L * width) + head, rows, 0, width, L, 2 * E)
    _put(dqkv, tl.dot(tl.trans(p.to(dout.dtype)), dout), rows, 2 * width, 3 * width, L, 2 * E)
    dp = tl.dot(dout, tl.trans(_half(qkv, rows, 2 * width, 3 * width, L, 2 * E)))
    ds = (p * (dp - tl.sum(p * dp, axis=1)[:, None]) * scale).to(dout.dtype)
    _unrotated(dqkv, tl.dot(ds, ka), tl.dot(ds, kb), cos, sin, rows, 0, 3 * width, L, E)
    dst = tl.trans(ds)
    _unrotated(dqkv, tl.dot(dst, qa), tl.dot(dst, qb), cos, sin, rows, width, 3 * width, L, E)


def project(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
    """x (B, L, D), w (3 D, D) -> the input of `forward`, (B, L, 3 D): here the product alone."""
    return (x.flatten(0, 1) @ w.T).view(*x.shape[:2], -1)


def project_total(
    total: Total, w: Tensor, cos: Tensor, sin: Tensor, heads: int, eps: float
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """(`project` of the norm, 1 / the rows' sizes, or None if the rows are overwritten by their norm)."""
    rows = total.r.flatten(0, 1)
    norm.forward(rows, None, eps, out=rows, squares=total.squares)
    return project(total.r, w, cos, sin, heads), None


def forward(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """qkv (B, L, 3 D), q then k then v; cos, sin float32 (L, D / heads), half-split -> mixed values (B, L, D) and the
    other input of `backward`. May leave q and k rotated."""
    batch, length, triple = qkv.shape
    if length > PAD:
        return long_attention.forward(qkv, cos, sin, heads)
    out = qkv.new_empty(batch, length, triple // 3)
    head = triple // 3 // heads
    _attention_forward[(batch * heads,)](
        qkv, cos, sin, out, head**-0.5, length, heads, head // 2, PAD, num_warps=8, num_stages=1
    )
    return out, ()


def pack_out(w: Tensor, target: Tensor) -> None:
    """The output projection's weight (D, D) as `add` takes it; casts."""
    target.copy_(w)


def add(x: Tensor, mixed: Tensor, w: Tensor, out: Tensor, rstd: Tensor | None = None) -> Tensor:
    """out = x * rstd + mixed @ w.T, all (rows, D), out may be x -> the sum of its squares a row, float32, in parts."""
    if rstd is not None:
        x = (x * rstd[:, None]).to(x.dtype)
    torch.addmm(x, mixed, w.T, out=out)
    wide = torch.promote_types(out.dtype, torch.float32)
    squares: Tensor = torch.linalg.vector_norm(out, dim=-1, keepdim=True, dtype=wide).square_()
    return squares


def backward(
    qkv: Tensor, cos: Tensor, sin: Tensor, mixed: Tensor, kept: Sequence[Tensor], dout: Tensor, heads: int
) -> Tensor:  # fmt: skip
    """Gradient of the input of `forward`, given its results and the gradient of the mixed values."""
    batch, length, triple = qkv.shape
    if length > PAD:
        return long_attention.backward(qkv, cos, sin, mixed, kept[0], dout, heads)
    dqkv = torch.empty_like(qkv)
    head = triple // 3 // heads
    _attention_backward[(batch * heads,)](
        qkv, cos, sin, dout, dqkv, head**-0.5, length, heads, head // 2, PAD, num_warps=8, num_stages=1
    )
    return dqkv
