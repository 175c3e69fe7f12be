"""A checkpoint's weights and moments under other settings, with a fresh carry; needs no data.

A fork with another batch size, data set or recursion starts from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from relay.core.workload import Saved
from relay.torch.statefile import read_tensors
from trm.checkpoint import FILES, TABLE, Document, TrmSnapshot, load_document, read_table, table_file
from trm.config import TrainConfig
from trm.model import Sizes
from trm.train import TrainState

_KEPT = tuple(name for name in FILES if name != "carry.safetensors")
_EMBEDDING = "raw/inner.embed_tokens.embedding_weight"


def refit(checkpoint: Path, out: Path, config: TrainConfig, pinned: dict[str, Any]) -> Saved:
    """Write into the empty folder `out` the checkpoint's step, weights, averages and moments with all sequences halted.

    config: as `pinned`, validated. Averages that the checkpoint lacks start at its weights.
    Raises ValueError (one line) if the weights do not fit the network of `config`.
    """
    document = load_document(checkpoint)
    state = TrainState(config, _sizes(checkpoint, document))
    wanted = {name: value for name, value in state.tensors().items() if not name.startswith("carry/")}
    found = dict(_tensors(checkpoint, document, wanted))
    averaged = any(name.startswith("ema/") for name in found)
    lacking = [name for name in wanted if name not in found and (averaged or not name.startswith("ema/"))]
    if lacking:
        raise ValueError(f"the checkpoint has no {lacking[0]}, which this network needs")
    for name, value in found.items():
        wanted[name].copy_(value)
    if not averaged:
        state.reset_ema()
    state.step = document.step
    refitted = document.model_copy(update={"config": pinned, "seed": config.seed, "metrics": {}, "table": None})
    return TrmSnapshot(state, refitted, torch.zeros((), dtype=torch.float64)).save(out)


def _tensors(checkpoint: Path, document: Document, wanted: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors for the network of the new settings; averages that it does not keep are skipped."""
    for file in _KEPT:
        try:
            table = [(TABLE, read_table(checkpoint, document)[0])] if document.table and file == _KEPT[0] else []
            for name, value in (*table, *read_tensors(checkpoint / file)):
                if name in wanted:
                    _check_fits(name, value, wanted[name])
                    yield name, value
                elif not name.startswith("ema/"):
                    raise ValueError(f"the checkpoint holds {name:.200}, which this network lacks")
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is not a safetensors file: {error}") from error


def _check_fits(name: str, value: Tensor, right: Tensor) -> None:
    if (value.dtype, value.shape) != (right.dtype, right.shape):
        raise ValueError(f"{name} is {tuple(value.shape)} where {tuple(right.shape)} belongs")


def _sizes(checkpoint: Path, document: Document) -> Sizes:
    """The dimensions of the checkpoint's network, from the headers of its files."""
    holder = table_file(document.table.base) if document.table else "weights.safetensors"
    try:
        with safe_open(checkpoint / "weights.safetensors", "pt") as weights:
            vocab = weights.get_slice(_EMBEDDING).get_shape()[0]
        with safe_open(checkpoint / holder, "pt") as weights:
            rows = weights.get_slice(TABLE).get_shape()[0] if TABLE in weights.keys() else 1  # noqa: SIM118
        with safe_open(checkpoint / "carry.safetensors", "pt") as carry:
            return Sizes(carry.get_slice("carry/inputs").get_shape()[1], vocab, rows)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"the checkpoint's files are invalid: {error}") from error
