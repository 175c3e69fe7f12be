"""Relative error of every fused kernel on this GPU, in bfloat16 at full size, and whether two runs give equal bytes.

    python benchmarks/kernel_errors.py

The truth is the plain twin in float64 on the first and last sequences. Exit 1 if an error is above LIMIT or bytes move.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from relative_error import Outputs, Report, edge, random
from torch import Tensor

from relay.torch.digest import digest
from trm.data.dataset import IGNORE
from trm.kernels import plain
from trm.kernels.components import fused_components
from trm.kernels.layout import CHUNK, PAD, Anew, Tables, Total, pair_rows
from trm.layers import rotary_tables

KERNELS = fused_components()
"""Takes the sizes of a training step on this GPU."""
BATCH, LENGTH, MIDDLE, LONG, WIDTH, INNER, CHANNEL = 768, 97, 305, 916, 512, 512, 1536
ROWS = BATCH * LENGTH
EPS = 1e-5
"""Of the norms."""


def mixer(report: Report) -> None:
    """Forward, input gradient; weight gradients on a batch small enough for float64."""
    wgu, wd = (torch.zeros(rows, PAD, device="cuda").bfloat16() for rows in (2 * INNER, INNER))
    pair_rows(random(2 * INNER, LENGTH, scale=LENGTH**-0.5), wgu, CHUNK)
    wd[:, :LENGTH] = random(INNER, LENGTH, scale=INNER**-0.5)
    x, dy = random(BATCH, LENGTH, WIDTH), random(BATCH, LENGTH, WIDTH)
    weights, wide = (wgu, wd), (wgu.double(), wd.double())
    report.line(
        "mixer forward",
        lambda: KERNELS.mixer.forward(x, *weights, EPS)[0],
        lambda: plain.PlainMixer.forward(edge(x), *wide, EPS)[0],
    )
    y, rstd = KERNELS.mixer.forward(x, *weights, EPS)

    def input_grad(part: Any, *tensors: Tensor) -> Outputs:
        dx = torch.empty_like(tensors[0])
        dr = part.input_grad(*tensors, dx)
        return dx, dr

    report.line(
        "mixer input gradient",
        lambda: input_grad(KERNELS.mixer, x, y, rstd, dy, *weights),
        lambda: input_grad(plain.PlainMixer, *(edge(t) for t in (x, y, rstd, dy)), *wide),
    )

    def weight_grad(part: Any, parts: int, *tensors: Tensor) -> Outputs:
        kind = torch.promote_types(tensors[0].dtype, torch.float32)
        sums = [torch.zeros(parts, rows, PAD, device="cuda", dtype=kind) for rows in (2 * INNER, INNER)]
        part.weight_grad(*tensors, *sums, False)
        return tuple(total.sum(0)[:, :LENGTH] for total in sums)

    few, dr = x[:8].contiguous(), dy[:8].contiguous()
    report.line(
        "mixer weight gradients",
        lambda: weight_grad(KERNELS.mixer, 33, few, dr, *weights),
        lambda: weight_grad(plain.PlainMixer, 1, few.double(), dr.double(), *wide),
        edges=False,
    )


def channel(report: Report) -> None:
    """Gate-up with and without kept products, and the hidden gradient."""
    x, dr = random(ROWS, WIDTH), random(ROWS, WIDTH)
    up, down = random(2 * CHANNEL, WIDTH, scale=WIDTH**-0.5), random(WIDTH, CHANNEL, scale=CHANNEL**-0.5)
    products = random(ROWS, 2 * CHANNEL)
    twin = plain.PlainChannel
    report.line(
        "gate-up",
        lambda: KERNELS.channel.gate_up(x, up, False)[0],
        lambda: twin.gate_up(edge(x), up.double(), False)[0],
    )
    report.line(
        "gate-up, kept", lambda: KERNELS.channel.gate_up(x, up, True), lambda: twin.gate_up(edge(x), up.double(), True)
    )
    report.line(
        "hidden gradient",
        lambda: KERNELS.channel.hidden_grad(dr, down, products),
        lambda: twin.hidden_grad(edge(dr), down.double(), edge(products)),
    )


def attention(report: Report, batch: int, length: int) -> None:
    """Projection and attention, forward and backward; q and k are rotated in place, so each run gets its own."""
    x, w, dout = random(batch, length, WIDTH), random(3 * WIDTH, WIDTH, scale=WIDTH**-0.5), random(batch, length, WIDTH)
    cos, sin = (table.cuda() for table in rotary_tables(length, 64, 10000.0))
    rotary = (cos, sin, 8)
    part, twin = KERNELS.attention, plain.PlainAttention
    mixed, kept = part.forward(projected := part.project(x, w, *rotary), *rotary)
    true = twin.project(edge(x), w.double(), *rotary)
    report.line(
        f"attention {length}",
        lambda: part.forward(part.project(x, w, *rotary), *rotary)[0],
        lambda: twin.forward(true, *rotary)[0],
    )
    report.line(
        f"attention {length} backward",
        lambda: part.backward(projected, cos, sin, mixed, kept, dout, 8),
        lambda: twin.backward(true, cos, sin, edge(mixed), (), edge(dout), 8),
    )


def sums(report: Report) -> None:
    """Outputs in the precision of the sum they belong to, and the gradient of that sum."""
    x, mixed, m, g = (random(ROWS, WIDTH) for _ in range(4))
    w, up = random(WIDTH, WIDTH, scale=WIDTH**-0.5), random(2 * CHANNEL, WIDTH, scale=WIDTH**-0.5)
    packed, r = torch.empty_like(w), torch.empty_like(x)
    KERNELS.attention.pack_out(w, packed)

    def added(part: Any, x: Tensor, mixed: Tensor, w: Tensor, out: Tensor) -> Outputs:
        squares = part.add(x, mixed, w, out)
        return out, squares.sum(-1)

    report.line(
        "output projection",
        lambda: added(KERNELS.attention, x, mixed, packed, r),
        lambda: added(plain.PlainAttention, edge(x), edge(mixed), w.double(), edge(r)),
    )
    squares = KERNELS.attention.add(x, mixed, packed, r)
    true = edge(r), edge(squares)

    def gated(keep: bool) -> None:
        report.line(
            f"gate-up of a sum{', kept' if keep else ''}",
            lambda: KERNELS.channel.gate_up(r, up, keep, squares, EPS)[: 1 + keep],
            lambda: plain.PlainChannel.gate_up(true[0], up.double(), keep, true[1], EPS)[: 1 + keep],
        )

    gated(False)
    gated(True)
    report.line(
        "norm of a sum",
        lambda: KERNELS.norm.forward(r, m, EPS, squares=squares),
        lambda: plain.PlainNorm.forward(true[0], edge(m), EPS, squares=true[1]),
    )
    report.line(
        "norm backward of a sum",
        lambda: KERNELS.norm.backward_of_sum(g, r, squares, EPS),
        lambda: plain.PlainNorm.backward_of_sum(edge(g), *true, EPS),
    )


def totals(report: Report) -> None:
    """The projection of rows without a written norm, and the sum added to them. Only values: queries are rotated."""
    r, mixed, (cos, sin) = random(6, LENGTH, WIDTH), random(6 * LENGTH, WIDTH), rotary_tables(LENGTH, 64, 10000.0)
    qkv, w = random(3 * WIDTH, WIDTH, scale=WIDTH**-0.5), random(WIDTH, WIDTH, scale=WIDTH**-0.5)
    packed, squares = torch.empty_like(w), r.float().square().view(6 * LENGTH, 4, -1).sum(-1)
    KERNELS.attention.pack_out(w, packed)

    def onward(part: Any, total: Total, qkv: Tensor, out: Tensor, mixed: Tensor) -> Outputs:
        projected, rstd = part.project_total(total, qkv, cos.cuda(), sin.cuda(), 8, EPS)
        sum_ = torch.empty_like(mixed)
        squares = part.add(total.r.flatten(0, 1), mixed, out, sum_, rstd)
        return projected[..., 2 * WIDTH :], sum_, squares.sum(-1)

    report.line(
        "projection of a sum",
        lambda: onward(KERNELS.attention, Total(r.clone(), squares), qkv, packed, mixed),
        lambda: onward(
            plain.PlainAttention, Total(r.double(), squares.double()), qkv.double(), w.double(), mixed.double()
        ),
        edges=False,
    )


def steep_attention(report: Report) -> None:
    """Long attention with scores that exceed the largest one of the first tile by far."""
    cos, sin = (table.cuda() for table in rotary_tables(LONG, 64, 10000.0))
    qkv = random(12, LONG, 3 * WIDTH)
    qkv[..., : 2 * WIDTH] *= 8.0
    level = torch.ones_like(cos), torch.zeros_like(sin)
    report.line(
        f"attention {LONG}, steep",
        lambda: KERNELS.attention.forward(qkv, *level, 8)[0],
        lambda: plain.PlainAttention.forward(edge(qkv), *level, 8)[0],
    )


def norms(report: Report) -> None:
    """Forward with a sum and an injection, and backward."""
    x, m, injection = (random(ROWS, WIDTH) for _ in range(3))
    report.line(
        "norm forward",
        lambda: KERNELS.norm.forward(x, m, EPS, injection),
        lambda: plain.PlainNorm.forward(edge(x), edge(m), EPS, edge(injection)),
    )
    rstd = x.float().square().mean(-1).rsqrt()
    report.line(
        "norm backward",
        lambda: KERNELS.norm.backward(m, x, rstd),
        lambda: plain.PlainNorm.backward(edge(m), edge(x), edge(rstd)),
    )


def attentions(report: Report) -> None:
    """Short, long and steep."""
    attention(report, BATCH, LENGTH)
    for length in (LONG, MIDDLE):
        attention(report, 12, length)
    steep_attention(report)


def ends(report: Report) -> None:
    """Loss, the start of a cycle and the token table's gradient."""
    logits, labels = random(BATCH, LENGTH, 16), torch.randint(0, 11, (BATCH, 81), device="cuda", dtype=torch.int32)
    report.line(
        "loss",
        lambda: KERNELS.loss.loss_and_grad(logits, labels, 16, 11, IGNORE),
        lambda: plain.loss_and_grad(logits.double(), labels, 16, 11, IGNORE),
        edges=False,
    )
    grads = random(6, BATCH, LENGTH, WIDTH)
    weights, puzzles = torch.randn(11, WIDTH, device="cuda") * 0.04, torch.randn(1, WIDTH, device="cuda") * 0.04
    tables = Tables(weights, labels, puzzles, torch.zeros(BATCH, dtype=torch.int32, device="cuda"))
    anew = Anew(torch.arange(BATCH, device="cuda") % 3 == 0, random(WIDTH), random(WIDTH))
    report.line(
        "beginning of a cycle",
        lambda: KERNELS.embedding.inject(grads[0], grads[1], tables, anew),
        lambda: plain.inject(grads[0].double(), grads[1].double(), tables, anew),
        edges=False,
    )
    report.line(
        "token table",
        lambda: KERNELS.embedding.token_grad(labels, grads, 16, 11),
        lambda: plain.token_grad(labels, grads.double(), 16, 11),
        edges=False,
    )


def same_digest(report: Report) -> None:
    """The digest of a state is the same text on this GPU and on the CPU."""
    state = {"a": random(BATCH, LENGTH, WIDTH), "b": torch.randn(1001, device="cuda"), "c": torch.arange(7).cuda()}
    there, here = (digest({name: value.to(device) for name, value in state.items()}, {}) for device in ("cuda", "cpu"))
    report.failed |= there != here
    print(f"{'digest':24} equal to the CPU's {there == here}")


def main() -> None:
    """All kernels."""
    if not torch.cuda.is_available():
        sys.exit("kernel_errors checks kernels on a GPU, and torch sees none here")
    torch.manual_seed(0)
    print(f"parts: {KERNELS.name}")
    report = Report()
    for part in (mixer, channel, norms, sums, totals, attentions, ends, same_digest):
        part(report)
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
