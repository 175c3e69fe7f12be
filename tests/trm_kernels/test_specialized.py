"""Kernels with loading warps are chosen where they ran and nowhere else; the rest of the shapes takes the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from trm.kernels import channel_mlp, parts, token_mixer
from trm.kernels.parts import fused_parts
from trm.kernels.specialized import channel, gate_up, mixer, mixer_forward, mixer_input_grad, mixer_weight_grad


def found_on(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str) -> parts.Parts:
    """The parts on a GPU and a Triton that are not here."""
    fused_parts()  # every kernel is imported, for the interpreter, before Triton is told otherwise
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(triton, "__version__", version)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    return fused_parts()


@pytest.mark.parametrize(
    ("capability", "version", "name"),
    [
        ((9, 0), "3.6.0", "fused-specialized-mixer-channel"),
        ((9, 0), "3.6.1+git1", "fused-specialized-mixer-channel"),
        ((9, 0), "3.5.1", "fused"),
        ((9, 0), "3.7.0", "fused"),
        ((9, 0), "3.60.0", "fused"),
        ((10, 0), "3.6.0", "fused"),
        ((12, 0), "3.6.0", "fused"),
    ],
)
def test_chosen_only_where_they_ran(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str, name: str
) -> None:
    """The name is the digest's path: a link between two choices is labelled."""
    assert found_on(monkeypatch, capability, version).name == name


def test_not_in_the_interpreter() -> None:
    assert fused_parts().mixer is token_mixer


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
    assert channel.hidden_grad is channel_mlp.hidden_grad
