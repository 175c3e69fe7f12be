"""A frozen copy of a training state that another thread can check, digest and write. Knows no store and no relay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from trm.digest import digest
from trm.statefile import StateDocument, save
from trm.train import TrainState


@dataclass(frozen=True)
class Saved:
    """What `save` wrote."""

    step: int
    state_hash: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Finite:
    """Whether loss and weights were finite."""

    ok: bool
    reason: str = ""


def state_hash(tensors: Mapping[str, Tensor], step: int, seed: int) -> str:
    """P9's digest of a state's canonical tensors."""
    return digest(tensors, {"step": step, "seed": seed})


class Snapshot:
    """The state's tensors, copied on its device. On a GPU the copy is only queued, and `save` waits for it."""

    def __init__(self, state: TrainState, document: StateDocument, loss: Tensor) -> None:
        """loss: float64 sum of the losses since the previous snapshot; it is not finite if one of them was not."""
        self.step = state.step
        self._document = document
        self._tensors = {name: value.detach().clone() for name, value in state.canonical().items()}
        floats = {name: value for name, value in self._tensors.items() if value.is_floating_point()}
        self._names = ("loss", *floats)
        self._flags = torch.stack([loss.isfinite().all(), *(value.isfinite().all() for value in floats.values())])
        self._device = state.device
        self._copied = _event() if self._device.type == "cuda" else None

    @cached_property
    def finite(self) -> Finite:
        """Checked on the copy; names the first part that is not finite. Waits for the copy on a GPU."""
        for name, ok in zip(self._names, self._flags.tolist(), strict=True):
            if not ok:
                return Finite(False, f"{name} is not finite at step {self.step}")
        return Finite(True)

    def save(self, folder: Path) -> Saved:
        """Write every file into an empty folder, fsynced, while training goes on."""
        if self._copied is None:
            return self._save(folder)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_event(self._copied)
        with torch.cuda.stream(stream):
            return self._save(folder)

    def _save(self, folder: Path) -> Saved:
        found = state_hash(self._tensors, self.step, self._document.seed)
        files = save(folder, {name: _to_host(value) for name, value in self._tensors.items()}, self._document)
        return Saved(self.step, found, files)


def _event() -> torch.cuda.Event:
    """A mark in the current stream, at what is queued so far."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _to_host(value: Tensor) -> Tensor:
    """The tensor on the CPU, through pinned memory so that a copy does not hold up the GPU's other streams."""
    if value.device.type == "cpu":
        return value
    host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    host.copy_(value, non_blocking=True)
    torch.cuda.current_stream(value.device).synchronize()
    return host
