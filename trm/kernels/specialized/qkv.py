# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The projection to queries, keys and values, the first two turned by their positions before they are written.

Knows no attention.
"""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trm.kernels.specialized.streamed import DEPTH, STAGES, send, staging, stream
from trm.kernels.specialized.tiles import AT_START, descriptor, programs


@gluon.jit
def _angles(table_ptr, first, L: gl.constexpr):
    """Half a head's angles (128, 32) of token rows from `first` on."""
    pair: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16])
    row = (first + gl.arange(0, 128, gl.SliceLayout(1, pair))) % L
    at = row[:, None] * 64 + gl.arange(0, 32, gl.SliceLayout(0, pair))[None, :]
    return gl.load(table_ptr + at)


@gluon.jit
def _halves(x, WIDTH: gl.constexpr):
    """(128, 2 WIDTH) -> its halves of columns; no data moves."""
    return gl.split(gl.permute(gl.reshape(x, (128, 2, WIDTH)), (0, 2, 1)))


@gluon.jit
def _turned(x, cos, sin):
    """(128, 64), a head, turned."""
    a, b = _halves(x, 32)
    cos = gl.convert_layout(cos, a.type.layout, assert_trivial=True)
    sin = gl.convert_layout(sin, a.type.layout, assert_trivial=True)
    both = gl.join(a * cos - b * sin, b * cos + a * sin)
    return gl.reshape(gl.permute(both, (0, 2, 1)), (128, 64))


@gluon.jit
def _begin(row, args):
    """The rows' angles, in registers for all of their tiles: read once a tile they took a tenth of the time."""
    L: gl.constexpr = args[4]
    return _angles(args[1], row, L), _angles(args[2], row, L)


@gluon.jit
def _finish(acc, row, tile, GROUP: gl.constexpr, args, kept):
    """A tile, which is two heads, turned if it is of queries or keys."""
    out, staged, cos, sin = args[0], args[3], kept[0], kept[1]
    TURNED: gl.constexpr = args[5]
    first, second = _halves(acc, 64)
    if tile < TURNED:
        send(out, staged, row, tile * 128, _turned(first, cos, sin).to(out.dtype), GROUP)
        send(out, staged, row, tile * 128 + 64, _turned(second, cos, sin).to(out.dtype), GROUP)
    else:
        send(out, staged, row, tile * 128, first.to(out.dtype), GROUP)
        send(out, staged, row, tile * 128 + 64, second.to(out.dtype), GROUP)


@gluon.jit
def _qkv(x, w, out, cos_ptr, sin_ptr, rows, L: gl.constexpr, TURNED: gl.constexpr, NT: gl.constexpr, KT: gl.constexpr,
         BK: gl.constexpr, S: gl.constexpr):  # fmt: skip
    """out (rows, 128 NT) = x @ w.T; the first 128 TURNED columns, heads of 64, are turned. Rows: sequences of L."""
    stream(x, w, rows, NT, KT, BK, S, _begin, _finish, (out, cos_ptr, sin_ptr, staging(out), L, TURNED))


def project(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, L, D), w (3 D, D), D a multiple of 256 that fits shared memory (512), heads of 64 -> (B, L, 3 D)."""
    batch, length, width = x.shape
    out = x.new_empty(batch, length, len(w))
    _qkv[(programs(x.device),)](
        descriptor(x.view(-1, width), [128, DEPTH]), descriptor(w, [128, DEPTH]),
        descriptor(out.view(-1, len(w)), [64, 64]), cos, sin, batch * length, length, 2 * len(w) // 3 // 128,
        len(w) // 128, width // DEPTH, DEPTH, STAGES, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return out
