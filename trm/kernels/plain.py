"""The definition of each fused kernel in plain PyTorch, which can also replace it.

Same names, arguments and layouts as the kernels' own launchers, on any device and type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from trm.kernels.layout import CHUNK, PAIR, Anew, Tables, Total, join_columns, split_columns
from trm.layers import rms_norm, rotate
from trm.losses import stablemax_cross_entropy
from trm.optim import ema_


def swiglu_grad(gate: Tensor, up: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """(d gate, d up) of silu(gate) * up."""
    s = torch.sigmoid(gate)
    return grad * up * s * (1 + gate * (1 - s)), grad * gate * s


def norm_grad(dy: Tensor, y: Tensor, rstd: Tensor) -> Tensor:
    """Gradient of r where y = rms(r) over the last axis; rstd without that axis."""
    dy32, y32 = dy.to(rstd.dtype), y.to(rstd.dtype)
    return (rstd[..., None] * (dy32 - y32 * (y32 * dy32).mean(-1, keepdim=True))).to(dy.dtype)


def sizes(squares: Tensor | None, r: Tensor, eps: float) -> Tensor:
    """The divisors of rows r in a norm, (rows, 1); 1 without squares."""
    if squares is None:
        return torch.ones_like(r[:, :1], dtype=torch.promote_types(r.dtype, torch.float32))
    return (squares.sum(-1, keepdim=True) / r.shape[-1] + eps).sqrt()


class PlainMixer:
    """trm/kernels/token_mixer.py."""

    @classmethod
    def _products(cls, xt: Tensor, wgu: Tensor) -> tuple[Tensor, Tensor]:
        return split_columns(xt @ wgu[:, : xt.shape[-1]].T, CHUNK)

    @classmethod
    def forward(cls, x: Tensor, wgu: Tensor, wd: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """x (B, L, D) -> y (B, L, D) and 1/rms over L (B, D)."""
        xt = x.transpose(1, 2)
        gate, up = cls._products(xt, wgu)
        r = xt + (F.silu(gate) * up) @ wd[:, : x.shape[1]]
        wide = torch.promote_types(x.dtype, torch.float32)
        rstd = torch.rsqrt(r.to(wide).square().mean(-1) + eps)
        return rms_norm(r, eps).transpose(1, 2).contiguous(), rstd

    @classmethod
    def input_grad(cls, x: Tensor, y: Tensor, rstd: Tensor, dy: Tensor, wgu: Tensor, wd: Tensor, dx: Tensor) -> Tensor:
        """Write dx; return dr, the gradient of the norm's input (B, L, D)."""
        xt, length = x.transpose(1, 2), x.shape[1]
        dr = norm_grad(dy.transpose(1, 2), y.transpose(1, 2), rstd)
        gate, up = cls._products(xt, wgu)
        dgu = join_columns(*swiglu_grad(gate, up, dr @ wd[:, :length].T), CHUNK)
        dx.copy_((dr + dgu @ wgu[:, :length]).transpose(1, 2))
        return dr.transpose(1, 2).contiguous()

    @classmethod
    def weight_grad(cls, x: Tensor, dr: Tensor, wgu: Tensor, wd: Tensor, dwgu: Tensor, dwd: Tensor, add: bool) -> None:
        """All in part 0 of dwgu (parts, 2I, PAD) and dwd (parts, I, PAD)."""
        xt, drt, length = x.transpose(1, 2), dr.transpose(1, 2), x.shape[1]
        gate, up = cls._products(xt, wgu)
        dgu = join_columns(*swiglu_grad(gate, up, drt @ wd[:, :length].T), CHUNK)
        if not add:
            dwgu.zero_()
            dwd.zero_()
        dwgu[0, :, :length] += torch.einsum("bdi,bld->il", dgu, x)
        dwd[0, :, :length] += torch.einsum("bdi,bld->il", F.silu(gate) * up, dr)


