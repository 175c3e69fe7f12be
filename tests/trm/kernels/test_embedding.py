"""What a cycle begins with equals the model's embedding and sums; the token table's gradient equals a scatter-add."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trm.kernels.support import CLOSE, error, random
from trm.config import Arch
from trm.kernels import embedding, plain
from trm.kernels.layout import Anew, Tables
from trm.model import Inner, Sizes

BATCH, CELLS, WIDTH = 3, 5, 64


@pytest.mark.parametrize("part", [embedding, plain], ids=["kernel", "plain"])
def test_token_grad(part: Any) -> None:
    calls, batch, prefix, cells, width, vocab = 2, 5, 3, 70, 64, 11
    ids = torch.randint(0, vocab, (batch, cells), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    d = random(calls, batch, prefix + cells, width)
    true = torch.zeros(vocab, width, dtype=torch.float64)
    true.index_add_(0, ids.flatten().long(), d[:, :, prefix:].double().sum(0).flatten(0, 1))
    assert error(part.token_grad(ids, d, prefix, vocab), true) < CLOSE


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, and 0.0 is not -0.0."""
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def inner_with(ndim: int) -> Inner:
    """A model with puzzle rows of that width over three positions, or with none."""
    arch = Arch(hidden_size=WIDTH, num_heads=2, puzzle_emb_ndim=ndim, puzzle_emb_len=3 * bool(ndim))
    inner = Inner(arch.model_copy(update={"forward_dtype": "float32"}), Sizes(CELLS, 11, 4))
    if ndim:
        inner.puzzle_emb.weights.copy_(random(4, ndim, seed=1))
    return inner


@pytest.mark.parametrize("part", [embedding, plain], ids=["kernel", "plain"])
@pytest.mark.parametrize("ndim", [0, WIDTH, WIDTH + 24])
@torch.no_grad()
def test_a_cycle_begins_with_the_models_own_bits(part: Any, ndim: int) -> None:
    inner = inner_with(ndim)
    z = random(2, BATCH, inner.length, WIDTH)
    for zeros in (z, inner.embed_tokens.embedding_weight, *([inner.puzzle_emb.weights] if ndim else [])):
        zeros[..., :4] = -0.0  # a sum with 0.0 would turn it
    ids = torch.arange(BATCH * CELLS, dtype=torch.int32).view(BATCH, CELLS) % 11
    puzzles = torch.tensor([3, 0, 3], dtype=torch.int32)
    e = inner.embed(ids, inner.puzzle_rows(puzzles))
    tables = Tables(inner.embed_tokens.embedding_weight, ids, inner.puzzle_emb.weights if ndim else None, puzzles)
    injection, x = part.inject(z[0].clone(), z[1], tables, None)
    assert same_bits(injection, z[0] + e) and same_bits(x, z[1] + (z[0] + e))
    anew = Anew(torch.tensor([True, False, True]), inner.H_init, inner.L_init)
    halted = anew.halted[:, None, None]
    started = torch.where(halted, anew.z_H, z[0]), torch.where(halted, anew.z_L, z[1])
    z_H, kept = z[0].clone(), z[1].clone()
    injection, x = part.inject(z_H, kept, tables, anew)
    assert same_bits(z_H, started[0]) and same_bits(kept, z[1])
    assert same_bits(injection, started[0] + e) and same_bits(x, started[1] + injection)
