"""Weights of a checkpoint folder under the reference's names, for use elsewhere; needs no data and no model.

As safetensors, which nobody has to trust, or as a `step_N` that the reference itself loads.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from relay.torch.statefile import read_tensors
from trm.checkpoint import TABLE, load_document, read_table
from trm.interop_step import write_step

WEIGHTS = "weights.safetensors"
_NAME = re.compile(r"(raw|ema)/(inner\.[A-Za-z0-9_.]{1,200})")


def export_folder(checkpoint: Path, out: Path, config: dict[str, Any], ema: bool = True) -> list[Path]:
    """Write `out/model.safetensors` (model.inner.*) and `out/config.json`; returns both.

    With `ema` the parameters are the averaged ones where the checkpoint has them; the puzzle table and the initial
    states are raw in any case. Optimizer and carry are left out, so training cannot go on exactly from the result.
    Raises ValueError (one line) if the folder does not hold a checkpoint.
    """
    weights, about = _weights(checkpoint, ema)
    out.mkdir(parents=True, exist_ok=True)
    tensors, description = out / "model.safetensors", out / "config.json"
    tensors.write_bytes(save(weights, metadata=about))  # save_file: mode 0600
    description.write_text(json.dumps({"config": config, **about}, indent=1) + "\n")
    return [tensors, description]


def export_step(
    checkpoint: Path, out: Path, config: dict[str, Any], ema: bool = True, compiled: bool = True
) -> list[Path]:
    """Write the file `out` (…/step_N) as the reference saves it, and `out`.json; returns both. Else as `export_folder`.

    compiled: under the names of a compiled model, which the reference's own loader expects by default.
    """
    weights, about = _weights(checkpoint, ema)
    if out.is_dir():
        raise ValueError(f"{out} is a folder, so no file can be written there; choose another place with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_step(out, weights, compiled)
    description = out.with_name(f"{out.name}.json")
    description.write_text(json.dumps({"config": config, **about}, indent=1) + "\n")
    return [out, description]


def _weights(checkpoint: Path, ema: bool) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The checkpoint's weights by the reference's name, and what they are. Raises ValueError (one line)."""
    document = load_document(checkpoint)
    weights: dict[str, dict[str, Tensor]] = {"raw": {}, "ema": {}}
    try:
        for name, value in read_tensors(checkpoint / WEIGHTS):
            found = _NAME.fullmatch(name)
            if found is None:
                raise ValueError(f"{WEIGHTS} holds an unknown tensor {name!r:.200}")
            weights[found[1]][f"model.{found[2]}"] = value
        if document.table is not None:
            weights["raw"][f"model.{TABLE.removeprefix('raw/')}"] = read_table(checkpoint, document)[0]
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{WEIGHTS} is not a safetensors file: {error}") from error
    kind = "ema" if ema and weights["ema"] else "raw"
    about = {"step": str(document.step), "weights": kind, "exact": "no: weights only"}
    return weights["raw"] | (weights["ema"] if ema else {}), about
