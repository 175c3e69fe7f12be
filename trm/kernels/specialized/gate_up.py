# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Channel gate and up with SwiGLU, applied to each tile of products before it is written."""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trm.kernels.specialized.streamed import DEPTH, STAGES, period, send, staging, stream
from trm.kernels.specialized.tiles import AT_START, descriptor, programs, split_pairs, swiglu


@gluon.jit
def _begin(row, args):
    """The factors of the rows' products, if the rows' norm is the input."""
    squares_ptr, rows, eps = args[4], args[5], args[6]
    PARTS: gl.constexpr = args[7]
    WIDTH: gl.constexpr = args[8]
    pair: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    at = row + gl.arange(0, 128, gl.SliceLayout(1, pair))
    total = gl.zeros((128,), gl.float32, gl.SliceLayout(1, pair))
    for part in gl.static_range(PARTS):
        total += gl.load(squares_ptr + at * PARTS + part, mask=at < rows, other=0.0)
    return gl.rsqrt(total / WIDTH + eps)


@gluon.jit
def _finish(acc, row, tile, GROUP: gl.constexpr, args, rstd):
    """Hidden values, and the products if they are kept, of a tile, which is one pair. Hidden stays as large as up."""
    h, gu, staged = args[0], args[1], args[2]
    KEEP: gl.constexpr = args[3]
    gate, up = split_pairs(acc, 128, 64, 64)
    normed = up
    if args[7] > 0:
        rstd = gl.convert_layout(rstd, gl.SliceLayout(1, gate.type.layout), assert_trivial=True)[:, None]
        gate *= rstd
        normed = up * rstd
    if KEEP:
        send(gu, staged, row, tile * 128, gate.to(h.dtype), GROUP)
        send(gu, staged, row, tile * 128 + 64, normed.to(h.dtype), GROUP)
    send(h, staged, row, tile * 64, swiglu(gate, up).to(h.dtype), GROUP)


@gluon.jit
def _gate_up(x, w, h, gu, squares, eps, rows, around, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr,
             S: gl.constexpr, KEEP: gl.constexpr, PARTS: gl.constexpr):  # fmt: skip
    """h (rows, 64 NT) = swiglu(x @ w.T), w (128 NT, KT BK) in pairs of 64; KEEP: the products too, gu, paired.

    PARTS: of 128, of the squares of x, if its norm is the input; 0 for x itself.
    """
    stream(x, w, rows, around, NT, KT, BK, S, _begin, _finish,
           (h, gu, staging(h), KEEP, squares, rows, eps, PARTS, KT * BK))  # fmt: skip


def gate_up(x: Tensor, w: Tensor, keep: bool, squares: Tensor | None = None, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), products (rows, 2N) in paired order, or hidden again unless `keep`).

    squares, of each 128 of x (layout.Sum): both are of x's norm, and hidden is as much larger as x is.

    One tile to write goes out in halves; three, which wait for each other, do so less often as wholes (docs/records).
    """
    rows, width = x.shape
    h = x.new_empty(rows, len(w) // 2)
    gu = x.new_empty(rows, len(w)) if keep else h
    block = [128, 64] if keep else [64, 64]
    count = programs(x.device)
    _gate_up[(count,)](
        descriptor(x, [128, DEPTH]), descriptor(w, [128, DEPTH]), descriptor(h, block), descriptor(gu, block),
        h if squares is None else squares, eps, rows, period(rows, count), len(w) // 128, width // DEPTH, DEPTH,
        STAGES, keep, 0 if squares is None else squares.shape[1], num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return h, gu
