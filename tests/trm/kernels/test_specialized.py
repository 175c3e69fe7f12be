"""Kernels with loading warps are chosen where they ran and nowhere else; the rest of the shapes takes the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from trm.kernels import attention, channel_mlp, components, token_mixer
from trm.kernels.components import fused_components
from trm.kernels.layout import Total
from trm.kernels.specialized import attention as hopper_attention
from trm.kernels.specialized import (
    channel,
    gate_up,
    hidden_grad,
    long_forward,
    long_keys,
    long_queries,
    mixer,
    mixer_forward,
    mixer_input_grad,
    mixer_weight_grad,
    out,
    qkv,
    short_backward,
    short_forward,
    streamed,
)
from trm.kernels.specialized.long_tiles import tiles


def found_on(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str) -> components.Components:
    """The parts on a GPU and a Triton that are not here."""
    fused_components()  # every kernel is imported, for the interpreter, before Triton is told otherwise
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(triton, "__version__", version)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    return fused_components()


@pytest.mark.parametrize(
    ("capability", "version", "name"),
    [
        ((9, 0), "3.6.0", "fused-specialized-mixer-attention-channel"),
        ((9, 0), "3.6.1+git1", "fused-specialized-mixer-attention-channel"),
        ((9, 0), "3.5.1", "fused"),
        ((9, 0), "3.7.1", "fused-specialized-mixer-attention-channel"),
        ((9, 0), "3.8.0", "fused"),
        ((9, 0), "3.60.0", "fused"),
        ((10, 0), "3.6.0", "fused"),
        ((12, 0), "3.6.0", "fused"),
    ],
)
def test_chosen_only_where_they_ran(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str, name: str
) -> None:
    """The name is the digest's path: a link between two choices is labeled."""
    assert found_on(monkeypatch, capability, version).name == name


@pytest.mark.parametrize(
    ("capability", "name"), [((9, 0), "fused-specialized-mixer-attention-channel"), ((10, 0), "fused")]
)
def test_a_trial_takes_them_with_any_triton(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], name: str
) -> None:
    monkeypatch.setenv("TRM_UNTRIED_TRITON", "1")
    assert found_on(monkeypatch, capability, "3.99.0").name == name


def test_not_in_the_interpreter() -> None:
    assert fused_components().mixer is token_mixer


def answers(monkeypatch: pytest.MonkeyPatch, function: str, *modules: Any) -> None:
    """Let the modules' function return their module's name instead of launching."""
    for module in modules:
        monkeypatch.setattr(module, function, lambda *_, name=module.__name__: name)


@pytest.mark.parametrize(
    ("length", "width", "inner", "own"),
    [
        (97, 512, 512, True),
        (112, 512, 512, True),
        (113, 512, 512, False),
        (97, 128, 512, False),
        (97, 1024, 512, False),
        (97, 512, 256, False),
    ],
)
def test_the_mixer_hands_on_what_it_cannot_take(
    monkeypatch: pytest.MonkeyPatch, length: int, width: int, inner: int, own: bool
) -> None:
    x, wd = torch.empty(1, length, width), torch.empty(inner, 128)
    answers(monkeypatch, "forward", mixer_forward, token_mixer)
    answers(monkeypatch, "input_grad", mixer_input_grad, token_mixer)
    answers(monkeypatch, "weight_grad", mixer_weight_grad, token_mixer)
    taken: Any = [mixer.forward(x, wd, wd, 1e-5), mixer.input_grad(x, x, x, x, wd, wd, x)]
    assert taken == [m.__name__ if own else token_mixer.__name__ for m in (mixer_forward, mixer_input_grad)]
    assert mixer.takes(x, wd) == own


@pytest.mark.parametrize(("width", "rows", "own"), [(512, 3072, True), (256, 3072, False), (512, 1664, False)])
def test_the_channel_hands_on_what_it_cannot_take(
    monkeypatch: pytest.MonkeyPatch, width: int, rows: int, own: bool
) -> None:
    answers(monkeypatch, "gate_up", gate_up, channel_mlp)
    taken: Any = channel.gate_up(torch.empty(3, width), torch.empty(rows, width), True)
    assert taken == (gate_up if own else channel_mlp).__name__


@pytest.mark.parametrize(
    ("width", "inner", "own"), [(512, 1536, True), (256, 1536, False), (512, 1600, False), (512, 128 * 133, False)]
)
def test_the_hidden_gradient_hands_on_what_it_cannot_take(
    monkeypatch: pytest.MonkeyPatch, width: int, inner: int, own: bool
) -> None:
    answers(monkeypatch, "hidden_grad", hidden_grad, channel_mlp)
    taken: Any = channel.hidden_grad(torch.empty(3, width), torch.empty(width, inner), torch.empty(3, 2 * inner))
    assert taken == (hidden_grad if own else channel_mlp).__name__


