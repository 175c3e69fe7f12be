"""The network: names, shapes, initial weights, types, gradients."""

from __future__ import annotations

import math

import pytest
import torch

from trm import layers
from trm.config import Arch
from trm.layers import rms_norm, rotary_tables, rotate, truncated_normal
from trm.model import Inner, Sizes

SUDOKU = Sizes(seq_len=81, vocab_size=11, num_identifiers=1)


@pytest.mark.parametrize(("mlp_t", "count"), [(True, 5_028_866), (False, 6_828_034)])
def test_parameter_count_and_names_are_the_references(mlp_t: bool, count: int) -> None:
    inner = Inner(Arch(mlp_t=mlp_t, pos_encodings="none" if mlp_t else "rope"), SUDOKU)
    assert sum(p.numel() for p in inner.parameters()) == count
    mixer = (
        {"mlp_t.gate_up_proj": (1024, 97), "mlp_t.down_proj": (97, 512)}
        if mlp_t
        else {"self_attn.qkv_proj": (1536, 512), "self_attn.o_proj": (512, 512)}
    )
    block = mixer | {"mlp.gate_up_proj": (3072, 512), "mlp.down_proj": (512, 1536)}
    expected = {f"L_level.layers.{i}.{name}.weight": shape for i in (0, 1) for name, shape in block.items()}
    expected |= {
        "embed_tokens.embedding_weight": (11, 512),
        "lm_head.weight": (11, 512),
        "puzzle_emb.weights": (1, 512),
    }
    expected |= {"q_head.weight": (2, 512), "q_head.bias": (2,), "H_init": (512,), "L_init": (512,)}
    assert {name: tuple(value.shape) for name, value in inner.state_dict().items()} == expected
    assert inner.H_init.dtype == torch.bfloat16


def test_initial_weights(sizes) -> None:
    inner = Inner(Arch(hidden_size=128, num_heads=2, puzzle_emb_ndim=128), sizes, seed=3)
    weight = inner.L_level.layers[0].mlp.down_proj.weight
    std = 1 / math.sqrt(weight.shape[1])
    assert weight.std().item() == pytest.approx(std, rel=0.01)
    assert weight.abs().max().item() <= 2.2737 * std
    assert inner.embed_tokens.embedding_weight.std().item() == pytest.approx(1 / math.sqrt(128), rel=0.1)
    assert inner.q_head.bias.tolist() == [-5, -5]
    assert not inner.q_head.weight.any()
    assert not inner.puzzle_emb.weights.any()
    assert inner.H_init.float().std().item() == pytest.approx(1, rel=0.3)


def test_initial_weights_are_a_function_of_seed_and_place() -> None:
    first = truncated_normal((50, 20), 0.5, seed=1, index=2)
    torch.manual_seed(99)
    assert torch.equal(first, truncated_normal((50, 20), 0.5, seed=1, index=2))
    assert not torch.equal(first, truncated_normal((50, 20), 0.5, seed=2, index=2))
    assert not torch.equal(first, truncated_normal((50, 20), 0.5, seed=1, index=3))
    assert truncated_normal((100_000,), 0.5, 0, 0).std().item() == pytest.approx(0.5, rel=0.01)


def test_rotation_keeps_lengths_and_depends_on_distance() -> None:
    cos, sin = rotary_tables(10, 8, 10000.0)
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(0)).expand(10, 8)
    turned = rotate(x, cos, sin)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[0], x[0])
    assert torch.allclose(turned[3] @ turned[1], turned[9] @ turned[7], rtol=1e-4)


def test_rms_norm_has_unit_mean_square_and_keeps_the_type() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).bfloat16() * 7
    normed = rms_norm(x, 1e-5)
    assert normed.dtype == torch.bfloat16
    assert normed.float().square().mean(-1).tolist() == pytest.approx([1] * 4, rel=0.02)


def test_prefix_holds_the_puzzle_and_short_rows_are_padded(sizes) -> None:
    arch = Arch(hidden_size=16, num_heads=2, puzzle_emb_ndim=20, puzzle_emb_len=0, forward_dtype="float32")
    inner = Inner(arch, sizes)
    assert inner.length == sizes.seq_len + 2
    embedding = inner.embed(torch.zeros(1, sizes.seq_len, dtype=torch.int32), torch.ones(1, 20))
    assert embedding.shape == (1, sizes.seq_len + 2, 16)
    assert embedding[0, 1].tolist() == pytest.approx([4.0] * 4 + [0.0] * 12)


@pytest.mark.parametrize("positions", ["rope", "learned", "none"])
@pytest.mark.parametrize("mlp_t", [True, False])
def test_bfloat16_trains_on_the_cpu_and_reaches_every_weight(make, mlp_t: bool, positions: str) -> None:
    state = make(1, mlp_t=mlp_t, pos_encodings=positions, forward_dtype="bfloat16")
    assert state.carry.z_H.dtype == torch.bfloat16
    assert state.params.buffer.dtype == torch.float32
    unreached = {name for name, grad in state.grads.views.items() if not grad.any()}
    assert unreached == set()
    assert state.model.inner.puzzle_emb.weights.any()
    assert all(value.isfinite().all() for value in state.tensors().values())


def test_a_slow_bfloat16_product_is_the_same_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a CPU has no bfloat16 of its own, the same values are multiplied in float32 and rounded once."""
    x, w = (torch.linspace(-2, 2, 5 * 33).reshape(5, 33).bfloat16(), torch.linspace(-1, 3, 7 * 33).reshape(7, 33))
    w = w.bfloat16().requires_grad_()
    exact = x.double() @ w.double().T
    for slow in (True, False):
        monkeypatch.setattr(layers, "slow_bf16", lambda device, slow=slow: slow)
        w.grad = None
        y = layers.linear(x, w, None)
        y.float().square().sum().backward()
        assert y.dtype == torch.bfloat16 and w.grad is not None
        assert ((y.double() - exact).norm() / exact.norm()).item() < 4e-3
        grad = 2 * exact.detach().T @ x.double()
        assert ((w.grad.double() - grad).norm() / grad.norm()).item() < 1e-2
