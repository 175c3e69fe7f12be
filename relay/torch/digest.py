"""A digest of named tensors, computed on their device, equal on every device and thread count.

Each tensor is read as 64-bit words; lane j of it is the sum over i of word_i * weight_j(i) modulo 2^64, where
the weights are odd pseudo-random numbers of (tensor's name, lane, position). Integer sums do not depend on their order,
and a changed word changes every lane, because odd numbers are invertible modulo 2^64. SHA-256 over the named lanes,
shapes and types gives 64 hexadecimal digits. It guards against mistakes, not against forgers (PROTOCOL P9).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from relay.torch import rng
from relay.torch.device import has_kernels

LANES = 4
_CHUNK = {"cpu": 1 << 12, "cuda": 1 << 22}
"""Words in one pass: enough to fit a cache, or to fill a GPU. Does not change the result."""


def words(tensor: Tensor) -> Tensor:
    """The tensor's bytes in memory order as int64 (n,), the last word filled up with zero bytes."""
    raw = tensor.detach().contiguous().view(-1)
    spare = -(raw.numel() * raw.element_size()) % 8
    if spare or raw.data_ptr() % 8:
        raw = F.pad(raw.view(torch.uint8), (0, spare)).clone()
    return raw.view(torch.int64)


def lanes(name: str, tensor: Tensor) -> Tensor:
    """int64 (LANES,) on the tensor's device, by the definition."""
    return plain_lanes(_seed(name), words(tensor))


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def plain_lanes(seed: int, content: Tensor) -> Tensor:
    """The definition, in plain operations."""
    total = torch.zeros(LANES, dtype=torch.int64, device=content.device)
    keys = torch.tensor([[rng.key(seed, lane, 0)] for lane in range(LANES)], device=content.device)
    size = _CHUNK.get(content.device.type, 1 << 12)
    for start in range(0, len(content), size):
        part = content[start : start + size]
        total += ((rng.bits_of(keys, len(part), start) | 1) * part).sum(1)
    return total


def _sums(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
    """int64 (names, LANES) of tensors on one device: one launch if possible, otherwise plain operations."""
    device = tensors[names[0]].device  # of these: others may be elsewhere
    if not has_kernels(device):
        return torch.stack([lanes(name, tensors[name]) for name in names])
    from relay.torch.kernels.digest import lanes as sums

    with torch.cuda.device(device):  # Triton launches on the thread's current device
        return sums([words(tensors[name]) for name in names], _keys(names, device), *rng.constants())


@lru_cache(8)
def _keys(names: tuple[str, ...], device: torch.device) -> Tensor:
    """(names, LANES); cached, because every checkpoint has the same names."""
    return torch.tensor([[rng.key(_seed(name), lane, 0) for lane in range(LANES)] for name in names], device=device)


class Digest:
    """64 hexadecimal digits over tensors (any types, any devices) and plain JSON facts such as step and seed.

    On a GPU the sums are only queued, after the work that computes the tensors; the first reader of `text` waits.
    """

    @torch.no_grad()
    def __init__(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        names = tuple(sorted(tensors))
        self._about = [(name, str(tensors[name].dtype), list(tensors[name].shape)) for name in names]
        self._facts = dict(facts)
        self._sums: list[tuple[tuple[str, ...], Tensor]] = []
        self._queued: list[torch.cuda.Event] = []
        for device, own in _by_device(tensors, names).items():
            self._sums.append((own, _sums(tensors, own).to("cpu", non_blocking=True)))
            if (event := queued(device)) is not None:
                self._queued.append(event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and self.text == other.text

    @cached_property
    def text(self) -> str:
        """The digits."""
        for event in self._queued:
            event.synchronize()
        lanes = {name: sums for names, found in self._sums for name, sums in zip(names, found.tolist(), strict=True)}
        rows = [[*about, lanes[about[0]]] for about in self._about]
        document = json.dumps([1, rows, self._facts], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(document.encode()).hexdigest()


def _by_device(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[torch.device, tuple[str, ...]]:
    found: dict[torch.device, tuple[str, ...]] = {}
    for name in names:
        found[tensors[name].device] = (*found.get(tensors[name].device, ()), name)
    return found


@dataclass(frozen=True)
class QueuedStepDigest:
    """P9: digest of the state at `step`, and the path that computed it (relay.core.workload.StepDigest)."""

    step: int
    path: str
    queued: Digest
    """Digest of the canonical state, possibly still queued."""

    @property
    def digest(self) -> str:
        """The digest's text; on a GPU, the first caller waits for the step."""
        return self.queued.text


def queued(device: torch.device) -> torch.cuda.Event | None:
    """An event after the work queued so far on this thread's stream; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))  # a thread's current device may be another one
    return event


def digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """The text of a `Digest`."""
    return Digest(tensors, facts).text
