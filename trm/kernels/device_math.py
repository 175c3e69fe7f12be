# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""SwiGLU, its derivative and the arc tangent inside Triton kernels."""

import triton
import triton.language as tl

FAST = tl.constexpr(not triton.knobs.runtime.interpret)
"""Use the GPU's tanh instruction. It has no counterpart in Triton's interpreter, which takes exact exponentials."""


@triton.jit
def tanh(x):
    """float32 -> float32. One instruction where exp and reciprocal are two: the special-function unit is a bottleneck.

    Its error, 2^-11 relative, is a quarter of the bfloat16 rounding that follows.
    """
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def swiglu(gate, up):
    """silu(gate) * up, float32."""
    half = 0.5 * gate
    return (half * up) * (tanh(half) + 1.0)


@triton.jit
def swiglu_grad(gate, up, grad):
    """(d gate, d up, hidden) of hidden = silu(gate) * up, float32."""
    s = 0.5 * tanh(0.5 * gate) + 0.5
    silu = gate * s
    return grad * up * (s + silu - silu * s), grad * silu, silu * up


@triton.jit
def split_pairs(x, ROWS: tl.constexpr, WIDTH: tl.constexpr, PACK: tl.constexpr):
    """(ROWS, 2 * WIDTH), blocks of PACK alternating -> the two halves; no data moves between threads."""
    pairs = tl.reshape(x, (ROWS, WIDTH // PACK, 2, PACK))
    left, right = tl.split(tl.permute(pairs, (0, 1, 3, 2)))
    return tl.reshape(left, (ROWS, WIDTH)), tl.reshape(right, (ROWS, WIDTH))


@triton.jit
def join_pair(left, right, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The inverse of `split_pairs` for one block."""
    return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (ROWS, 2 * WIDTH))


@triton.jit
def atan2_positive(y, x):
    """atan2(y, x) for x >= 0, float32, to 2 units in the last place; 0 at the origin.

    Range reduction and polynomial of Cephes' atanf (Moshier 1992).
    """
    a = tl.abs(y)
    high, low = tl.maximum(a, x), tl.minimum(a, x)
    ratio = low / tl.where(high == 0.0, 1.0, high)
    big = ratio > 0.4142135623730950
    t = tl.where(big, (ratio - 1.0) / (ratio + 1.0), ratio)
    z = t * t
    p = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1
    angle = p * z * t + t + tl.where(big, 0.7853981633974483, 0.0)
    angle = tl.where(a > x, 1.5707963267948966 - angle, angle)
    return tl.where(y < 0, -angle, angle)
