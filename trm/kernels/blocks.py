"""A block of the network with a hand-written backward pass, over packed weights. Knows no recursion and no training.

Where the mixer leaves its norm unwritten (layout.Sum; attention does), the MLP's hidden values and the sum after them
are as much larger, and their gradients as much smaller, as its rows are (trm/kernels/norm.py).

Weights are cast and packed once a step. Weight gradients of the calls in a step are summed in float32 where they are
made, in the order of the calls; `finish` writes them to the flat gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trm.kernels.layout import PAIR, Total, add_product, pair_rows, unpair_rows
from trm.kernels.mixers import Mixer
from trm.kernels.parts import Parts


@dataclass
class Saved:
    """What a block's backward pass reads."""

    mixer: tuple[Tensor, ...]
    r1: Tensor
    """(B, L, D): the rows of the mixer's `Sum`."""
    gu: Tensor
    hidden: Tensor
    y2: Tensor
    rstd2: Tensor


class FastBlock:
    """A mixer, then x <- rms(x + SwiGLU over channels)."""

    def __init__(
        self, prefix: str, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], parts: Parts,
        dtype: torch.dtype, eps: float, mixer: Mixer,
    ) -> None:  # fmt: skip
        names = [f"{prefix}mlp.{part}.weight" for part in ("gate_up_proj", "down_proj")]
        self.source, self.target = [params[n] for n in names], [grads[n] for n in names]
        self.parts, self.eps, self.mixer = parts, eps, mixer
        self.wgu, self.wd = (torch.empty_like(w, dtype=dtype) for w in self.source)
        self.dwgu = torch.zeros_like(self.source[0])

    def pack(self) -> None:
        """Cast the parameters."""
        self.mixer.pack()
        pair_rows(self.source[0], self.wgu, PAIR)
        self.wd.copy_(self.source[1])

    def start(self) -> None:
        """Forget the last step's gradients."""
        self.dwgu.zero_()
        self.target[1].zero_()

    def advance(self, x: Tensor | Total) -> Total:
        """(B, L, D), or what it is the norm of -> what the output is the norm of. Keeps nothing, and may overwrite x.

        A residual that is added while its other half is written is read once less than one added by the norm.
        """
        mixed = self.mixer.advance(x)
        rows, squares = mixed.r.flatten(0, 1), mixed.squares
        hidden, _ = self.parts.channel.gate_up(rows, self.wgu, False, squares, self.eps)
        return Total(rows.addmm_(hidden, self.wd.T).view_as(mixed.r), squares)

    def norm(self, x: Total, injection: Tensor | None, keep_y: bool) -> tuple[Tensor, Tensor]:
        """(y, y + injection), y only if `keep_y`, from what `advance` left."""
        inj = None if injection is None else injection.flatten(0, 1)
        y, z, _ = self.parts.norm.forward(x.r.flatten(0, 1), None, self.eps, inj, keep_y, squares=x.squares)
        return y.view_as(x.r), z.view_as(x.r)

    def forward(
        self, x: Tensor, injection: Tensor | None, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Saved]:  # fmt: skip
        """x (B, L, D) -> (y, y + injection, what `backward` needs); y in `out` if that is given."""
        mixed, saved = self.mixer.forward(x)
        rows, squares = mixed.r.flatten(0, 1), mixed.squares
        hidden, gu = self.parts.channel.gate_up(rows, self.wgu, True, squares, self.eps)
        inj, to = (None if t is None else t.flatten(0, 1) for t in (injection, out))
        y2, z, rstd2 = self.parts.norm.forward(rows, hidden @ self.wd.T, self.eps, inj, out=to, squares=squares)
        return y2.view_as(x), z.view_as(x), Saved(saved, mixed.r, gu, hidden, y2, rstd2)

    def backward(self, saved: Saved, dy: Tensor, dx: Tensor, first: bool) -> None:
        """Write the gradient of x into dx (B, L, D), given that of y."""
        dr = self.parts.norm.backward(dy.flatten(0, 1), saved.y2, saved.rstd2)
        add_product(self.target[1], dr, saved.hidden)
        dgu = self.parts.channel.hidden_grad(dr, self.wd, saved.gu)
        add_product(self.dwgu, dgu, saved.r1.flatten(0, 1))
        dr1 = dr.addmm_(dgu, self.wgu)
        self.mixer.backward(saved.mixer, dr1.view_as(dy), dx, first)

    def finish(self) -> None:
        """Write the flat gradients."""
        self.mixer.finish()
        unpair_rows(self.dwgu, self.target[0], PAIR)
