"""A frozen copy of a training state that another thread can check, digest and write. Knows no store and no relay."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor

from relay.torch.digest import Digest, queued
from relay.torch.statefile import TABLE, StateDocument, TableNote, save
from trm.sharedtable import Plan
from trm.train import TrainState

STAGE = 1 << 25
"""Bytes of pinned memory."""
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Saved:
    """What `save` wrote."""

    step: int
    state_hash: str
    files: tuple[str, ...]
    lends: tuple[str, ...] = ()
    """Of these: what later snapshots may borrow."""
    borrows: tuple[str, ...] = ()
    """Files of an earlier checkpoint that are needed beside these."""


@dataclass(frozen=True)
class Finite:
    """Whether loss and weights were finite."""

    ok: bool
    reason: str = ""


def state_digest(tensors: Mapping[str, Tensor], step: int, seed: int) -> Digest:
    """P9's digest of a state's canonical tensors, only queued where they are on a GPU."""
    return Digest(tensors, {"step": step, "seed": seed})


def state_hash(tensors: Mapping[str, Tensor], step: int, seed: int) -> str:
    """Its text."""
    return state_digest(tensors, step, seed).text


class Snapshot:
    """The state's tensors, copied on its device. On a GPU everything but the way to the disk is only queued here, on
    the stream that trains, so that the thread that saves launches next to nothing beside training. On a CPU nothing can
    be queued: there the thread that saves computes the digest of the copy, and training does not wait for it."""

    def __init__(self, state: TrainState, document: StateDocument, loss: Tensor, plan: Plan | None = None) -> None:
        """loss: float64 sum of the losses since the previous snapshot; it is not finite if one of them was not.

        plan: how a shared puzzle table is saved. Where only its journal is, a GPU does not copy the table: it is
        checked and digested as it is now, on the stream that trains. A CPU copies faster than it digests.
        """
        self.step = state.step
        self._document, self._plan = document, plan
        at_once = plan is not None and not plan.whole and _queues(state.device)
        live = {TABLE: state.tensors()[TABLE]} if at_once else {}
        frozen = state.frozen(without=live)
        self._tensors = frozen.tensors
        checked = [loss, *(value for value in (*frozen.whole, *live.values()) if value.is_floating_point())]
        self._flags = torch.stack([value.isfinite().all() for value in checked])
        if live:
            self._digest = state_digest(self._tensors | live, self.step, document.seed)
        self._copied = queued(state.device)
        if self._copied is not None:
            _ = self._digest  # queued now, computed later

    @cached_property
    def _digest(self) -> Digest:
        return state_digest(self._tensors, self.step, self._document.seed)

    @cached_property
    def finite(self) -> Finite:
        """Checked on the copy; names the first part that is not finite. Waits for the copy on a GPU."""
        loss, *rest = self._flags.tolist()
        if loss and all(rest):
            return Finite(True)
        names = (name for name, value in self._tensors.items() if value.is_floating_point() and not _finite(value))
        return Finite(False, f"{'loss' if not loss else next(names, TABLE)} is not finite at step {self.step}")

    def save(self, folder: Path) -> Saved:
        """Write every file into an empty folder, fsynced, while training goes on. Raises OSError if that fails."""
        if self._copied is None:
            return self._save(folder, dict(self._tensors))
        stream = torch.cuda.Stream(self._flags.device)  # type: ignore[no-untyped-call]
        stream.wait_event(self._copied)
        with torch.cuda.stream(stream):
            return self._save(folder, to_host(self._tensors))

    def _save(self, folder: Path, tensors: Mapping[str, Tensor]) -> Saved:
        plan, text = self._plan, self._digest.text
        if plan is None:
            return Saved(self.step, text, save(folder, tensors, self._document))
        rest = {name: value for name, value in tensors.items() if name != TABLE}
        document = self._document.model_copy(update={"table": TableNote(base=plan.base, state_hash=text)})
        files = save(folder, rest, document, plan.files(tensors.get(TABLE)))
        return Saved(self.step, text, files, plan.lends, plan.borrows)


def _queues(device: torch.device) -> bool:
    """Whether work there is queued and done in order, so that a digest need not be waited for."""
    return device.type != "cpu"


def _finite(value: Tensor) -> bool:
    return bool(value.isfinite().all())


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, by way of the current stream alone.

    Pinned memory does not hold up the GPU's other streams, but asking the driver for it does: so a small piece of it is
    asked for once, and every byte goes through it. A piece is used again only after the copy before has ended, and one
    snapshot at a time goes through it, whoever else saves in this process.
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
