"""The network's layers: casting linear and embedding, SwiGLU, attention, rotary positions, RMS norm.

Weights are float32 masters; every layer casts its weight to the activation's type at every call, so that autograd sums
the contributions of several calls in float32 (reference/trm.md 1.7). Only the halting head has a bias.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from relay.torch import rng
from relay.torch.device import slow_bf16
from trm.config import Arch

# A normal cut at two sigma has this standard deviation; dividing by it restores the requested one.
_STD_OF_TRUNCATED = 0.8796256610342398


def truncated_normal(shape: tuple[int, ...], std: float, seed: int, index: int) -> Tensor:
    """float32 on the CPU: normal, cut at two sigma, rescaled so that its standard deviation is `std` (1.8).

    A function of (seed, index): computed in float64 and rounded once, so that every machine gets the same weights.
    """
    edge = math.erf(math.sqrt(2.0))
    u = (rng.uniform(seed, index, rng.Stream.INIT, shape).double() * 2 - 1) * edge
    sigma = std / _STD_OF_TRUNCATED
    return (torch.erfinv(u) * (math.sqrt(2.0) * sigma)).clamp(-2 * sigma, 2 * sigma).float()


def wide(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it is that already."""
    return x if x.dtype == torch.float64 else x.float()


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """x / rms(x) over the last axis, computed in float32, no gain."""
    x32 = wide(x)
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T (+ bias) in x's type; where bfloat16 is slow, its values multiplied in float32 and rounded once.

    A bfloat16 product does the same inside; only the order of its sums differs (StepDigest's path names it).
    """
    if x.dtype != torch.bfloat16 or not slow_bf16(x.device):
        return F.linear(x, weight, bias)
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


class CastedLinear(nn.Module):
    """x @ weight.T (+ bias) in x's type; weight (out_features, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return linear(x, self.weight.to(x.dtype), bias)


class CastedEmbedding(nn.Module):
    """Rows of a table (rows, width), cast before they are gathered."""

    def __init__(self, rows: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding_weight = nn.Parameter(torch.empty(rows, width))
        self.dtype = dtype

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.embedding_weight.to(self.dtype))

    def table(self) -> Tensor:
        """The whole table in the activations' type."""
        return self.embedding_weight.to(self.dtype)


def inner_width(width: int, expansion: float) -> int:
    """Of a SwiGLU: 2/3 * expansion * width, up to a multiple of 256."""
    return -(-round(expansion * width * 2 / 3) // 256) * 256


class SwiGLU(nn.Module):
    """down(silu(gate) * up) over the last axis; gate and up have the inner width."""

    def __init__(self, width: int, expansion: float) -> None:
        super().__init__()
        inner = inner_width(width, expansion)
        self.gate_up_proj = CastedLinear(width, 2 * inner)
        self.down_proj = CastedLinear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out


def rotary_tables(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 (length, head_dim), in the half-split convention."""
    frequency = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (..., length, head_dim) by position, in float32, back in x's type."""
    x32 = wide(x)
    a, b = x32.chunk(2, dim=-1)
    return (x32 * cos + torch.cat((-b, a), dim=-1) * sin).to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k.T / sqrt(head_dim)) v over (B, heads, L, head_dim); in float32 on a GPU without bfloat16."""
    if q.dtype == torch.bfloat16 and q.device.type == "cuda" and slow_bf16(q.device):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float()).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v)


class Attention(nn.Module):
    """Bidirectional multi-head self-attention, no mask; one projection holds the heads of q, then k, then v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_proj = CastedLinear(width, 3 * width)
        self.o_proj = CastedLinear(width, width)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        q, k, v = rearrange(self.qkv_proj(x), "b l (three h d) -> three b h l d", three=3, h=self.heads)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        mixed = attend(q, k, v)
        out: Tensor = self.o_proj(rearrange(mixed, "b h l d -> b l (h d)"))
        return out


class Block(nn.Module):
    """x <- rms(x + mix(x)); x <- rms(x + mlp(x)).

    With mlp_t the mixer is a SwiGLU over the sequence, and its norm is over the sequence too, per channel (1.3).
    """

    def __init__(self, arch: Arch, length: int) -> None:
        super().__init__()
        self.eps = arch.rms_norm_eps
        if arch.mlp_t:
            self.mlp_t = SwiGLU(length, arch.expansion)
        else:
            self.self_attn = Attention(arch.hidden_size, arch.num_heads)
        self.over_sequence = arch.mlp_t
        self.mlp = SwiGLU(arch.hidden_size, arch.expansion)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        if self.over_sequence:
            x = rearrange(x, "b l d -> b d l")
            x = rms_norm(x + self.mlp_t(x), self.eps)
            x = rearrange(x, "b d l -> b l d")
        else:
            x = rms_norm(x + self.self_attn(x, rotary), self.eps)
        return rms_norm(x + self.mlp(x), self.eps)
