# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Rotary attention over sequences that no tile holds: the GPU libraries' own kernels between rotations in place.

The forward pass is cuDNN's on Hopper, where it is the fastest, otherwise the flash kernel. The backward pass is always
the flash kernel's, in the variant that adds in a fixed order; cuDNN's, as torch calls it, does not. Our own kernels
(trm/kernels/specialized/long_forward.py) are faster on devices that have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 64


@triton.jit
def _turn(q_ptr, k_ptr, v_ptr, out_ptr, cos_ptr, sin_ptr, sign, T, L: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
          STRIDE: tl.constexpr, R: tl.constexpr):  # fmt: skip
    """Rotate R rows of one head of q, k (by `sign` times the angle) or v (not at all) into out (T, 3, H, 2E)."""
    rows = tl.program_id(0) * tl.full((), R, tl.int64) + tl.arange(0, R)
    part, head = tl.program_id(1) // H, (tl.program_id(1) % H) * 2 * E
    column, real = tl.arange(0, E)[None, :], (rows < T)[:, None]
    source = q_ptr
    if part == 1:
        source = k_ptr
    if part == 2:
        source = v_ptr
    at = source + rows[:, None] * STRIDE + head + column
    a = tl.load(at, mask=real, other=0.0).to(tl.float32)
    b = tl.load(at + E, mask=real, other=0.0).to(tl.float32)
    if part < 2:
        angle = (rows % L)[:, None] * 2 * E + column
        c, s = tl.load(cos_ptr + angle), tl.load(sin_ptr + angle) * sign
        a, b = a * c - b * s, b * c + a * s
    to = out_ptr + rows[:, None] * (6 * H * E) + part * 2 * H * E + head + column
    tl.store(to, a.to(out_ptr.dtype.element_ty), mask=real)
    tl.store(to + E, b.to(out_ptr.dtype.element_ty), mask=real)


def _launch(sources: list[Tensor], out: Tensor, cos: Tensor, sin: Tensor, heads: int, sign: float, stride: int) -> None:
    batch, length, triple = out.shape
    grid = (triton.cdiv(batch * length, _ROWS), len(sources) * heads)
    q, k, v = sources[0], sources[1], sources[-1]
    _turn[grid](
        q, k, v, out, cos, sin, sign, batch * length, length, heads, triple // 6 // heads, stride, _ROWS, num_warps=4
    )


def _heads(qkv: Tensor, heads: int) -> tuple[Tensor, ...]:
    """q, k, v (B, heads, L, d) as views of (B, L, 3 D)."""
    batch, length, triple = qkv.shape
    return qkv.view(batch, length, 3, heads, triple // 3 // heads).permute(2, 0, 3, 1, 4).unbind(0)


def forward(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """qkv (B, L, 3 D) -> mixed values (B, L, D) and the logarithms of the softmax's sums; rotates q and k in place."""
    _launch([qkv, qkv[..., qkv.shape[-1] // 3 :]], qkv, cos, sin, heads, 1.0, qkv.shape[-1])
    q, k, v = _heads(qkv, heads)
    if qkv.device.type == "cpu":
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    elif torch.cuda.get_device_capability(qkv.device) == (9, 0) and qkv.dtype == torch.bfloat16:
        out, sums = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True)[:2]
        sums = sums.view(q.shape[:3])
    else:
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[:2]
    return out.transpose(1, 2).flatten(2), (sums,)


def backward(
    qkv: Tensor, cos: Tensor, sin: Tensor, mixed: Tensor, sums: Tensor, dout: Tensor, heads: int
) -> Tensor:  # fmt: skip
    """Gradient of qkv as it was before `forward`, given that of the mixed values (B, L, D)."""
    q, k, v = _heads(qkv, heads)
    out, grad = (x.view(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2) for x in (mixed, dout))
    grads = [g.transpose(1, 2).contiguous() for g in _gradients(grad, q, k, v, out, sums)]
    dqkv = torch.empty_like(qkv)
    _launch(grads, dqkv, cos, sin, heads, -1.0, qkv.shape[-1] // 3)
    return dqkv


def _gradients(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
    """Of q, k and v, each (B, heads, L, d), by a kernel that adds up in a fixed order."""
    if q.device.type == "cpu":
        of_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return tuple(of_cpu(grad, q, k, v, out, sums, 0.0, False))
    length = q.shape[2]
    unused = torch.empty(2, dtype=torch.int64, device=q.device)
    with _deterministic():
        found = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, sums, None, None, length, length, 0.0, False, unused, unused
        )
    return tuple(found)


@contextmanager
def _deterministic() -> Iterator[None]:
    """The fused step turns torch's deterministic mode off while it is recorded; here it chooses the kernel."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
