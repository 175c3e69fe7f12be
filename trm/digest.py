"""A digest of named tensors, computed where they are, equal on every device and thread count. Knows no model or file.

Each tensor is read as 64-bit words; lane j of it is the sum over i of word_i * weight_j(i) modulo 2^64, where
the weights are odd pseudo-random numbers of (tensor's name, lane, position). Integer sums do not depend on their order,
and a changed word changes every lane, because odd numbers are invertible modulo 2^64. SHA-256 over the named lanes,
shapes and types gives 64 hexadecimal digits. It guards against mistakes, not against forgers (PROTOCOL P9).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trm import rng

LANES = 4
_CHUNK = {"cpu": 1 << 16, "cuda": 1 << 24}
"""Words at a time: what fits a cache, or fills a GPU. Does not change the result."""


def words(tensor: Tensor) -> Tensor:
    """The tensor's bytes in memory order as int64 (n,), the last word filled up with zero bytes."""
    raw = tensor.detach().contiguous().view(-1)
    spare = -(raw.numel() * raw.element_size()) % 8
    if spare or raw.data_ptr() % 8:
        raw = F.pad(raw.view(torch.uint8), (0, spare)).clone()
    return raw.view(torch.int64)


def lanes(name: str, tensor: Tensor) -> Tensor:
    """int64 (LANES,) on the tensor's device: one kernel where there can be one, else plain operations."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    content = words(tensor)
    return _kernel_lanes(seed, content) if _has_kernels(tensor.device) else plain_lanes(seed, content)


def plain_lanes(seed: int, content: Tensor) -> Tensor:
    """The definition, in plain operations."""
    total = torch.zeros(LANES, dtype=torch.int64, device=content.device)
    size = _CHUNK.get(content.device.type, 1 << 16)
    for start in range(0, len(content), size):
        part = content[start : start + size]
        for lane in range(LANES):
            weight = rng.bits(seed, lane, 0, (len(part),), content.device, start)
            total[lane] += ((weight | 1) * part).sum()
    return total


def _kernel_lanes(seed: int, content: Tensor) -> Tensor:
    """The same in one launch: training waits for a digest, and thousands of launches take longer than the sums."""
    from trm.kernels.digest import lanes as sums

    return sums(content, _keys(seed, content.device), *rng.constants())


@cache
def _keys(seed: int, device: torch.device) -> Tensor:
    """One a lane; kept, because every checkpoint has the same names."""
    return torch.tensor([rng.key(seed, lane, 0) for lane in range(LANES)], device=device)


@cache
def _has_kernels(device: torch.device) -> bool:
    """A GPU that triton supports, and triton."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


@torch.no_grad()
def digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """64 hexadecimal digits over the tensors (any types, one device) and plain JSON facts such as step and seed."""
    names = sorted(tensors)
    sums = torch.stack([lanes(name, tensors[name]) for name in names]).tolist()
    rows = [
        [name, str(tensors[name].dtype), list(tensors[name].shape), lane]
        for name, lane in zip(names, sums, strict=True)
    ]
    document = json.dumps([1, rows, dict(facts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(document.encode()).hexdigest()
