"""The network: a stack of causal decoder blocks that is applied again and again to an answer and a latent state.

F(h) is the stack, with a norm behind it. x is the embedded text, y the answer, z the latent state; y starts at x and z
at 0. A refinement step is `loops` times z <- F(x + y + z), then y <- F(y + z). With one step and no loop this is a
plain decoder. Every pass sees only earlier positions.

Weights are float32 masters; each product casts its weight to the activations' type, so that autograd adds up the
gradients of several passes in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from lm.config import Arch, Refine
from relay.torch import rng

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
CAP = 15.0
"""Logits are bounded smoothly to this."""
PADDED = 64
"""Rows of embedding and head are a multiple of this; the surplus is never predicted."""
ROTARY_BASE = 10_000.0
IGNORE = -1
"""Target of a position that is not scored."""
LOGITS_AT_ONCE, COMPILED_AT_ONCE = 1 << 25, 1 << 27
"""Logits that exist at once, and if the head is compiled, which holds a quarter of the bytes of each. They decide the
order of sums, so they are the same on every device.
"""
MATRICES = ("q", "k", "v", "o", "up", "down")
"""A block's weights."""


def norm(x: Tensor) -> Tensor:
    """x / rms(x) over the last axis, no gain; the epsilon is that of x's type."""
    return F.rms_norm(x, (x.shape[-1],))


