"""A frozen copy of a training state that another thread can check, digest and write."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor

from relay.core.workload import Finite, Saved
from relay.torch.digest import Digest, queued
from relay.torch.statefile import Files, StateDocument, save

STAGE = 1 << 25
"""Size of the pinned memory, bytes."""
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Frozen:
    """A copy of a state."""

    tensors: dict[str, Tensor]
    """By logical name."""
    whole: Sequence[Tensor]
    """The same values in fewer tensors."""


def state_digest(tensors: Mapping[str, Tensor], step: int, seed: int) -> Digest:
    """P9's digest of a state's canonical tensors; on a GPU only queued."""
    return Digest(tensors, {"step": step, "seed": seed})


def state_hash(tensors: Mapping[str, Tensor], step: int, seed: int) -> str:
    """Its text."""
    return state_digest(tensors, step, seed).text


class DeviceSnapshot:
    """The state's tensors, copied on its device. On a GPU, everything but the write to disk is queued here, on the
    training stream, so that the saving thread launches almost nothing next to training. A CPU cannot queue: there the
    saving thread computes the digest of the copy, and training does not wait for it."""

    def __init__(
        self,
        frozen: Frozen,
        document: StateDocument,
        files: Files,
        loss: Tensor,
        live: Mapping[str, Tensor] | None = None,
        texts: Mapping[str, bytes] | None = None,
    ) -> None:
        """loss: float64 sum of the losses since the previous snapshot; it is not finite if one of them was not.

        live: tensors that are not copied; they are checked and digested as they are now, on the training stream.
        texts: further files, which never change.
        """
        live, self._texts = live or {}, texts
        self.step = document.step
        self._document, self._files, self._tensors = document, files, frozen.tensors
        self._live = next(iter(live), "")
        checked = [loss, *(value for value in (*frozen.whole, *live.values()) if value.is_floating_point())]
        self._flags = torch.stack([value.isfinite().all() for value in checked])
        if live:
            self._digest = state_digest(self._tensors | dict(live), self.step, document.seed)
        self._copied = queued(self._flags.device)
        if self._copied is not None:
            _ = self._digest  # queued now, computed later

    @cached_property
    def _digest(self) -> Digest:
        return state_digest(self._tensors, self.step, self._document.seed)

    @cached_property
    def finite(self) -> Finite:
        """Checks the copy; names the first part that is not finite. Waits for the copy on a GPU."""
        loss, *rest = self._flags.tolist()
        if loss and all(rest):
            return Finite(True)
        names = (name for name, value in self._tensors.items() if value.is_floating_point() and not _finite(value))
        return Finite(False, f"{'loss' if not loss else next(names, self._live)} is not finite at step {self.step}")

    def save(self, folder: Path) -> Saved:
        """Write every file into an empty folder, fsynced, while training continues. Raises OSError on failure."""
        if self._copied is None:
            return self._save(folder, dict(self._tensors))
        stream = torch.cuda.Stream(self._flags.device)  # type: ignore[no-untyped-call]
        stream.wait_event(self._copied)
        with torch.cuda.stream(stream):
            return self._save(folder, to_host(self._tensors))

    def _save(self, folder: Path, tensors: Mapping[str, Tensor]) -> Saved:
        """Write the tensors, which are on the CPU, to files."""
        files = save(folder, self._files, tensors, self._document, texts=self._texts)
        return Saved(self.step, self._digest.text, files)


def _finite(value: Tensor) -> bool:
    return bool(value.isfinite().all())


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, by way of the current stream alone.

    Pinned memory does not delay the GPU's other streams, but its allocation does. So one small piece is allocated
    once, and every byte goes through it. A piece is reused only after the copy before has ended, and one snapshot at
    a time goes through it, even if several threads save.
    """
    with _ONE_AT_A_TIME:
        stage = _stage()
        return {name: _through(stage, value) for name, value in tensors.items()}


@cache
def _stage() -> Tensor:
    """Pinned bytes."""
    return torch.empty(STAGE, dtype=torch.uint8, pin_memory=True)


def _through(stage: Tensor, value: Tensor) -> Tensor:
    host = torch.empty(value.shape, dtype=value.dtype)
    source, target = (each.view(-1).view(torch.uint8) for each in (value.contiguous(), host))
    for start in range(0, len(source), STAGE):
        piece = source[start : start + STAGE]
        part = stage[: len(piece)]
        part.copy_(piece, non_blocking=True)
        torch.cuda.current_stream(value.device).synchronize()
        target[start : start + STAGE].copy_(part)
    return host
