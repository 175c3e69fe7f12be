"""What Hopper's channel MLP and token mixer are run on, what float64 makes of it, and what may not differ.

No kernel depends on the type of its tensors: with `EXACT` ones results are as close as those of the kernels that Triton
interprets.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.trm.kernels.gluon.loading import Changes, kernels, seed
from tests.trm.kernels.gluon.machine import Machine
from tests.trm.kernels.support import CLOSE, error, random, rms, silu_pair
from trm.kernels.layout import CHUNK, PAD, PAIR, join_columns, pair_rows, split_columns, unpair_rows

WIDTH, INNER, EPS = 512, 512, 0.1
"""The only width of rows that the kernels take; the token mixer's inner units."""
EXACT = torch.float64
"""In place of bfloat16: nothing is rounded but what is float32 on a card too."""
Modules = dict[str, Any]
"""By their last names."""
Pairs = dict[str, tuple[Tensor, Tensor]]
"""What was written, and what is true."""


def run(case: Callable[[Modules], Pairs], programs: int, schedule: int, changes: Changes = ()) -> Pairs:
    """What a case finds on a card of so many multiprocessors, in the order of events that a seed gives."""
    modules = kernels(changes)
    seed(schedule)
    with ExitStack() as patched:
        for module in modules.values():
            if hasattr(module, "programs"):
                patched.enter_context(patch.object(module, "programs", lambda _device: programs))
        return case(modules)


def check(found: Pairs, close: float = CLOSE) -> None:
    for name, (got, true) in found.items():
        by = error(got, true)
        assert by < close, f"{name}: relative error {by:.1e} in the order of seed {Machine.seed}"


def check_schedules(case: Callable[[Modules], Pairs], programs: int, schedules: int, close: float = CLOSE) -> None:
    """True, and the same bytes in every order of events."""
    first = run(case, programs, 0)
    check(first, close)
    for schedule in range(1, schedules):
        for name, (got, _) in run(case, programs, schedule).items():
            assert torch.equal(got, first[name][0]), f"{name} has other bytes in the order of seed {schedule}"


def caught(case: Callable[[Modules], Pairs], programs: int, schedules: int, changes: Changes) -> bool:
    """Whether a fault in a kernel shows in one of these orders."""
    for schedule in range(schedules):
        try:
            check(run(case, programs, schedule, changes))
        except AssertionError:
            return True
    return False


def out(m: Modules, rows: int, scaled: bool, dtype: torch.dtype = EXACT) -> Pairs:
    """In place if the rows are not scaled."""
    x, mixed = random(rows, WIDTH).to(dtype), random(rows, WIDTH, seed=1).to(dtype)
    w = random(WIDTH, WIDTH, seed=2, scale=WIDTH**-0.5).to(dtype)
    rstd = random(rows, seed=3).abs() if scaled else None
    true = (rstd[:, None].double() if rstd is not None else 1) * x.double() + mixed.double() @ w.double().T
    packed, target = torch.empty_like(w), torch.full_like(x, torch.nan) if scaled else x
    m["out"].spread(w, packed)
    squares = m["out"].add(x, mixed, packed, target, rstd)
    return {"out": (target, true), "squares": (squares, true.square().view(rows, -1, 128).sum(-1))}


def gate_up(
    m: Modules,
    rows: int,
    keep: bool,
    normed: bool,
    inner: int = 256,
    dtype: torch.dtype = EXACT,
    huge: int | None = None,
) -> Pairs:
    x = (random(rows, WIDTH) * random(rows, 1, seed=2)).to(dtype)
    if huge is not None:
        x[huge] *= 1e30
    w = random(2 * inner, WIDTH, seed=1, scale=WIDTH**-0.5).to(dtype)
    packed = torch.empty_like(w)
    pair_rows(w, packed, PAIR)
    squares = x.float().square().view(rows, 4, -1).sum(-1) if normed else None
    hidden, products = m["channel"].gate_up(x, packed, keep, squares, EPS)
    size = (x.double().square().mean(-1, keepdim=True) + EPS).sqrt() if normed else torch.ones(rows, 1)
    true = x.double() / size @ w.double().T
    kept = {"products": (torch.cat(split_columns(products, PAIR), dim=-1), true)} if keep else {}
    return {"hidden": (hidden, silu_pair(true) * size), **kept}


