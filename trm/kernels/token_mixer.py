# mypy: disable-error-code="no-untyped-def"
"""Fused token mixer: x <- rms_L(x + SwiGLU over the sequence), forward and backward. Knows no recursion.

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

from trm.kernels.device_math import join_pair, split_pair, swiglu, swiglu_grad
from trm.kernels.layout import CHUNK, PAD

CHANNELS = 64
"""Channels of a program in the forward pass and the input gradient."""
W_CHUNK, W_CHANNELS = 128, 32
"""Inner units a program of the weight gradient owns, and channels a loop iteration reads."""


@triton.jit
def _forward(x_ptr, wgu, wd, y_ptr, rstd_ptr, eps, L: tl.constexpr, D: tl.constexpr, I: tl.constexpr,
             BN: tl.constexpr, C: tl.constexpr, LP: tl.constexpr):  # fmt: skip
    """One program: one sequence, BN channels. x, y (B, L, D); wgu (2I, LP) packed; wd (I, LP); rstd (B, D)."""
    pid = tl.program_id(0)
    b = (pid // (D // BN)).to(tl.int64)
    rows = tl.arange(0, LP)
    cols = (pid % (D // BN)) * BN + tl.arange(0, BN)
    at = b * (L * D) + rows[:, None] * D + cols[None, :]
    real = (rows < L)[:, None]
    xt = tl.trans(tl.load(x_ptr + at, mask=real, other=0.0))
    out = tl.zeros((BN, LP), tl.float32)
    for c in range(0, I, C):
        gate, up = split_pair(tl.dot(xt, wgu.load([2 * c, 0]).T), BN, C)
        out = tl.dot(swiglu(gate, up).to(xt.dtype), wd.load([c, 0]), out)
    out += xt.to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(out * out, axis=1) / L + eps)
    tl.store(rstd_ptr + b * D + cols, rstd)
    tl.store(y_ptr + at, tl.trans((out * rstd[:, None]).to(xt.dtype)), mask=real)


@triton.jit
def _input_grad(x_ptr, y_ptr, dy_ptr, rstd_ptr, wgu, wd, dx_ptr, dr_ptr, L: tl.constexpr, D: tl.constexpr,
                I: tl.constexpr, BN: tl.constexpr, C: tl.constexpr, LP: tl.constexpr):  # fmt: skip
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
    for c in range(0, I, C):
        w = wgu.load([2 * c, 0])
        gate, up = split_pair(tl.dot(xt, w.T), BN, C)
        dgate, dup, _ = swiglu_grad(gate, up, tl.dot(drt, wd.load([c, 0]).T))
        dx = tl.dot(join_pair(dgate, dup, BN, C).to(xt.dtype), w, dx)
    dx += tl.trans(tl.load(dr_ptr + at, mask=real, other=0.0)).to(tl.float32)
    tl.store(dx_ptr + at, tl.trans(dx.to(xt.dtype)), mask=real)


@triton.jit
def _weight_grad(x_ptr, dr_ptr, wgu_ptr, wd_ptr, dwgu_ptr, dwd_ptr, B, ADD: tl.constexpr, SPLITS: tl.constexpr,
                 L: tl.constexpr, D: tl.constexpr, I: tl.constexpr, BN: tl.constexpr, C: tl.constexpr,
                 PACK: tl.constexpr, LP: tl.constexpr):  # fmt: skip
    """Gradients of C inner units over one of SPLITS parts of the batch: dwgu (SPLITS, 2I, LP), dwd (SPLITS, I, LP).

    The program's weights stay on the chip while the sequences stream by. ADD: on top of what the buffers hold.
    """
    pid = tl.program_id(0)
    part = pid // (I // C)
    rows = tl.arange(0, LP)
    unit = (pid % (I // C)) * C + tl.arange(0, C)
    at_g = ((unit // PACK) * (2 * PACK) + unit % PACK)[:, None] * LP + rows[None, :]
    at_d = unit[:, None] * LP + rows[None, :]
    wg, wu = tl.load(wgu_ptr + at_g), tl.load(wgu_ptr + PACK * LP + at_g)
    wd = tl.load(wd_ptr + at_d)
    dwg, dwu, dwd = tl.zeros((C, LP), tl.float32), tl.zeros((C, LP), tl.float32), tl.zeros((C, LP), tl.float32)
    real = (rows < L)[:, None]
    for i in range((part * B // SPLITS) * (D // BN), ((part + 1) * B // SPLITS) * (D // BN)):
        cols = (i % (D // BN)) * BN + tl.arange(0, BN)
        at = (i // (D // BN)) * (L * D) + rows[:, None] * D + cols[None, :]
        x = tl.load(x_ptr + at, mask=real, other=0.0)
        dr = tl.load(dr_ptr + at, mask=real, other=0.0)
        dgate, dup, hidden = swiglu_grad(tl.dot(wg, x), tl.dot(wu, x), tl.dot(wd, dr))
        dwg = tl.dot(dgate.to(x.dtype), tl.trans(x), dwg)
        dwu = tl.dot(dup.to(x.dtype), tl.trans(x), dwu)
        dwd = tl.dot(hidden.to(x.dtype), tl.trans(dr), dwd)
    at_g += part * (2 * I * LP)
    at_d += part * (I * LP)
    if ADD:
        dwg += tl.load(dwgu_ptr + at_g)
        dwu += tl.load(dwgu_ptr + PACK * LP + at_g)
        dwd += tl.load(dwd_ptr + at_d)
    tl.store(dwgu_ptr + at_g, dwg)
    tl.store(dwgu_ptr + PACK * LP + at_g, dwu)
    tl.store(dwd_ptr + at_d, dwd)


def forward(x: Tensor, wgu: Tensor, wd: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x (B, L, D) -> y (B, L, D) and 1/rms over L, float32 (B, D)."""
    batch, length, width = x.shape
    y, rstd = torch.empty_like(x), x.new_empty(batch, width, dtype=torch.float32)
    _forward[(batch * (width // CHANNELS),)](
        x, TensorDescriptor.from_tensor(wgu, [2 * CHUNK, PAD]), TensorDescriptor.from_tensor(wd, [CHUNK, PAD]),
        y, rstd, eps, length, width, len(wd), CHANNELS, CHUNK, PAD, num_warps=4, num_stages=3,
    )  # fmt: skip
    return y, rstd


def input_grad(x: Tensor, y: Tensor, rstd: Tensor, dy: Tensor, wgu: Tensor, wd: Tensor, dx: Tensor) -> Tensor:
    """Write dx (B, L, D), the input's gradient; return dr (B, L, D), the gradient of what the norm was applied to."""
    batch, length, width = x.shape
    dr = torch.empty_like(x)
    _input_grad[(batch * (width // CHANNELS),)](
        x, y, dy, rstd, TensorDescriptor.from_tensor(wgu, [2 * CHUNK, PAD]),
        TensorDescriptor.from_tensor(wd, [CHUNK, PAD]), dx, dr, length, width, len(wd), CHANNELS, CHUNK, PAD,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return dr


def weight_grad(x: Tensor, dr: Tensor, wgu: Tensor, wd: Tensor, dwgu: Tensor, dwd: Tensor, add: bool) -> None:
    """Write (or `add`) float32 partial sums dwgu (parts, 2I, PAD), dwd (parts, I, PAD); no atomics, a fixed order."""
    batch, length, width = x.shape
    _weight_grad[(len(dwgu) * (len(wd) // W_CHUNK),)](
        x, dr, wgu, wd, dwgu, dwd, batch, add, len(dwgu), length, width, len(wd), W_CHANNELS, W_CHUNK, CHUNK, PAD,
        num_warps=8, num_stages=3,
    )  # fmt: skip
