# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Fused residual, RMS norm over channels and injection, forward and backward.

A sum whose norm is never written (layout.Sum) stays `size` times as large, size = sqrt(mean of its squares + eps), and
so do its addends. The next norm divides by size, with its own eps as much larger; gradients are as much smaller.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 8
"""Token rows of a program."""


@triton.jit
def _from_the_end(R: tl.constexpr):
    """A program's rows, the first program's the last ones: those were written last and are in the cache still."""
    return (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64) * R + tl.arange(0, R)


@triton.jit
def _size_squared(squares_ptr, rows, eps, T, D: tl.constexpr, P: tl.constexpr):
    """Of rows whose squares are summed in P parts."""
    total = tl.load(squares_ptr + rows * P, mask=rows < T, other=0.0)
    for part in tl.static_range(1, P):
        total += tl.load(squares_ptr + rows * P + part, mask=rows < T, other=0.0)
    return total / D + eps


@triton.jit
def _norm_forward(x_ptr, m_ptr, squares_ptr, inj_ptr, y_ptr, z_ptr, rstd_ptr, eps, T, D: tl.constexpr, R: tl.constexpr,
                  M: tl.constexpr, P: tl.constexpr, Y: tl.constexpr, Z: tl.constexpr):  # fmt: skip
    rows = _from_the_end(R)
    real = (rows < T)[:, None]
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    kind: tl.constexpr = x_ptr.dtype.element_ty
    r = tl.load(x_ptr + at, mask=real, other=0.0).to(tl.float32)
    if M:
        r = (r + tl.load(m_ptr + at, mask=real, other=0.0)).to(kind).to(tl.float32)
    least = eps
    if P:
        least = eps * _size_squared(squares_ptr, rows, eps, T, D, P)
    rstd = 1.0 / tl.sqrt(tl.sum(r * r, axis=1) / D + least)
    y = (r * rstd[:, None]).to(kind)
    tl.store(rstd_ptr + rows, rstd, mask=rows < T)
    if Y:
        tl.store(y_ptr + at, y, mask=real)
    if Z:
        z = y.to(tl.float32) + tl.load(inj_ptr + at, mask=real, other=0.0)
        tl.store(z_ptr + at, z.to(kind), mask=real)


@triton.jit
def _norm_backward(dy_ptr, y_ptr, rstd_ptr, dr_ptr, T, D: tl.constexpr, R: tl.constexpr):
    rows = _from_the_end(R)
    real = (rows < T)[:, None]
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    y = tl.load(y_ptr + at, mask=real, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + at, mask=real, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + rows, mask=rows < T, other=0.0)
    dr = rstd[:, None] * (dy - y * (tl.sum(y * dy, axis=1) / D)[:, None])
    tl.store(dr_ptr + at, dr.to(dr_ptr.dtype.element_ty), mask=real)


@triton.jit
def _backward_of_sum(g_ptr, r_ptr, squares_ptr, dr_ptr, eps, T, D: tl.constexpr, R: tl.constexpr, P: tl.constexpr):
    rows = _from_the_end(R)
    real = (rows < T)[:, None]
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    r = tl.load(r_ptr + at, mask=real, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + at, mask=real, other=0.0).to(tl.float32)
    along = tl.sum(r * g, axis=1) / D / _size_squared(squares_ptr, rows, eps, T, D, P)
    tl.store(dr_ptr + at, (g - r * along[:, None]).to(dr_ptr.dtype.element_ty), mask=real)


def forward(
    x: Tensor, m: Tensor | None, eps: float, injection: Tensor | None = None, keep: bool = True,
    out: Tensor | None = None, squares: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(y, z, rstd): y = rms(x + m) over the last axis, z = y + injection, rstd float32 (rows,) of x + m as they are.

    x, m: (rows, D), D a power of two; m None: nothing is added. Without injection z is y; with it and without `keep`,
    y is not stored (z again). A y that is stored is written to `out` if that is given. squares: of a sum that x and m
    are `size` times as large for, a power of two of parts.
    """
    rows, width = x.shape
    wants_y = keep or injection is None
    z = torch.empty_like(x) if injection is not None else x
    y = z if not wants_y else torch.empty_like(x) if out is None else out
    rstd = x.new_empty(rows, dtype=torch.float32)
    _norm_forward[(triton.cdiv(rows, ROWS),)](
        x, x if m is None else m, x if squares is None else squares, x if injection is None else injection,
        y, z, rstd, eps, rows, width, ROWS, m is not None, 0 if squares is None else squares.shape[1], wants_y,
        injection is not None, num_warps=4,
    )  # fmt: skip
    return y, (y if injection is None else z), rstd


def backward(dy: Tensor, y: Tensor, rstd: Tensor, out: Tensor | None = None) -> Tensor:
    """Gradient of x + m, (rows, D), written to `out` if that is given."""
    rows, width = dy.shape
    dr = torch.empty_like(dy) if out is None else out
    _norm_backward[(triton.cdiv(rows, ROWS),)](dy, y, rstd, dr, rows, width, ROWS, num_warps=4)
    return dr


def backward_of_sum(g: Tensor, r: Tensor, squares: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """Gradient of r (rows, D), written to `out` if that is given, from g, that for a size which does not change.

    Values made of r and of its size grow with both as r does, and the next norm divides by the size, so there is no
    gradient along r. g: of r and its addends, `size` times smaller than that of the normed values.
    """
    rows, width = r.shape
    dr = torch.empty_like(g) if out is None else out
    _backward_of_sum[(triton.cdiv(rows, ROWS),)](
        g, r, squares, dr, eps, rows, width, ROWS, squares.shape[1], num_warps=4
    )
    return dr