@pytest.mark.parametrize(
    ("length", "width", "heads", "own"),
    [(97, 512, 8, True), (128, 512, 8, True), (129, 512, 8, True), (97, 512, 4, False), (916, 256, 4, False)],
)
def test_the_attention_hands_on_what_it_cannot_take(
    monkeypatch: pytest.MonkeyPatch, length: int, width: int, heads: int, own: bool
) -> None:
    """A projection that turns queries and keys must meet an attention that does not, and the other way round."""
    x, w, projected = torch.empty(1, length, width), torch.empty(3 * width, width), torch.empty(1, length, 3 * width)
    answers(monkeypatch, "project", attention, qkv)
    answers(monkeypatch, "project_total", attention, qkv)
    answers(monkeypatch, "backward", attention)
    monkeypatch.setattr(attention, "forward", lambda *_: (attention.__name__, ()))
    for module in (short_forward, long_forward):
        monkeypatch.setattr(module, "forward", lambda *_, name=module.__name__: (name, x))
    answers(monkeypatch, "backward", short_backward)
    written: list[str] = []
    for module in (long_queries, long_keys):
        monkeypatch.setattr(module, "write", lambda *_, name=module.__name__: written.append(name))
    rotary: Any = (x, x, heads)
    taken: Any = hopper_attention.project(x, w, *rotary), hopper_attention.forward(projected, *rotary)[0]
    gradient: Any = hopper_attention.backward(projected, x, x, x, (x,), x, heads)
    long, short = own and length > 128, own and length <= 128
    made = short_forward if short else long_forward if long else attention
    for squares, mine in ((torch.empty(length, 4), own), (None, False)):
        found: Any = hopper_attention.project_total(Total(x, squares), w, *rotary, 1e-5)
        assert found == (qkv if mine else attention).__name__
    assert taken == ((qkv if own else attention).__name__, made.__name__)
    assert written == ([long_queries.__name__, long_keys.__name__] if long else [])
    assert long or gradient == (short_backward if short else attention).__name__


@pytest.mark.parametrize(("width", "own"), [(512, True), (256, False), (1024, False)])
def test_the_output_projection_hands_on_what_it_cannot_take(
    monkeypatch: pytest.MonkeyPatch, width: int, own: bool
) -> None:
    """A weight must be packed for who takes it."""
    x, w = torch.empty(3, width), torch.empty(width, width)
    answers(monkeypatch, "add", attention, out)
    packed: list[str] = []
    monkeypatch.setattr(attention, "pack_out", lambda *_: packed.append(attention.__name__))
    monkeypatch.setattr(out, "spread", lambda *_: packed.append(out.__name__))
    taken: Any = hopper_attention.add(x, x, w, x)
    hopper_attention.pack_out(w, w)
    assert [taken] == packed == [(out if own else attention).__name__]


def test_a_spread_weight_gives_a_thread_columns_side_by_side() -> None:
    """Of 64 products in a row, thread t of four has those of weight rows 8 i + 2 t and 8 i + 2 t + 1."""
    columns = torch.arange(512)[:, None]
    spread = torch.empty_like(columns)
    out.spread(columns, spread)
    owned = spread.view(-1, 16, 4, 2).transpose(1, 2).reshape(-1, 4, 4, 8)
    assert torch.equal(owned - owned[..., :1], torch.arange(8).expand_as(owned))
    assert torch.equal(
        owned[0, :, :, 0], torch.tensor([[0, 32, 64, 96], [8, 40, 72, 104], [16, 48, 80, 112], [24, 56, 88, 120]])
    )
    assert torch.equal(spread.sort(dim=0).values, columns)


@pytest.mark.parametrize(
    ("length", "block", "found"), [(916, 128, (8, 32)), (916, 64, (15, 32)), (1024, 128, (8, 128)), (129, 128, (2, 16))]
)
def test_tiles_hold_a_sequence(length: int, block: int, found: tuple[int, int]) -> None:
    """The last tile is computed as far as it is filled, in a width that the matrix units take."""
    assert tiles(length, block) == found
    assert (found[0] - 1) * block + found[1] >= length > (found[0] - 1) * block


def test_one_tile_is_too_few() -> None:
    with pytest.raises(ValueError, match="128"):
        tiles(128, 128)


@pytest.mark.parametrize("programs", [1, 108, 132, 144])
@pytest.mark.parametrize("blocks", [1, 2, 7, 66, 131, 132, 133, 582, 1374])
def test_blocks_are_dealt_once_each_and_side_by_side(
    monkeypatch: pytest.MonkeyPatch, programs: int, blocks: int
) -> None:
    """A program whose share begins at its part of the order is never far from the others."""
    monkeypatch.setattr(streamed.gl, "num_programs", lambda _axis: programs)
    around = streamed.period(128 * blocks, programs)
    where = [streamed._where.fn(block, blocks, around) for block in range(blocks)]
    assert sorted(where) == list(range(blocks))
    starts = [program * blocks // programs for program in range(programs)]
    for step in range(blocks // programs):
        present = [where[start + step] for start in starts if start + step < blocks]
        assert max(present) - min(present) < 2 * programs
