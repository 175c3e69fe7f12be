# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The projection to queries, keys and values, the first two turned by their positions before they are written."""

from __future__ import annotations

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from trm.kernels.specialized.streamed import DEPTH, STAGES, period, send, staging, stream
from trm.kernels.specialized.tiles import AT_START, descriptor, programs

PAIR = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]))
"""Half a head of 128 rows."""


@gluon.jit
def _angles(table_ptr, first, L: gl.constexpr):
    """Half a head's angles (128, 32) of token rows from `first` on."""
    row = (first + gl.arange(0, 128, gl.SliceLayout(1, PAIR))) % L
    at = row[:, None] * 64 + gl.arange(0, 32, gl.SliceLayout(0, PAIR))[None, :]
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
    """The rows' angles and 1, in registers for all of their tiles: read once a tile they took a tenth of the time."""
    L: gl.constexpr = args[4]
    one = gl.full((128,), 1.0, gl.float32, gl.SliceLayout(1, PAIR))
    return _angles(args[1], row, L), _angles(args[2], row, L), one


@gluon.jit
def _squares(xs, KT: gl.constexpr):
    """Sums of the rows' squares, (128,): a thread has a row and goes through it in order."""
    lane: gl.constexpr = gl.BlockedLayout([1, 8], [32, 1], [4, 1], [1, 0])
    total = gl.zeros((128,), gl.float32, gl.SliceLayout(1, lane))
    for k in range(KT):
        value = xs.index(k).load(lane).to(gl.float32)
        total += gl.sum(value * value, axis=1)
    return total


@gluon.jit
def _sizes(xs, row, GROUP: gl.constexpr, args, kept):
    """The angles and 1 times 1 / size, for rows whose norm is the input; 1 / size is written too."""
    sums, squares_ptr, rstd_ptr, rows, eps = args[6], args[7], args[8], args[9], args[10]
    PARTS: gl.constexpr = args[11]
    WIDTH: gl.constexpr = args[12]
    total = _squares(xs, WIDTH // 64)
    lane: gl.constexpr = total.type.layout
    at = row + gl.arange(0, 128, lane)
    before = gl.zeros((128,), gl.float32, lane)
    for part in gl.static_range(PARTS):
        before += gl.load(squares_ptr + at * PARTS + part, mask=at < rows, other=0.0)
    rstd = gl.rsqrt(total / WIDTH + eps * (before / WIDTH + eps))
    gl.store(rstd_ptr + at, rstd, mask=at < rows)
    sums.index(GROUP).store(rstd)
    rstd = sums.index(GROUP).load(gl.SliceLayout(1, PAIR))
    return kept[0] * rstd[:, None], kept[1] * rstd[:, None], rstd


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
        if args[11] > 0:
            rstd = gl.convert_layout(kept[2], gl.SliceLayout(1, first.type.layout), assert_trivial=True)[:, None]
            first, second = first * rstd, second * rstd
        send(out, staged, row, tile * 128, first.to(out.dtype), GROUP)
        send(out, staged, row, tile * 128 + 64, second.to(out.dtype), GROUP)


@gluon.jit
def _qkv(x, w, out, cos_ptr, sin_ptr, squares, rstd, eps, rows, around, L: gl.constexpr, TURNED: gl.constexpr,
         NT: gl.constexpr, KT: gl.constexpr, BK: gl.constexpr, S: gl.constexpr, PARTS: gl.constexpr):  # fmt: skip
    """out (rows, 128 NT) = x @ w.T; the first 128 TURNED columns, heads of 64, are turned. Rows: sequences of L.

    PARTS: of the squares of the sum that x is as large as, if its norm is the input; 0 for x itself.
    """
    sums = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    LOOK: gl.constexpr = _sizes if PARTS > 0 else None
    stream(x, w, rows, around, NT, KT, BK, S, _begin, _finish,
           (out, cos_ptr, sin_ptr, staging(out), L, TURNED, sums, squares, rstd, rows, eps, PARTS, KT * BK),
           LOOK)  # fmt: skip


def _launch(
    x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, squares: Tensor, rstd: Tensor, eps: float, parts: int
) -> Tensor:
    batch, length, width = x.shape
    out = x.new_empty(batch, length, len(w))
    rows, count = batch * length, programs(x.device)
    _qkv[(count,)](
        descriptor(x.view(-1, width), [128, DEPTH]), descriptor(w, [128, DEPTH]),
        descriptor(out.view(-1, len(w)), [64, 64]), cos, sin, squares, rstd, eps, rows, period(rows, count), length,
        2 * len(w) // 3 // 128, len(w) // 128, width // DEPTH, DEPTH, STAGES, parts, num_warps=4, maxnreg=AT_START,
    )  # fmt: skip
    return out


def project(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, L, D), w (3 D, D), D a multiple of 256 that fits shared memory (512), heads of 64 -> (B, L, 3 D)."""
    return _launch(x, w, cos, sin, x, x, 0.0, 0)


def project_total(
    x: Tensor, squares: Tensor, w: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(`project` of the norm of x, the factors of the rows of x in it, float32 (rows,)); layout.Total."""
    rstd = squares.new_empty(len(squares))
    return _launch(x, w, cos, sin, squares, rstd, eps, squares.shape[1]), rstd
