"""The recursive network: one supervision step from latent states to logits.

Symbols of reference/trm.md: B batch, S cells, P prefix slots, L = P + S, D hidden size, V vocabulary. In the paper's
letters T = H_cycles, n = L_cycles, y = z_H and z = z_L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from trm.config import Arch
from trm.layers import Block, CastedEmbedding, CastedLinear, rotary_tables, truncated_normal, wide

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Sizes:
    """Dimensions of the network that the data decides."""

    seq_len: int
    vocab_size: int
    num_identifiers: int


class PuzzleTable(nn.Module):
    """Puzzle embeddings, float32 (num_identifiers, puzzle_emb_ndim): a buffer, trained by sign-SGD on touched rows."""

    weights: Tensor

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros(rows, width))


class Blocks(nn.Module):
    """F(h, injection): the blocks in order, applied to h + injection."""

    def __init__(self, arch: Arch, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(arch, length) for _ in range(arch.L_layers))

    def forward(self, hidden: Tensor, injection: Tensor, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        hidden = hidden + injection
        for block in self.layers:
            hidden = block(hidden, rotary)
        return hidden


class Inner(nn.Module):
    """The network. Parameter and buffer names are the reference's, so its checkpoints load by name.

    Built with the weights of `seed` (reference/trm.md 1.8), the same on every machine.
    """

    H_init: Tensor
    L_init: Tensor
    cos: Tensor
    sin: Tensor

    def __init__(self, arch: Arch, sizes: Sizes, seed: int = 0) -> None:
        super().__init__()
        self.arch, self.sizes = arch, sizes
        self.dtype = DTYPES[arch.forward_dtype]
        width, length = arch.hidden_size, sizes.seq_len + arch.prefix_len
        self.embed_tokens = CastedEmbedding(sizes.vocab_size, width, self.dtype)
        self.lm_head = CastedLinear(width, sizes.vocab_size)
        self.q_head = CastedLinear(width, 2, bias=True)
        if arch.puzzle_emb_ndim:
            self.puzzle_emb = PuzzleTable(sizes.num_identifiers, arch.puzzle_emb_ndim)
        if arch.pos_encodings == "learned":
            self.embed_pos = CastedEmbedding(length, width, self.dtype)
        self.L_level = Blocks(arch, length)
        self.register_buffer("H_init", torch.zeros(width, dtype=self.dtype))
        self.register_buffer("L_init", torch.zeros(width, dtype=self.dtype))
        self._add_rotary_tables(length)
        self._init_weights(seed)

    def _add_rotary_tables(self, length: int) -> None:
        self.rotary = self.arch.pos_encodings == "rope" and not self.arch.mlp_t
        if self.rotary:
            cos, sin = rotary_tables(length, self.arch.hidden_size // self.arch.num_heads, self.arch.rope_theta)
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)

    @torch.no_grad()
    def _init_weights(self, seed: int) -> None:
        """Truncated normals of standard deviation 1/sqrt(fan-in); the halting head starts at 'never'."""
        embedding_std = 1 / math.sqrt(self.arch.hidden_size)
        for index, (name, weight) in enumerate(self.named_parameters()):
            shape = tuple(weight.shape)
            std = embedding_std if name.endswith("embedding_weight") else 1 / math.sqrt(shape[-1])
            weight.copy_(truncated_normal(shape, std, seed, index))
        self.q_head.weight.zero_()
        assert self.q_head.bias is not None
        self.q_head.bias.fill_(-5)
        count = len(list(self.parameters()))
        self.H_init.copy_(truncated_normal((self.arch.hidden_size,), 1.0, seed, count))
        self.L_init.copy_(truncated_normal((self.arch.hidden_size,), 1.0, seed, count + 1))

    @property
    def length(self) -> int:
        """L: prefix slots and cells."""
        return self.sizes.seq_len + self.arch.prefix_len

    def puzzle_rows(self, identifiers: Tensor) -> Tensor | None:
        """The rows of the puzzle table for a batch, float32 (B, puzzle_emb_ndim); None without a table."""
        return self.puzzle_emb.weights[identifiers.long()] if self.arch.puzzle_emb_ndim else None

    def embed(self, inputs: Tensor, puzzle_rows: Tensor | None) -> Tensor:
        """int32 (B, S) and float32 (B, ndim) or None -> (B, L, D): the prefix slots, then the tokens (1.6)."""
        embedding: Tensor = self.embed_tokens(inputs)
        if puzzle_rows is not None:
            width = self.arch.hidden_size
            room = self.arch.prefix_len * width - self.arch.puzzle_emb_ndim
            prefix = F.pad(puzzle_rows.to(self.dtype), (0, room))
            embedding = torch.cat((rearrange(prefix, "b (p d) -> b p d", d=width), embedding), dim=1)
        if self.arch.pos_encodings == "learned":
            embedding = math.sqrt(0.5) * (embedding + self.embed_pos.table())
        return math.sqrt(self.arch.hidden_size) * embedding

    def cycle(self, z_H: Tensor, z_L: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """One H cycle: L_cycles updates of z_L, then one of z_H. All (B, L, D)."""
        rotary = (self.cos, self.sin) if self.rotary else None
        for _ in range(self.arch.L_cycles):
            z_L = self.L_level(z_L, z_H + embedding, rotary)
        return self.L_level(z_H, z_L, rotary), z_L

    def heads(self, z_H: Tensor) -> tuple[Tensor, Tensor]:
        """z_H (B, L, D) -> logits (B, S, V) in its type, and float32 (B, 2): halt and continue logits of slot 0."""
        logits = self.lm_head(z_H)[:, self.arch.prefix_len :]
        return logits, wide(self.q_head(z_H[:, 0]))

    def forward(
        self, z_H: Tensor, z_L: Tensor, inputs: Tensor, puzzle_rows: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One supervision step: (z_H, z_L detached, logits, q). Only the last H cycle is differentiated."""
        embedding = self.embed(inputs, puzzle_rows)
        with torch.no_grad():
            for _ in range(self.arch.H_cycles - 1):
                z_H, z_L = self.cycle(z_H, z_L, embedding)
        z_H, z_L = self.cycle(z_H, z_L, embedding)
        logits, q = self.heads(z_H)
        return z_H.detach(), z_L.detach(), logits, q
