"""Lists the GPUs that this process may use, by NVIDIA's driver. Does not need torch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

MAJOR, MINOR = 75, 76
"""Attributes of a device in the driver's interface: its compute capability."""
LONGEST = 96
"""Bytes of a name or an address."""


@dataclass(frozen=True)
class Card:
    """One GPU."""

    name: str
    capability: tuple[int, int]
    memory: int
    """Bytes."""
    used: int = 0
    """Bytes that programs use now; 0 if unknown."""

    def equals(self, other: Card) -> bool:
        """Whether it is the same model."""
        return (self.name, self.capability, self.memory) == (other.name, other.capability, other.memory)


def visible_cards() -> tuple[Card, ...]:
    """In CUDA's order, as CUDA_VISIBLE_DEVICES allows; none without NVIDIA's driver. Uses no memory of a GPU."""
    cuda, count = _library("libcuda.so.1"), ctypes.c_int()
    if cuda is None or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    management = _library("libnvidia-ml.so.1")
    if management is not None and management.nvmlInit_v2():
        management = None
    return tuple(_card(cuda, management, index) for index in range(count.value))


def _library(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _card(cuda: Any, management: Any, index: int) -> Card:
    name, memory = ctypes.create_string_buffer(LONGEST), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, LONGEST, index)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), index)
    found = []
    for attribute in (MAJOR, MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, index)
        found.append(value.value)
    used = _used(cuda, management, index)
    return Card(name.value.decode(errors="replace"), (found[0], found[1]), memory.value, used)


def _used(cuda: Any, management: Any, index: int) -> int:
    address, handle = ctypes.create_string_buffer(LONGEST), ctypes.c_void_p()
    sizes = (ctypes.c_ulonglong * 3)()  # total, free, used
    if (
        management is None
        or cuda.cuDeviceGetPCIBusId(address, LONGEST, index)
        or management.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(handle))
        or management.nvmlDeviceGetMemoryInfo(handle, sizes)
    ):
        return 0
    return sizes[2]