def padded(vocab_size: int) -> int:
    """Rows of embedding and head."""
    return -(-vocab_size // PADDED) * PADDED


def shapes(arch: Arch, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The weights by name. Matrices of one shape follow each other, so that in a flat buffer they are one stack."""
    d, blocks, rows = arch.d, range(arch.depth), padded(vocab_size)
    found: dict[str, tuple[int, ...]] = {f"blocks.{i}.{name}": (d, d) for i in blocks for name in "qkvo"}
    for name, shape in (("up", (4 * d, d)), ("down", (d, 4 * d))):
        found |= {f"blocks.{i}.{name}": shape for i in blocks}
    return found | {"embed": (rows, d), "head": (rows, d)}


def initial(arch: Arch, vocab_size: int, seed: int) -> dict[str, Tensor]:
    """The weights before the first step, on the CPU. The head is zero, so the first loss is the logarithm of the
    vocabulary's size; o and down are zero, so each block starts as the identity.
    """
    made = {}
    for index, (name, shape) in enumerate(shapes(arch, vocab_size).items()):
        if name == "head" or name.endswith((".o", ".down")):
            made[name] = torch.zeros(shape)
            continue
        std = 1.0 if name == "embed" else min(1.0, math.sqrt(shape[0] / shape[1])) / math.sqrt(shape[1])
        made[name] = rng.normal(seed, index, rng.Stream.INIT, shape, std)
    return made


def rotary_tables(length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """cos and sin, bfloat16 (length, 1, head_dim / 2)."""
    frequency = 1.0 / (ROTARY_BASE ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)[:, None]
    return angle.cos().bfloat16(), angle.sin().bfloat16()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (B, T, heads, head_dim) by position; the halves of a head are the two coordinates."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1).to(x.dtype)


class Block(nn.Module):
    """h <- h + o(attention(norm(h))); h <- h + down(relu(up(norm(h)))^2)."""

    q: nn.Parameter
    k: nn.Parameter
    v: nn.Parameter
    o: nn.Parameter
    up: nn.Parameter
    down: nn.Parameter

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = h + self._attended(norm(h), cos, sin)
        return h + _product(F.relu(_product(norm(h), self.up)).square(), self.down)

    def _attended(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (
            rearrange(_product(x, weight), "b t (h d) -> b t h d", h=self.heads) for weight in (self.q, self.k, self.v)
        )
        q, k = (norm(rotate(each, cos, sin)) for each in (q, k))
        q, k, v = (rearrange(each, "b t h d -> b h t d") for each in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return _product(rearrange(mixed, "b h t d -> b t (h d)"), self.o)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


class Stack(nn.Module):
    """F(h): the blocks in order, then a norm."""

    cos: Tensor
    sin: Tensor

    def __init__(self, arch: Arch) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(arch.h) for _ in range(arch.depth))
        for name, table in zip(("cos", "sin"), rotary_tables(arch.context, arch.head_dim), strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        cos, sin = self.cos[: h.shape[1]], self.sin[: h.shape[1]]
        for block in self.blocks:
            h = block(h, cos, sin)
        return norm(h)


class Model(nn.Module):
    """The stack with embedding and head. Parameters are those of `weights`, by name; none is copied."""

    def __init__(self, arch: Arch, vocab_size: int, weights: dict[str, Tensor], dtype: torch.dtype) -> None:
        super().__init__()
        self.vocab_size, self.dtype = vocab_size, dtype
        self.stack = Stack(arch).to(weights["embed"].device)
        self._stack: Callable[[Tensor], Tensor] = self.stack
        """The stack, or how it was compiled."""
        self._summed_loss: Callable[[Tensor, Tensor], Tensor] | None = None
        """`summed_loss`, if it was compiled."""
        for i, block in enumerate(self.stack.blocks):
            for name in MATRICES:
                block.register_parameter(name, nn.Parameter(weights[f"blocks.{i}.{name}"]))
        self.embed = nn.Parameter(weights["embed"])
        self.head = nn.Parameter(weights["head"])

    @property
    def compiled(self) -> bool:
        """Whether `compile_parts` was called."""
        return self._stack is not self.stack

    def compile_parts(self, head: bool) -> None:
        """From now on the stack is compiled at its first use, once for each number of rows; the head too, if asked."""
        self._stack = torch.compile(self.stack, dynamic=False)
        if head:
            self._summed_loss = torch.compile(self.summed_loss, dynamic=False)

    def apply_stack(self, h: Tensor, compiled: bool = True) -> Tensor:
        """F(h), compiled if it was. On a GPU only by kernels of attention whose backward pass is deterministic."""
        stack = self._stack if compiled else self.stack
        if h.device.type != "cuda":
            return stack(h)
        kernels = SDPBackend.MATH if h.dtype == torch.float32 else SDPBackend.FLASH_ATTENTION
        with sdpa_kernel(kernels):
            return stack(h)

    def named(self) -> dict[str, nn.Parameter]:
        """Parameters by the names in `shapes`."""
        return {name.removeprefix("stack."): parameter for name, parameter in self.named_parameters()}

    def embedded(self, tokens: Tensor) -> Tensor:
        """int64 (B, T) -> x, (B, T, d)."""
        return norm(F.embedding(tokens, self.embed)).to(self.dtype)

    def refined(self, x: Tensor, y: Tensor, z: Tensor, loops: int, compiled: bool = True) -> tuple[Tensor, Tensor]:
        """One refinement step: the answer and the latent state after it."""
        for _ in range(loops):
            z = self.apply_stack(x + y + z, compiled)
        return self.apply_stack(y + z, compiled), z

    def logits(self, y: Tensor) -> Tensor:
        """float32 (..., vocabulary), bounded by `CAP`."""
        raw = _product(y, self.head)[..., : self.vocab_size].float()
        return CAP * torch.tanh(raw / CAP)

    def summed_loss(self, y: Tensor, targets: Tensor) -> Tensor:
        """The sum of the cross-entropies of answers (n, d), whose targets are (n,): 0-d, float32."""
        return F.cross_entropy(self.logits(y), targets, ignore_index=IGNORE, reduction="sum")

    def chunked(self, compiled: bool = True) -> tuple[int, Callable[[Tensor, Tensor], Tensor]]:
        """How many answers go through the head at once, and their `summed_loss`, compiled if it was."""
        if compiled and self._summed_loss is not None:
            return max(1, COMPILED_AT_ONCE // self.vocab_size), self._summed_loss
        return max(1, LOGITS_AT_ONCE // self.vocab_size), self.summed_loss

    @torch.no_grad()
    def each_answer(self, tokens: Tensor, refine: Refine, steps: int, compiled: bool = False) -> Iterator[Tensor]:
        """The answer after each step, without gradients; none is kept. compiled: for rows of the training's shape."""
        x = self.embedded(tokens)
        y, z = x, torch.zeros_like(x)
        for _ in range(steps):
            y, z = self.refined(x, y, z, refine.loops, compiled)
            yield y

    def answers(self, tokens: Tensor, refine: Refine, steps: int, compiled: bool = False) -> list[Tensor]:
        """All of them."""
        return list(self.each_answer(tokens, refine, steps, compiled))
