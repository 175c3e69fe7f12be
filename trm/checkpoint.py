"""A checkpoint's files: freezes, writes and reads back a state.

weights.safetensors     raw/<name> (parameters, H_init, L_init, puzzle table) and ema/<name>, reference names
optimizer.safetensors   m/<name> and v/<name>; Adam's t is the step
carry.safetensors       carry/<field>, rows of halted slots zero
state.json              format, step, seed, configuration, code version, fingerprint, metrics

A large puzzle table has its own files, which checkpoints share (trm/sharedtable.py): `table-N.safetensors` is
the table at step N, `journal.safetensors` leads from it to the checkpoint's step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError, safe_open
from torch import Tensor

from relay.core.workload import Saved
from relay.torch import statefile
from relay.torch.digest import digest
from relay.torch.snapshot import DeviceSnapshot
from relay.torch.statefile import StateDocument, check_tensors, load_tensors, plain_size, read_tensors, save
from storage.wording import counted
from trm.journal import MOST_STEPS, Chunk, Record, joined
from trm.train import TrainState

FILES: statefile.Files = {
    "weights.safetensors": ("raw/", "ema/"),
    "optimizer.safetensors": ("m/", "v/"),
    "carry.safetensors": ("carry/",),
}
TABLE = "raw/inner.puzzle_emb.weights"
JOURNAL = "journal.safetensors"
_PARTS = ("counts", "rates", "rows", "signs")
_TYPES = {"counts": "I32", "rates": "F64", "rows": "I32", "signs": "U8"}
_HEADER = 1 << 12


class TableNote(BaseModel):
    """The puzzle table, if it is not among the weights."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    base: Annotated[int, Field(ge=0, lt=2**53)]
    """Step of the table that is kept; a journal leads from there."""
    state_hash: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """P9's digest of the complete state, with the table at the checkpoint's step."""


class Document(StateDocument):
    """state.json of a TRM."""

    table: TableNote | None = None

    def text(self) -> str:
        """Without a note if the table is among the weights, as in the first versions."""
        return self.model_dump_json(indent=1, exclude={"table"} if self.table is None else None)


def load_document(folder: Path) -> Document:
    """state.json, validated. Raises ValueError (one line)."""
    return statefile.load_document(folder, Document)


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
        """The files to write in addition. table: the snapshot's copy, if `whole`. May wait for the device."""
        if self.whole:
            assert table is not None, "a base holds the table"
            return {table_file(self.base): {TABLE: table}}
        return {JOURNAL: vars(joined([chunk.record for chunk in self.chunks], self.width))}


class TrmSnapshot(DeviceSnapshot):
    """A copy of a TRM's state. If only the journal of a shared puzzle table is saved, a GPU does not copy the table but
    checks and digests it at once. A CPU copies faster than it digests."""

    def __init__(self, state: TrainState, document: Document, loss: Tensor, plan: Plan | None = None) -> None:
        """loss: as `DeviceSnapshot`. plan: how a shared puzzle table is saved."""
        self._plan, self._about = plan, document
        at_once = plan is not None and not plan.whole and _queues(state.device)
        live = {TABLE: state.tensors()[TABLE]} if at_once else {}
        super().__init__(state.frozen(without=live), document, FILES, loss, live)

    def _save(self, folder: Path, tensors: Mapping[str, Tensor]) -> Saved:
        plan = self._plan
        if plan is None:
            return super()._save(folder, tensors)
        text = self._digest.text
        rest = {name: value for name, value in tensors.items() if name != TABLE}
        document = self._about.model_copy(update={"table": TableNote(base=plan.base, state_hash=text)})
        files = save(folder, FILES, rest, document, plan.files(tensors.get(TABLE)))
        return Saved(self.step, text, files, plan.lends, plan.borrows)


def _queues(device: torch.device) -> bool:
    """Whether the device queues work and does it in order, so that a digest need not be waited for."""
    return device.type != "cpu"


def load_state(folder: Path, document: Document, state: TrainState) -> Record | None:
    """Copy the files of `TrmSnapshot.save` into a state; returns the journal, if the table has one.

    A journal is accepted only if it leads to the saved state, by its digest (P9). Raises ValueError (one
    line).
    """
    live = state.tensors()
    if document.table is None:
        load_tensors(folder, FILES, live)
        state.step = document.step
        return None
    table = live.pop(TABLE, None)
    if table is None:
        raise ValueError("it holds a puzzle table, which this configuration lacks")
    check_files(folder, document, table)
    load_tensors(folder, FILES, live)
    found, journal = read_table(folder, document)
    table.copy_(found)
    state.step = document.step
    if digest(state.canonical(), {"step": state.step, "seed": document.seed}) != document.table.state_hash:
        raise ValueError(f"{JOURNAL} does not lead from {table_file(_base(document))} to the state that was saved")
    return journal


def check_files(folder: Path, document: Document, table: Tensor) -> None:
    """Raises ValueError (one line) unless table and journal fit `table` and the document, by headers and sizes."""
    base = _base(document)
    check_tensors(folder / table_file(base), {TABLE: table})
    _check_steps(folder, document, table)


def _check_steps(folder: Path, document: Document, table: Tensor) -> None:
    base = _base(document)
    if base < document.step:
        _check_journal(folder / JOURNAL, document.step - base, table)


def read_journal(folder: Path, document: Document, shape: tuple[int, int]) -> Record:
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
        raise ValueError(f"{JOURNAL} has {counted(found.steps, 'step')} where {steps:,} belong")
    return found


def read_table(folder: Path, document: Document) -> tuple[Tensor, Record]:
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


def _base(document: Document) -> int:
    if document.table is None or document.table.base > document.step:
        raise ValueError("state.json names no table before its own step")
    return document.table.base


def _check_journal(path: Path, steps: int, table: Tensor) -> None:
    """Reads only the header: nothing is allocated for a journal that is too large."""
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
