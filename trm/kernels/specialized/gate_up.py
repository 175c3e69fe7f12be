# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Channel gate and up with SwiGLU, applied to each tile of products before it is written. Knows no recursion."""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trm.kernels.specialized.streamed import DEPTH, STAGES, send, staging, stream
from trm.kernels.specialized.tiles import AT_START, descriptor, programs, split_pairs, swiglu


@gluon.jit
def _begin(row, _args):
    """Nothing of the rows is kept."""
    return row


@gluon.jit
def _finish(acc, row, tile, GROUP: gl.constexpr, args, _kept):
    """Hidden values, and the products if they are kept, of a tile, which is one pair."""
    h, gu, staged = args[0], args[1], args[2]
    KEEP: gl.constexpr = args[3]
    gate, up = split_pairs(acc, 128, 64, 64)
    if KEEP:
        send(gu, staged, row, tile * 128, gate.to(h.dtype), GROUP)
        send(gu, staged, row, tile * 128 + 64, up.to(h.dtype), GROUP)
    send(h, staged, row, tile * 64, swiglu(gate, up).to(h.dtype), GROUP)


@gluon.jit
def _gate_up(x, w, h, gu, rows, NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr, S: gl.constexpr,
             KEEP: gl.constexpr):  # fmt: skip
    """h (rows, 64 NT) = swiglu(x @ w.T), w (128 NT, KT BK) in pairs of 64; KEEP: the products too, gu, paired."""
    stream(x, w, rows, NT, KT, BK, S, _begin, _finish, (h, gu, staging(h), KEEP))


def gate_up(x: Tensor, w: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """(hidden (rows, N), products (rows, 2N) in paired order, or hidden again unless `keep`).

    One tile to write goes out in halves; three, which wait for each other, do so less often as wholes (docs/records).
    """
    rows, width = x.shape
    h = x.new_empty(rows, len(w) // 2)
    gu = x.new_empty(rows, len(w)) if keep else h
    block = [128, 64] if keep else [64, 64]
    _gate_up[(programs(x.device),)](
        descriptor(x, [128, DEPTH]), descriptor(w, [128, DEPTH]), descriptor(h, block), descriptor(gu, block),
        rows, len(w) // 128, width // DEPTH, DEPTH, STAGES, keep, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return h, gu
