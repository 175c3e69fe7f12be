"""Devices: a GPU has run a kernel before anything is trained on it; an old one is spared bfloat16, and that is said."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from relay.app.models.trm import Trm
from relay.core.errors import BadConfig
from relay.torch import device as devices
from tests.facts import raising
from trm import layers
from trm.choosing import Choice
from trm.cost import need
from trm.model import Sizes
from trm.presets import preset
from trm.workload import strategy

CARDS = {"Tesla P100-PCIE-16GB": (6, 0), "Tesla T4": (7, 5), "NVIDIA A100-SXM4-40GB": (8, 0)}
NO_IMAGE = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be ..."


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch):
    """card(name): torch sees that GPU; every kernel on it raises `error` if there is one."""

    def insert(name: str, error: str | None = None) -> None:
        def try_kernels(device: torch.device) -> None:
            if error:
                raise RuntimeError(error)

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: CARDS[name])
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90"])
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (int(15e9), int(16e9)))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 0)
        monkeypatch.setattr(devices, "try_kernels", try_kernels)
        monkeypatch.setattr(devices, "_SLOW", {})

    return insert


def test_a_gpu_that_runs_is_chosen_and_the_cpu_without_one(card, monkeypatch: pytest.MonkeyPatch) -> None:
    card("Tesla T4")
    assert devices.choose("auto") == "cuda"
    assert devices.choose("cuda:0") == "cuda:0"
    assert devices.choose("cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.choose("auto") == "cpu"
    with pytest.raises(devices.DeviceError) as caught:
        devices.choose("cuda")
    assert (caught.value.wanted, caught.value.why) == ("cuda", "absent")
    with raising(BadConfig, "device=auto"):
        Trm().device("cuda")


def test_xla_without_a_torch_xla_that_fits_is_refused_with_the_pair_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (None, ModuleType("torch_xla")):
        monkeypatch.setitem(sys.modules, "torch_xla", module)
        with pytest.raises(devices.DeviceError) as caught:
            devices.choose("xla")
        assert (caught.value.wanted, caught.value.why) == ("xla", "xla")
        with raising(BadConfig, "torch==2.9.0 torch_xla==2.9.0"):
            Trm().device("xla")


def test_a_gpu_that_this_torch_has_no_kernels_for_is_refused_with_what_to_choose(card) -> None:
    card("Tesla P100-PCIE-16GB", NO_IMAGE)
    with pytest.raises(devices.DeviceError) as caught:
        devices.choose("auto")
    assert (caught.value.why, caught.value.capability) == ("unbuilt", "sm_60")
    assert "T4 x2" not in str(caught.value)
    with pytest.raises(BadConfig) as refused:
        Trm().device("auto")
    text = str(refused.value)
    for part in ("Tesla P100-PCIE-16GB (sm_60)", f"torch {torch.__version__}", "sm_75, sm_80, sm_90", "T4 x2"):
        assert part in text
    assert devices.choose("cpu") == "cpu"


def test_a_gpu_that_is_broken_or_full_is_refused_in_one_line(card) -> None:
    card("Tesla T4", "CUDA error: all CUDA-capable devices are busy or unavailable\nCompile with ...")
    with raising(BadConfig, "Tesla T4", "busy or unavailable", "nvidia-smi") as found:
        Trm().device("cuda")
    assert "\n" not in str(found.value)
    cause = found.value.__cause__
    assert isinstance(cause, devices.DeviceError) and cause.why == "broken"


def test_the_trial_is_a_real_computation_whose_result_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    devices.try_kernels(torch.device("cpu"))
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: a)
    with pytest.raises(RuntimeError):
        devices.try_kernels(torch.device("cpu"))


@pytest.mark.parametrize("name", CARDS)
def test_bfloat16_is_multiplied_only_by_cards_that_have_it_whatever_torch_says(card, name: str) -> None:
    card(name)
    old = CARDS[name] < (8, 0)
    gpu, plain = torch.device("cuda"), Choice("plain", "asked for")
    assert devices.slow_bf16(gpu) is old
    remarks = strategy(plain, gpu, preset("sudoku"), Sizes(81, 11, 1)).remarks
    assert any("OLD CARD" in r and name in r for r in remarks) is old
    small = preset("sudoku4")
    assert strategy(plain, gpu, small, Sizes(16, 6, 1)).remarks == (), "float32 is the same everywhere"


def test_wide_products_keep_more() -> None:
    config, sizes = preset("sudoku"), Sizes(81, 11, 1)
    assert need(config, sizes, "eager", wide=True).per_row > 1.1 * need(config, sizes, "eager").per_row


@pytest.mark.slow
def test_what_decides_about_bfloat16_can_be_compiled() -> None:
    """A graph that breaks at every product would be no baseline. A state asks before its model is compiled."""
    x = torch.ones(2, 2, dtype=torch.bfloat16)
    assert devices.slow_bf16(x.device) in (True, False)
    compiled = torch.compile(layers.linear, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, x, None), layers.linear(x, x, None))
