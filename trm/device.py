"""Chooses the device to train on; knows no model."""

from __future__ import annotations

import torch

from trm.presets import TaskError


def choose(wanted: str) -> str:
    """'auto' becomes 'cuda' where there is a GPU, else 'cpu'. Raises TaskError if the wanted device is not here."""
    present = torch.cuda.is_available()
    if wanted.startswith("cuda") and not present:
        raise TaskError(f"device={wanted}, but torch {torch.__version__} sees no GPU here. Use device=auto or cpu.")
    return ("cuda" if present else "cpu") if wanted == "auto" else wanted