def hidden_grad(m: Modules, rows: int, inner: int = 256, dtype: torch.dtype = EXACT) -> Pairs:
    dr, down = random(rows, WIDTH).to(dtype), random(WIDTH, inner, seed=1, scale=inner**-0.5).to(dtype)
    both = random(rows, 2 * inner, seed=2).to(dtype)
    got = m["channel"].hidden_grad(dr, down, join_columns(*both.chunk(2, dim=-1), PAIR))
    x = both.double().clone().requires_grad_()
    (true,) = torch.autograd.grad(silu_pair(x), x, dr.double() @ down.double())
    return {"dgu": (torch.cat(split_columns(got, PAIR), dim=-1), true)}


class Mixer:
    """A token mixer's input and weights, the gradient of its output, and all that float64 makes of them."""

    def __init__(self, batch: int, length: int, dtype: torch.dtype = EXACT) -> None:
        given = (
            random(batch, length, WIDTH),
            random(2 * INNER, length, seed=1, scale=length**-0.5),
            random(length, INNER, seed=2, scale=INNER**-0.5),
        )
        self.x, self.gate_up, down = (t.to(dtype) for t in given)
        self.dy = random(batch, length, WIDTH, seed=3).to(dtype)
        self.wgu, self.wd = torch.zeros(2 * INNER, PAD, dtype=dtype), torch.zeros(INNER, PAD, dtype=dtype)
        pair_rows(self.gate_up, self.wgu, CHUNK)
        self.wd[:, :length] = down.T
        self.truth(*(t.double().clone().requires_grad_() for t in (self.x, self.gate_up, down)))

    def truth(self, x: Tensor, gate_up: Tensor, down: Tensor) -> None:
        xt = x.transpose(1, 2)
        r = xt + silu_pair(xt @ gate_up.T) @ down.T
        y = rms(r, EPS).transpose(1, 2)
        found = torch.autograd.grad(y, (x, gate_up, down, r), self.dy.double())
        self.dx, self.dgate_up, self.ddown, dr = found
        self.dr = dr.transpose(1, 2).contiguous()
        self.y, self.rstd = y.detach().contiguous(), (r.detach().square().mean(-1) + EPS).rsqrt()


def mixer_forward(m: Modules, case: Mixer) -> Pairs:
    y, rstd = m["mixer"].forward(case.x, case.wgu, case.wd, EPS)
    return {"y": (y, case.y), "rstd": (rstd, case.rstd)}


def mixer_input_grad(m: Modules, case: Mixer) -> Pairs:
    y, rstd, dx = case.y.to(case.x.dtype), case.rstd.float(), torch.full_like(case.x, torch.nan)
    dr = m["mixer"].input_grad(case.x, y, rstd, case.dy, case.wgu, case.wd, dx)
    return {"dx": (dx, case.dx), "dr": (dr, case.dr)}


def mixer_weight_grad(m: Modules, case: Mixer, parts: int, add: bool) -> Pairs:
    """The sums of so many parts of the batch; add: to what is one everywhere."""
    start, length = float(add) / parts if add else torch.nan, case.x.shape[1]
    dwgu, dwd = torch.full((parts, 2 * INNER, PAD), start), torch.full((parts, INNER, PAD), start)
    m["mixer"].weight_grad(case.x, case.dr.to(case.x.dtype), case.wgu, case.wd, dwgu, dwd, add)
    dgate_up = torch.empty(case.gate_up.shape)
    unpair_rows(dwgu.sum(0), dgate_up, CHUNK)
    return {
        "gate_up": (dgate_up, case.dgate_up + float(add)),
        "down": (dwd.sum(0)[:, :length].T, case.ddown + float(add)),
    }
