"""Decides when a large puzzle table is written, and when only its changes."""

from __future__ import annotations

import os

import torch

from trm.checkpoint import Plan, table_file
from trm.config import TrainConfig
from trm.journal import Chunk, Journal, Record, replays
from trm.optim import lr_scale
from trm.train import TrainState

SHARED_FROM = 1 << 27
"""Size from which checkpoints share a table, bytes; a smaller one is sent with each."""
SHARE = 0.1
"""Share of the table's bytes: a longer journal makes a new base."""
REPLAYED = 20_000
"""Steps: some ten seconds of a restore; a longer journal makes a new base."""
KEPT = 5
"""A journal this many times as long as either: a base that cannot be borrowed is dropped, as its journal is memory."""
ROUNDS_OTHERWISE = (
    "WHOLE TABLE: this device rounds differently from a CPU, so a journal of changes would not give its bits. "
    "Each checkpoint is sent with its whole puzzle table."
)
"""Told before training."""


def sharing(size: int, device: torch.device, least: int | None = None) -> tuple[bool, tuple[str, ...]]:
    """Whether checkpoints share a table of `size` bytes, and lines to print. They share from `least` bytes on, if it is
    given, otherwise from SHARED_FROM unless TRM_SHARED_TABLE=0; never if a replay does not give the device's bits.
    """
    wanted = os.environ.get("TRM_SHARED_TABLE", "1") != "0"
    if not (size >= least if least is not None else wanted and size >= SHARED_FROM):
        return False, ()
    return (True, ()) if replays(device) else (False, (ROUNDS_OTHERWISE,))


class SharedTable:
    """The known bases and the steps since then, of one state from its start or load on."""

    def __init__(self, state: TrainState, base: int | None = None, journal: Record | None = None) -> None:
        """base, journal: the source of the loaded state, if its table has such files."""
        table = state.model.inner.puzzle_emb.weights
        self._bytes, self._width = table.numel() * table.element_size(), table.shape[1]
        self._config: TrainConfig = state.config
        self._journal = state.journal = Journal(state.config.batch_size, self._width, state.device, state.step)
        self._bases = [] if base is None else [base]
        self._chunks = [] if base is None or journal is None else [Chunk(base, journal)]
        self._offered, self._last = frozenset[str](), False

    def lend(self, names: frozenset[str], last: bool) -> None:
        """Before a snapshot: the earlier checkpoints' files that exist. last: prefer a small snapshot."""
        self._offered, self._last = names, last

    def before_step(self, step: int) -> None:
        """Called before the step that ends at `step`."""
        if self._journal.full:
            self._take()
            self._forget()
            for chunk in self._chunks[:-1]:
                _ = chunk.record  # at most two on the device
        lr = self._config.puzzle_emb_lr * lr_scale(self._config, step)
        self._journal.open(lr, self._config.puzzle_emb_weight_decay)

    def plan(self, step: int) -> Plan:
        """The plan for the snapshot at `step`, the present one."""
        self._take()
        self._forget()
        usable = [base for base in self._bases if table_file(base) in self._offered]
        if not usable or (self._too_long() and not self._last):
            self._bases.append(step)
            return Plan(step, True, (), self._width)
        base = max(usable)
        self._bases = [known for known in self._bases if known >= base]
        self._chunks = self._since(base)
        return Plan(base, False, tuple(self._chunks), self._width)

    def _take(self) -> None:
        chunk = self._journal.take()
        if chunk.stop > chunk.start:
            self._chunks.append(chunk)

    def _forget(self) -> None:
        """Drop bases with a journal that is far too long, and the steps that lead from dropped bases."""
        self._bases = [base for base in self._bases if not self._longer(base, KEPT)]
        self._chunks = self._since(min(self._bases)) if self._bases else []

    def _since(self, base: int) -> list[Chunk]:
        return [chunk for chunk in self._chunks if chunk.start >= base]

    def _too_long(self) -> bool:
        """Whether the journal since the newest base, possibly on its way, is too long: a second comes no sooner."""
        return self._longer(max(self._bases))

    def _longer(self, base: int, times: int = 1) -> bool:
        """Whether the journal since then is longer than `times` the limit for a new base."""
        since = self._since(base)
        size, steps = sum(chunk.bytes for chunk in since), sum(chunk.stop - chunk.start for chunk in since)
        return size > times * SHARE * self._bytes or steps > times * REPLAYED
