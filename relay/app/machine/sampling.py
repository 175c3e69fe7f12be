"""Samples the GPU and the host's memory while a session trains: five numbers for each commit (decisions/0031).

Needs nvidia-ml-py; psutil adds the host's memory. Without nvidia-ml-py, or without a GPU, nothing runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from relay.core.clock import Runtime

EVERY_S = 10.0
"""Seconds between two samples."""
BUSY, GPU_MEMORY, POWER, HEAT, HOST_MEMORY = (
    "gpu_busy_ms",
    "gpu_memory_bytes",
    "gpu_joules_per_s",
    "gpu_celsius_s",
    "host_memory_bytes",
)
"""Names among a commit's metrics: milliseconds of each second in which the GPU computed, bytes in use, watts, degrees,
bytes in use. Their endings are those of a session's own measurements, so every version leaves them out of the curves of
training and out of the session's report."""
HIGHEST = (GPU_MEMORY, HEAT, HOST_MEMORY)
"""Of these a commit carries the highest sample, of the others the mean."""
Reader = Callable[[], Mapping[str, float]]


@dataclass
class Sampler:
    """Reads every `every_s` seconds in a thread between `start` and `stop`. See `relay.core.session.context.Meter`."""

    runtime: Runtime
    find: Callable[[], Reader | None]
    """Returns the function that reads this session's machine; None if there is nothing to read."""
    every_s: float = EVERY_S
    _found: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock, self._over = self.runtime.lock(), self.runtime.event()

    def start(self) -> None:
        """Start the thread, if there is something to read and the machine allows one thread more."""
        read = self.find()
        if read is not None:
            with suppress(RuntimeError):
                self.runtime.spawn("sampler", lambda: self._run(read))

    def stop(self) -> None:
        """End the thread after its current sample."""
        self._over.set()

    def take(self) -> dict[str, float]:
        """The numbers for one commit; nothing if there was no sample since the last one."""
        with self._lock:
            found, self._found = self._found, {}
        return {
            name: max(values) if name in HIGHEST else round(sum(values) / len(values), 1)
            for name, values in found.items()
        }

    def _run(self, read: Reader) -> None:
        while not self._over.is_set():
            told = read()
            with self._lock:
                for name, value in told.items():
                    self._found.setdefault(name, []).append(value)
            self._over.wait(self.every_s)


def sampler(runtime: Runtime) -> Sampler | None:
    """The sampler of a session; None without nvidia-ml-py."""
    return Sampler(runtime, gpu_reader) if find_spec("pynvml") else None


def gpu_reader() -> Reader | None:
    """A function that reads the GPU that torch uses in this process, and the host; None without such a GPU.

    A number that the driver does not give is left out.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = _handle(pynvml, torch.cuda)
    except pynvml.NVMLError:
        return None
    host = _host_memory()
    asked: dict[str, Callable[[], float]] = {
        BUSY: lambda: 10.0 * pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        GPU_MEMORY: lambda: float(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        POWER: lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        HEAT: lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    }

    def read() -> dict[str, float]:
        found = {}
        for name, ask in asked.items():
            with suppress(pynvml.NVMLError):  # a part of a divided card has no power or heat of its own
                found[name] = ask()
        return found | ({HOST_MEMORY: host()} if host else {})

    return read


def _handle(pynvml: Any, cuda: Any) -> Any:
    """NVML's handle of torch's current device: NVML ignores CUDA_VISIBLE_DEVICES, so the GPU's UUID decides."""
    uuid = getattr(cuda.get_device_properties(cuda.current_device()), "uuid", None)
    if uuid is None:  # an older torch
        return pynvml.nvmlDeviceGetHandleByIndex(cuda.current_device())
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{str(uuid).removeprefix('GPU-')}")


def _host_memory() -> Callable[[], float] | None:
    """A function that returns the host's memory in use in bytes; None without psutil."""
    try:
        import psutil
    except ImportError:
        return None

    def used() -> float:
        memory = psutil.virtual_memory()
        return float(memory.total - memory.available)

    return used
