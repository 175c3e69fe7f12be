# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Adam-atan2 and EMA over a flat buffer in one pass. The definition is trm/optim.py.

The step's rates are read from the device, so a captured graph can be replayed for every step.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from trm.kernels.device_math import atan2_positive

_BLOCK = 1024


def rates(t: int, lr: float, betas: tuple[float, float], weight_decay: float) -> tuple[float, float, float]:
    """(decay factor, step size, bias correction of the second moment) of the t-th update."""
    return 1 - lr * weight_decay, lr / (1 - betas[0] ** t), 1 / math.sqrt(1 - betas[1] ** t)


@triton.jit
def _update(p_ptr, g_ptr, m_ptr, v_ptr, ema_ptr, rates_ptr, beta1, beta2, ema_rate, N, EMA: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < N
    decay, size, correction = tl.load(rates_ptr), tl.load(rates_ptr + 1), tl.load(rates_ptr + 2)
    p, g = tl.load(p_ptr + at, mask=real, other=0.0), tl.load(g_ptr + at, mask=real, other=0.0)
    m, v = tl.load(m_ptr + at, mask=real, other=0.0), tl.load(v_ptr + at, mask=real, other=0.0)
    m += (1.0 - beta1) * (g - m)
    v = beta2 * v + (1.0 - beta2) * (g * g)
    p = p * decay - size * atan2_positive(m, tl.sqrt(v) * correction)
    tl.store(p_ptr + at, p, mask=real)
    tl.store(m_ptr + at, m, mask=real)
    tl.store(v_ptr + at, v, mask=real)
    if EMA:
        ema = tl.load(ema_ptr + at, mask=real, other=0.0)
        tl.store(ema_ptr + at, ema + (1.0 - ema_rate) * (p - ema), mask=real)


def adam_atan2_ema_(
    p: Tensor, grad: Tensor, m: Tensor, v: Tensor, ema: Tensor | None, step_rates: Tensor,
    betas: tuple[float, float], ema_rate: float,
) -> None:  # fmt: skip
    """Update the float32 buffers p, m, v and ema (if any) in place. step_rates: float32 (3,), from `rates`."""
    count = p.numel()
    _update[(triton.cdiv(count, _BLOCK),)](
        p, grad, m, v, p if ema is None else ema, step_rates, betas[0], betas[1], ema_rate, count, ema is not None,
        _BLOCK,
    )  # fmt: skip
