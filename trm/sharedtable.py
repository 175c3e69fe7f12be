"""Decides when a large puzzle table is written and when only what has changed since; the files of both. No relay here.

`table-N.safetensors` is the table at step N. `journal.safetensors` leads from it to the checkpoint's step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from relay.torch.digest import digest
from relay.torch.statefile import TABLE, StateDocument, check_tensors, load_tensors, plain_size, read_tensors
from trm.config import TrainConfig
from trm.journal import MOST_STEPS, Chunk, Journal, Record, joined, replays
from trm.schedule import lr_scale
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
JOURNAL = "journal.safetensors"
_PARTS = ("counts", "rates", "rows", "signs")
_TYPES = {"counts": "I32", "rates": "F64", "rows": "I32", "signs": "U8"}
_HEADER = 1 << 12


def sharing(size: int, device: torch.device, least: int | None = None) -> tuple[bool, tuple[str, ...]]:
    """Whether checkpoints share a table of `size` bytes, and what people should know: from `least` on, if somebody says
    so, else from SHARED_FROM unless TRM_SHARED_TABLE=0 declines; nowhere where a replay does not lead to the device's
    bits.
    """
    wanted = os.environ.get("TRM_SHARED_TABLE", "1") != "0"
    if not (size >= least if least is not None else wanted and size >= SHARED_FROM):
        return False, ()
    return (True, ()) if replays(device) else (False, (ROUNDS_OTHERWISE,))


def table_file(base: int) -> str:
    """Name of the file that holds the table of that step."""
    return f"table-{base}.safetensors"


@dataclass(frozen=True)
class Plan:
    """How a snapshot's table is saved."""

    base: int
    whole: bool
    """Whether the snapshot's own step is the base, so that the table itself is written."""
    chunks: tuple[Chunk, ...]
    """From the base to the snapshot."""
    width: int

    @property
    def lends(self) -> tuple[str, ...]:
        """Files that later checkpoints may borrow."""
        return (table_file(self.base),) if self.whole else ()

    @property
    def borrows(self) -> tuple[str, ...]:
        """Files of an earlier checkpoint."""
        return () if self.whole else (table_file(self.base),)

    def files(self, table: Tensor | None) -> dict[str, Mapping[str, Tensor]]:
        """What to write beside the rest. table: the snapshot's copy, if `whole`. May wait for the device."""
        if self.whole:
            assert table is not None, "a base holds the table"
            return {table_file(self.base): {TABLE: table}}
        return {JOURNAL: vars(joined([chunk.record for chunk in self.chunks], self.width))}


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


def load_state(folder: Path, document: StateDocument, state: TrainState) -> Record | None:
    """Copy what `Snapshot.save` wrote into a state; the journal, if the table came by one.

    A journal is believed only if it leads to the state that was saved: the digest says so (P9). Raises ValueError (one
    line).
    """
    live = state.tensors()
    if document.table is None:
        load_tensors(folder, live)
        state.step = document.step
        return None
    table = live.pop(TABLE, None)
    if table is None:
        raise ValueError("it holds a puzzle table, which this configuration has not")
    check_files(folder, document, table)
    load_tensors(folder, live)
    found, journal = read_table(folder, document)
    table.copy_(found)
    state.step = document.step
    if digest(state.canonical(), {"step": state.step, "seed": document.seed}) != document.table.state_hash:
        raise ValueError(f"{JOURNAL} does not lead from {table_file(_base(document))} to the state that was saved")
    return journal


def check_files(folder: Path, document: StateDocument, table: Tensor) -> None:
    """Raises ValueError (one line) unless table and journal fit `table` and the document, by headers and sizes."""
    base = _base(document)
    check_tensors(folder / table_file(base), {TABLE: table})
    _check_steps(folder, document, table)


def _check_steps(folder: Path, document: StateDocument, table: Tensor) -> None:
    base = _base(document)
    if base < document.step:
        _check_journal(folder / JOURNAL, document.step - base, table)


def read_journal(folder: Path, document: StateDocument, shape: tuple[int, int]) -> Record:
    """The steps from the base to the checkpoint, checked. Raises ValueError (one line)."""
    steps = document.step - _base(document)
    if steps == 0:
        return joined([], shape[1])
    try:
        found = Record(**dict(read_tensors(folder / JOURNAL)))
        found.check(shape)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{JOURNAL}: {error}") from error
    if found.steps != steps:
        raise ValueError(f"{JOURNAL} has {found.steps:,} steps where {steps:,} belong")
    return found


def read_table(folder: Path, document: StateDocument) -> tuple[Tensor, Record]:
    """The table at the checkpoint's step, on the CPU, and the journal that led to it.

    Raises ValueError (one line), OSError and SafetensorError.
    """
    name = table_file(_base(document))
    (table,) = (value for _, value in read_tensors(folder / name))
    if table.dtype != torch.float32 or table.dim() != 2:
        raise ValueError(f"{name} holds {table.dtype} of {table.dim()} dimensions where a float32 table belongs")
    _check_steps(folder, document, table)
    rows, width = table.shape
    journal = read_journal(folder, document, (rows, width))
    journal.replay(table)
    if not bool(table.isfinite().all()):
        raise ValueError(f"{name} and {JOURNAL} lead to a value that is not finite")
    return table, journal


def _base(document: StateDocument) -> int:
    if document.table is None or document.table.base > document.step:
        raise ValueError("state.json names no table before its own step")
    return document.table.base


def _check_journal(path: Path, steps: int, table: Tensor) -> None:
    """By the header alone: nothing is allocated for what is too large."""
    if steps > MOST_STEPS:
        raise ValueError(f"{path.name} would have {steps:,} steps, more than {MOST_STEPS:,}")
    size = plain_size(path)
    if size > 2 * table.numel() * table.element_size() + 20 * steps + _HEADER + (1 << 24):
        raise ValueError(f"{path.name} has {size} bytes, more than the table itself would take")
    try:
        with safe_open(path, "pt") as file:
            if sorted(file.keys()) != sorted(_PARTS):
                raise ValueError(f"{path.name} holds other tensors than {', '.join(_PARTS)}")
            for name in _PARTS:
                if (found := file.get_slice(name).get_dtype()) != _TYPES[name]:
                    raise ValueError(f"{path.name}: {name} is {found} where {_TYPES[name]} belongs")
    except SafetensorError as error:
        raise ValueError(f"{path.name} is not a safetensors file: {error}") from error
