"""Weights and tokenizer as files for other programs: model.safetensors, config.json, tokenizer.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from lm.config import TOKENIZER_FILE
from relay.torch.statefile import check_tensors, read_tensors

WEIGHTS = "model.safetensors"


def export(checkpoint: Path, out: Path, config: Mapping[str, Any]) -> list[Path]:
    """Write a checkpoint's weights under the names of `lm.model.shapes`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name.removeprefix("raw/"): value for name, value in read_tensors(checkpoint / "weights.safetensors")}
    (out / WEIGHTS).write_bytes(save(tensors))  # save_file: mode 0600
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    files = [out / WEIGHTS, out / "config.json"]
    if (checkpoint / TOKENIZER_FILE).is_file():
        files.append(Path(shutil.copy(checkpoint / TOKENIZER_FILE, out / TOKENIZER_FILE)))
    return files


def weights_of(path: Path, wanted: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """(name with `raw/`, tensor) of exported weights, checked before the first is read. Raises ValueError."""
    check_tensors(path, {name.removeprefix("raw/"): value for name, value in wanted.items()}, typed=True)
    for name, value in read_tensors(path):
        if not bool(value.isfinite().all()):
            raise ValueError(f"{path.name}: {name} holds a value that is not finite")
        yield f"raw/{name}", value