class PlainAttention:
    """trm/kernels/attention.py."""

    @staticmethod
    def project(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        """x (B, L, D), w (3 D, D) -> (B, L, 3 D)."""
        return x @ w.T

    @staticmethod
    def forward(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """qkv (B, L, 3 D) -> (B, L, D)."""
        q, k, v = rearrange(qkv, "b l (three h d) -> three b h l d", three=3, h=heads)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return rearrange(mixed, "b h l d -> b l (h d)"), ()

    @classmethod
    def backward(
        cls, qkv: Tensor, cos: Tensor, sin: Tensor, mixed: Tensor, kept: Sequence[Tensor], dout: Tensor, heads: int
    ) -> Tensor:  # fmt: skip
        """Gradient of qkv, by autograd."""
        with torch.enable_grad():
            x = qkv.detach().requires_grad_()
            (grad,) = torch.autograd.grad(cls.forward(x, cos, sin, heads)[0], x, dout)
        return grad

    @classmethod
    def project_total(
        cls, total: Total, w: Tensor, cos: Tensor, sin: Tensor, heads: int, eps: float
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(`project` of the norm, 1 / sizes)."""
        y, _, rstd = PlainNorm.forward(total.r.flatten(0, 1), None, eps, squares=total.squares)
        return cls.project(y.view_as(total.r), w, cos, sin, heads), rstd

    @staticmethod
    def pack_out(w: Tensor, target: Tensor) -> None:
        """Cast."""
        target.copy_(w)

    @staticmethod
    def add(x: Tensor, mixed: Tensor, w: Tensor, out: Tensor, rstd: Tensor | None = None) -> Tensor:
        """out = x * rstd + mixed @ w.T, all (rows, D); its squares' sums (rows, 1)."""
        out.copy_((x if rstd is None else (x * rstd[:, None]).to(x.dtype)) + mixed @ w.T)
        return out.to(torch.promote_types(x.dtype, torch.float32)).square().sum(-1, keepdim=True)


class PlainChannel:
    """trm/kernels/channel_mlp.py."""

    @classmethod
    def gate_up(
        cls, x: Tensor, w: Tensor, keep: bool, squares: Tensor | None = None, eps: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """(hidden (rows, I), products (rows, 2I) in paired order)."""
        products = x @ w.T
        both = (products / sizes(squares, x, eps)).to(x.dtype)
        (gate, _), (_, up) = split_columns(both, PAIR), split_columns(products, PAIR)
        return F.silu(gate) * up, both

    @classmethod
    def hidden_grad(cls, dr: Tensor, wd: Tensor, gu: Tensor) -> Tensor:
        """dgu (rows, 2I), paired."""
        gate, up = split_columns(gu, PAIR)
        return join_columns(*swiglu_grad(gate, up, dr @ wd), PAIR)


class PlainNorm:
    """trm/kernels/norm.py."""

    @staticmethod
    def forward(
        x: Tensor, m: Tensor | None, eps: float, injection: Tensor | None = None, keep: bool = True,
        out: Tensor | None = None, squares: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """(y, z, rstd): y = rms(x + m), z = y + injection."""
        size = sizes(squares, x, eps)
        r = ((x if m is None else x + m) / size).to(x.dtype)
        rstd = torch.rsqrt(r.to(size.dtype).square().mean(-1) + eps) / size[:, 0]
        y = rms_norm(r, eps) if out is None else out.copy_(rms_norm(r, eps))
        return y, (y if injection is None else y + injection), rstd

    @staticmethod
    def backward(dy: Tensor, y: Tensor, rstd: Tensor, out: Tensor | None = None) -> Tensor:
        """Gradient of x + m."""
        dr = norm_grad(dy, y, rstd)
        return dr if out is None else out.copy_(dr)

    @staticmethod
    def backward_of_sum(g: Tensor, r: Tensor, squares: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
        """g without its component along r."""
        size = sizes(squares, r, eps)
        dr = norm_grad(g, (r / size).to(r.dtype), torch.ones_like(size[:, 0]))
        return dr if out is None else out.copy_(dr)


def loss_and_grad(
    logits: Tensor, labels: Tensor, prefix: int, vocab: int, ignore: int, whole: int | None = None
) -> tuple[Tensor, Tensor]:
    """trm/kernels/loss.py, by autograd through the definition in trm/losses.py."""
    with torch.enable_grad():
        x = logits.detach().requires_grad_()
        words = x[:, prefix:, :vocab]
        scored = labels != ignore
        count = scored.sum(-1)
        lm = stablemax_cross_entropy(words, labels).sum(-1) / count.clamp(min=1)
        right = ((words.argmax(-1) == labels) & scored).sum(-1)
        q = x[:, 0, vocab].float()
        q_loss = F.binary_cross_entropy_with_logits(q, (right == count).to(q.dtype), reduction="none")
        (grad,) = torch.autograd.grad((lm.sum() + 0.5 * q_loss.sum()) / (whole or len(x)), x)
    return grad, torch.stack((lm.detach().float(), q_loss.detach(), right.float(), count.float()), dim=1)


@torch.no_grad()
def adam_atan2_ema_(
    p: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    ema: Tensor | None,
    step_rates: Tensor,
    betas: tuple[float, float],
    ema_rate: float,
) -> None:
    """trm/kernels/optimizer.py: trm/optim.py's update with its rates on the device."""
    decay, size, correction = step_rates.unbind()
    p.mul_(decay)
    m.lerp_(grad, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    p.sub_(size * torch.atan2(m, v.sqrt() * correction))
    if ema is not None:
        ema_(ema, p, ema_rate)


def _embedding(tables: Tables, like: Tensor) -> Tensor:
    """The model's (trm/model.py), of the shape and type of `like` (B, L, D)."""
    batch, length, width = like.shape
    rows = F.embedding(tables.ids, tables.tokens.to(like.dtype))
    prefix = like.new_zeros(batch, length - tables.ids.shape[1], width)
    if tables.puzzles is not None:
        prefix.flatten(1)[:, : tables.puzzles.shape[1]] = tables.puzzles[tables.identifiers.long()].to(like.dtype)
    return math.sqrt(width) * torch.cat((prefix, rows), dim=1)


def inject(z_H: Tensor, z_L: Tensor, tables: Tables, anew: Anew | None) -> tuple[Tensor, Tensor]:
    """trm/kernels/embedding.py: (z_H + embedding, z_L + that)."""
    if anew is not None:
        halted = anew.halted[:, None, None]
        z_H.copy_(torch.where(halted, anew.z_H, z_H))
        z_L = torch.where(halted, anew.z_L, z_L)
    injection = z_H + _embedding(tables, z_H)
    return injection, z_L + injection


def token_grad(ids: Tensor, d: Tensor, prefix: int, vocab: int) -> Tensor:
    """trm/kernels/embedding.py: float32 (vocab, D)."""
    chosen = F.one_hot(ids.long(), vocab).to(d.dtype).flatten(0, 1)
    return torch.stack([chosen.T @ call[:, prefix:].flatten(0, 1) for call in d]).float().sum(0)
