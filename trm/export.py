"""Weights of a checkpoint folder under the reference's names, for use elsewhere; needs no data and no model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save

from trm.statefile import load_document, read_tensors

WEIGHTS = "weights.safetensors"
_NAME = re.compile(r"(raw|ema)/(inner\.[A-Za-z0-9_.]{1,200})")


def export_folder(checkpoint: Path, out: Path, config: dict[str, Any], ema: bool = True) -> list[Path]:
    """Write `out/model.safetensors` (model.inner.*) and `out/config.json`; returns both.

    With `ema` the parameters are the averaged ones where the checkpoint has them; the puzzle table and the initial
    states are raw in any case. Optimizer and carry are left out, so training cannot go on exactly from the result.
    Raises ValueError (one line) if the folder does not hold a checkpoint.
    """
    document = load_document(checkpoint)
    weights: dict[str, dict[str, Any]] = {"raw": {}, "ema": {}}
    try:
        for name, value in read_tensors(checkpoint / WEIGHTS):
            found = _NAME.fullmatch(name)
            if found is None:
                raise ValueError(f"{WEIGHTS} holds an unknown tensor {name!r:.200}")
            weights[found[1]][f"model.{found[2]}"] = value
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{WEIGHTS} is not a safetensors file: {error}") from error
    kind = "ema" if ema and weights["ema"] else "raw"
    out.mkdir(parents=True, exist_ok=True)
    tensors, description = out / "model.safetensors", out / "config.json"
    about = {"step": str(document.step), "weights": kind, "exact": "no: weights only"}
    tensors.write_bytes(save(weights["raw"] | (weights["ema"] if ema else {}), metadata=about))  # save_file: mode 0600
    description.write_text(json.dumps({"config": config, **about}, indent=1) + "\n")
    return [tensors, description]
