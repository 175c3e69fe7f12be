"""Decides when a large puzzle table is written and when only what has changed since. Knows no files and no relay."""

from __future__ import annotations

import os

import torch

from trm.checkpoint import Plan, table_file
from trm.config import TrainConfig
from trm.journal import Chunk, Journal, Record, replays
from trm.optim import lr_scale
from trm.train import TrainState

SHARED_FROM = 1 << 27
"""Bytes of a table from which on checkpoints share it: below, it is sent with each."""
SHARE = 0.1
"""Of the table's bytes: a longer journal makes a new base."""
REPLAYED = 20_000
"""Steps: some ten seconds of a restore; a longer journal makes a new base."""
KEPT = 5
"""Times as long as either: from then on a base that nobody could borrow from is given up, for its journal is memory."""
ROUNDS_OTHERWISE = (
    "WHOLE TABLE: this device does not round as a CPU does, so that no journal of changes would lead to its bits. "
    "Each checkpoint is sent with its whole puzzle table."
)
"""Told before training."""


def sharing(size: int, device: torch.device, least: int | None = None) -> tuple[bool, tuple[str, ...]]:
    """Whether checkpoints share a table of `size` bytes, and what people should know: from `least` on, if somebody says
    so, else from SHARED_FROM unless TRM_SHARED_TABLE=0 declines; nowhere where a replay does not lead to the device's
    bits.
    """
    wanted = os.environ.get("TRM_SHARED_TABLE", "1") != "0"
    if not (size >= least if least is not None else wanted and size >= SHARED_FROM):
        return False, ()
    return (True, ()) if replays(device) else (False, (ROUNDS_OTHERWISE,))


class SharedTable:
    """The bases that are known and the steps since, of one state from its start or load on."""

    def __init__(self, state: TrainState, base: int | None = None, journal: Record | None = None) -> None:
        """base, journal: what the state was loaded from, if its table came from such files."""
        table = state.model.inner.puzzle_emb.weights
        self._bytes, self._width = table.numel() * table.element_size(), table.shape[1]
        self._config: TrainConfig = state.config
        self._journal = state.journal = Journal(state.config.batch_size, self._width, state.device, state.step)
        self._bases = [] if base is None else [base]
        self._chunks = [] if base is None or journal is None else [Chunk(base, journal)]
        self._offered, self._last = frozenset[str](), False

    def lend(self, names: frozenset[str], last: bool) -> None:
        """Before a snapshot: files of earlier checkpoints that are there. last: it had better be small."""
        self._offered, self._last = names, last

    def before_step(self, step: int) -> None:
        """The step that ends at `step` is about to be computed."""
        if self._journal.full:
            self._take()
            self._forget()
            for chunk in self._chunks[:-1]:
                _ = chunk.record  # no more than two on the device
        lr = self._config.puzzle_emb_lr * lr_scale(self._config, step)
        self._journal.open(lr, self._config.puzzle_emb_weight_decay)

    def plan(self, step: int) -> Plan:
        """For the snapshot at `step`, which is now."""
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
        """Bases whose journal is far too long, and the steps that lead from none that is left."""
        self._bases = [base for base in self._bases if not self._longer(base, KEPT)]
        self._chunks = self._since(min(self._bases)) if self._bases else []

    def _since(self, base: int) -> list[Chunk]:
        return [chunk for chunk in self._chunks if chunk.start >= base]

    def _too_long(self) -> bool:
        """Since the newest base, which may still be on its way: a second one would not come sooner."""
        return self._longer(max(self._bases))

    def _longer(self, base: int, times: int = 1) -> bool:
        """Whether the journal since then is longer than so many times what makes a new base."""
        since = self._since(base)
        size, steps = sum(chunk.bytes for chunk in since), sum(chunk.stop - chunk.start for chunk in since)
        return size > times * SHARE * self._bytes or steps > times * REPLAYED
