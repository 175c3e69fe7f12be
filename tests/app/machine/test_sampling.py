"""Sampling of the machine: five numbers for a commit, by a fake driver; nothing without its packages or a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from relay.app.machine import sampling
from relay.app.machine.sampling import BUSY, GPU_MEMORY, HEAT, HOST_MEMORY, POWER, Sampler, gpu_reader, sampler
from relay.core.ledger.sessionreport import about_itself
from tests.core.lab import Lab
from tests.core.making import QuietRuntime

UUID = "6a0f4b9c-0000-1111-2222-333344445555"


class NVMLError(Exception):
    pass


def driver(monkeypatch: pytest.MonkeyPatch, **broken: Any) -> list[str]:
    """A fake driver and a fake torch that computes on a GPU; returns the UUIDs that were asked for."""
    asked: list[str] = []

    def refuse(*_: object) -> Any:
        raise NVMLError

    functions: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: asked.append(uuid) or "card",
        "nvmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(gpu=97),
        "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(used=5_100_000_000),
        "nvmlDeviceGetPowerUsage": lambda card: 312_500,
        "nvmlDeviceGetTemperature": lambda card, sensor: 61,
    }
    functions |= dict.fromkeys(broken, refuse)
    fake = SimpleNamespace(NVMLError=NVMLError, NVML_TEMPERATURE_GPU=0, **functions)
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 1,
        get_device_properties=lambda device: SimpleNamespace(uuid=UUID),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return asked


def test_it_reads_the_card_that_torch_uses_and_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = driver(monkeypatch)
    read = gpu_reader()
    assert read is not None and asked == [f"GPU-{UUID}"]
    found = dict(read())
    assert found.pop(HOST_MEMORY) > 1e6
    assert found == {BUSY: 970.0, GPU_MEMORY: 5.1e9, POWER: 312.5, HEAT: 61.0}
    monkeypatch.setitem(sys.modules, "psutil", None)
    read = gpu_reader()
    assert read is not None and HOST_MEMORY not in read()


def test_a_number_that_a_card_lacks_is_left_out_and_no_card_is_no_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, nvmlDeviceGetPowerUsage=True)
    read = gpu_reader()
    assert read is not None and set(read()) == {BUSY, GPU_MEMORY, HEAT, HOST_MEMORY}
    driver(monkeypatch, nvmlInit=True)
    assert gpu_reader() is None
    driver(monkeypatch)
    monkeypatch.setattr(sys.modules["torch"].cuda, "is_initialized", lambda: False)
    assert gpu_reader() is None, "the session computes on the CPU"
    monkeypatch.delitem(sys.modules, "torch")
    assert gpu_reader() is None


def test_without_the_package_there_is_no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "find_spec", lambda name: None)
    assert sampler(QuietRuntime()) is None


def test_every_version_takes_the_names_for_measurements_of_the_session() -> None:
    names = (BUSY, GPU_MEMORY, POWER, HEAT, HOST_MEMORY)
    assert len(set(names)) == 5 and all(about_itself(name) for name in names)


def test_a_commit_carries_the_mean_or_the_highest_of_its_own_samples(lab: Lab) -> None:
    session, numbers = lab.session("ana", target_steps=40), iter(range(100, 10_000))

    def read() -> dict[str, float]:
        return dict.fromkeys((POWER, HEAT), float(next(numbers)))

    session.ctx.meter = Sampler(session.process, lambda: read, every_s=0.05)
    lab.run(session)
    state = lab.state()
    assert state.step == 40 and "loss" in state.metrics, "training's own metrics stay"
    assert state.metrics[HEAT] > state.metrics[POWER] > 100, "the highest, and of the other the mean"


def test_it_ends_with_the_session_and_costs_a_machine_without_threads_nothing(lab: Lab) -> None:
    calls: list[float] = []
    session = lab.session("ana", target_steps=20)

    def read() -> dict[str, float]:
        calls.append(1.0)
        return {}

    session.ctx.meter = Sampler(session.process, lambda: read, every_s=0.05)
    lab.run(session)
    ended = len(calls)
    assert ended > 0
    lab.run(lab.session("ben", target_steps=60))
    assert len(calls) == ended

    class Full(QuietRuntime):
        def spawn(self, name: str, body: Any) -> Any:
            raise RuntimeError("can't start new thread")

    full = Sampler(Full(), lambda: lambda: {POWER: 1.0})
    full.start()
    assert full.take() == {}
