"""A digest of named tensors, computed where they are, equal on every device and thread count. Knows no model or file.

Each tensor is read as 64-bit words; lane j of it is the sum over i of word_i * weight_j(i) modulo 2^64, where
the weights are odd pseudo-random numbers of (tensor's name, lane, position). Integer sums do not depend on their order,
and a changed word changes every lane, because odd numbers are invertible modulo 2^64. SHA-256 over the named lanes,
shapes and types gives 64 hexadecimal digits. It guards against mistakes, not against forgers (PROTOCOL P9).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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
    """int64 (LANES,) on the tensor's device."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    content = words(tensor)
    total = torch.zeros(LANES, dtype=torch.int64, device=tensor.device)
    size = _CHUNK.get(tensor.device.type, 1 << 16)
    for start in range(0, len(content), size):
        part = content[start : start + size]
        for lane in range(LANES):
            weight = rng.bits(seed, lane, 0, (len(part),), tensor.device, start)
            total[lane] += ((weight | 1) * part).sum()
    return total


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
