# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Fused token mixer: x <- rms_L(x + SwiGLU over the sequence), forward and backward.

A program holds the whole sequence of one puzzle for a block of channels, so gate and up, the activation, down, the
residual and the norm over the sequence happen in registers; the inner values (1024 wide, eight times the input) never
reach memory. The backward pass computes them again. Sequences of up to PAD positions are padded inside the tile only:
padded weight columns are zero and padded rows are never stored, so the function does not change.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from trm.kernels.device_math import join_pair, split_pairs, swiglu, swiglu_grad
from trm.kernels.layout import CHUNK, PAD

CHANNELS = 64
"""Channels of a program in the forward pass and the input gradient."""
W_CHUNK, W_CHANNELS = 128, 64
"""Inner units a program of the weight gradient owns, and channels a loop iteration reads."""


@triton.jit
def _mixer_forward(x_ptr, wgu, wd, y_ptr, rstd_ptr, eps, L: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
             BN: tl.constexpr, C: tl.constexpr, LP: tl.constexpr):  # fmt: skip
    """One program: one sequence, BN channels. x, y (B, L, D); wgu (2N, LP) packed; wd (N, LP); rstd (B, D)."""
    pid = tl.program_id(0)
    b = (pid // (D // BN)).to(tl.int64)
    rows = tl.arange(0, LP)
    cols = (pid % (D // BN)) * BN + tl.arange(0, BN)
    at = b * (L * D) + rows[:, None] * D + cols[None, :]
    real = (rows < L)[:, None]
    xt = tl.trans(tl.load(x_ptr + at, mask=real, other=0.0))
    out = tl.zeros((BN, LP), tl.float32)
    for c in range(0, N, C):
        gate, up = split_pairs(tl.dot(xt, wgu.load([2 * c, 0]).T), BN, C, C)
        out = tl.dot(swiglu(gate, up).to(xt.dtype), wd.load([c, 0]), out)
    out += xt.to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(out * out, axis=1) / L + eps)
    tl.store(rstd_ptr + b * D + cols, rstd)
    tl.store(y_ptr + at, tl.trans((out * rstd[:, None]).to(xt.dtype)), mask=real)


@triton.jit
def _mixer_input_grad(x_ptr, y_ptr, dy_ptr, rstd_ptr, wgu, wd, dx_ptr, dr_ptr, L: tl.constexpr, D: tl.constexpr,
                N: tl.constexpr, BN: tl.constexpr, C: tl.constexpr, LP: tl.constexpr):  # fmt: skip
    """dx of one sequence and BN channels, and dr, the gradient in front of the norm, for `_weight_grad`."""
    pid = tl.program_id(0)
    b = (pid // (D // BN)).to(tl.int64)
    rows = tl.arange(0, LP)
    cols = (pid % (D // BN)) * BN + tl.arange(0, BN)
    at = b * (L * D) + rows[:, None] * D + cols[None, :]
    real = (rows < L)[:, None]
    y = tl.load(y_ptr + at, mask=real, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + at, mask=real, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + b * D + cols)
    dr = (rstd[None, :] * (dy - y * (tl.sum(y * dy, axis=0) / L)[None, :])).to(dr_ptr.dtype.element_ty)
    tl.store(dr_ptr + at, dr, mask=real)
    xt = tl.trans(tl.load(x_ptr + at, mask=real, other=0.0))
    drt = tl.trans(dr)
    dx = tl.zeros((BN, LP), tl.float32)
    for c in range(0, N, C):
        w = wgu.load([2 * c, 0])
        gate, up = split_pairs(tl.dot(xt, w.T), BN, C, C)
        dgate, dup, _ = swiglu_grad(gate, up, tl.dot(drt, wd.load([c, 0]).T))
        dx = tl.dot(join_pair(dgate, dup, BN, C).to(xt.dtype), w, dx)
    dx += tl.trans(tl.load(dr_ptr + at, mask=real, other=0.0)).to(tl.float32)
    tl.store(dx_ptr + at, tl.trans(dx.to(xt.dtype)), mask=real)


@triton.jit
def _start(sums_ptr, at, ADD: tl.constexpr, C: tl.constexpr, LP: tl.constexpr):
    """A tile of sums: the buffer's values, or zeros."""
    total = tl.zeros((C, LP), tl.float32)
    if ADD:
        total = tl.load(sums_ptr + at)
    return total


@triton.jit
def _mixer_weight_grad(x_ptr, dr_ptr, wgu_ptr, wd_ptr, sums_ptr, B, DOWN: tl.constexpr, ADD: tl.constexpr,
                       SPLITS: tl.constexpr, L: tl.constexpr, D: tl.constexpr, N: tl.constexpr, BN: tl.constexpr,
                       C: tl.constexpr, PACK: tl.constexpr, LP: tl.constexpr):  # fmt: skip
    """Gradients of C inner units over one of SPLITS parts of the batch, into sums (SPLITS, N or 2N, LP).

    DOWN: of the down weight, not of gate and up. ADD: on top of the present sums. Sums for all three at once leave
    no registers for a second iteration's loads; two launches are faster although both compute gate and up.
    The program's weights stay on the chip while the sequences stream by.
    """
    pid = tl.program_id(0)
    part = pid // (N // C)
    rows = tl.arange(0, LP)
    unit = (pid % (N // C)) * C + tl.arange(0, C)
    at_g = ((unit // PACK) * (2 * PACK) + unit % PACK)[:, None] * LP + rows[None, :]
    at_d = unit[:, None] * LP + rows[None, :]
    wg, wu, wd = tl.load(wgu_ptr + at_g), tl.load(wgu_ptr + PACK * LP + at_g), tl.load(wd_ptr + at_d)
    first = part * (N * LP) + at_d if DOWN else part * (2 * N * LP) + at_g
    a = _start(sums_ptr, first, ADD, C, LP)
    b = _start(sums_ptr, first + PACK * LP, ADD and not DOWN, C, LP)
    real = (rows < L)[:, None]
    for i in range((part * B // SPLITS) * (D // BN), ((part + 1) * B // SPLITS) * (D // BN)):
        cols = (i % (D // BN)) * BN + tl.arange(0, BN)
        at = (i // (D // BN)) * tl.full((), L * D, tl.int64) + rows[:, None] * D + cols[None, :]
        x = tl.load(x_ptr + at, mask=real, other=0.0)
        dr = tl.load(dr_ptr + at, mask=real, other=0.0)
        gate, up = tl.dot(wg, x), tl.dot(wu, x)
        if DOWN:
            a = tl.dot(swiglu(gate, up).to(x.dtype), tl.trans(dr), a)
        else:
            dgate, dup, _ = swiglu_grad(gate, up, tl.dot(wd, dr))
            a = tl.dot(dgate.to(x.dtype), tl.trans(x), a)
            b = tl.dot(dup.to(x.dtype), tl.trans(x), b)
    tl.store(sums_ptr + first, a)
    if not DOWN:
        tl.store(sums_ptr + first + PACK * LP, b)


def forward(x: Tensor, wgu: Tensor, wd: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x (B, L, D) -> y (B, L, D) and 1/rms over L, float32 (B, D)."""
    batch, length, width = x.shape
    y, rstd = torch.empty_like(x), x.new_empty(batch, width, dtype=torch.float32)
    _mixer_forward[(batch * (width // CHANNELS),)](
        x, TensorDescriptor.from_tensor(wgu, [2 * CHUNK, PAD]), TensorDescriptor.from_tensor(wd, [CHUNK, PAD]),
        y, rstd, eps, length, width, len(wd), CHANNELS, CHUNK, PAD, num_warps=4, num_stages=2,
    )  # fmt: skip
    return y, rstd


def input_grad(x: Tensor, y: Tensor, rstd: Tensor, dy: Tensor, wgu: Tensor, wd: Tensor, dx: Tensor) -> Tensor:
    """Write dx (B, L, D), the input's gradient; return dr (B, L, D), the gradient of the norm's input."""
    batch, length, width = x.shape
    dr = torch.empty_like(x)
    _mixer_input_grad[(batch * (width // CHANNELS),)](
        x, y, dy, rstd, TensorDescriptor.from_tensor(wgu, [2 * CHUNK, PAD]),
        TensorDescriptor.from_tensor(wd, [CHUNK, PAD]), dx, dr, length, width, len(wd), CHANNELS, CHUNK, PAD,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return dr


def weight_grad(x: Tensor, dr: Tensor, wgu: Tensor, wd: Tensor, dwgu: Tensor, dwd: Tensor, add: bool) -> None:
    """Write (or `add`) float32 partial sums dwgu (parts, 2N, PAD), dwd (parts, N, PAD); no atomics, a fixed order."""
    batch, length, width = x.shape
    for down, sums in ((False, dwgu), (True, dwd)):
        _mixer_weight_grad[(len(sums) * (len(wd) // W_CHUNK),)](
            x, dr, wgu, wd, sums, batch, down, add, len(sums), length, width, len(wd), W_CHANNELS, W_CHUNK, CHUNK, PAD,
            num_warps=8, num_stages=3,
        )  # fmt: skip
