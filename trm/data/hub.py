"""Sudoku-Extreme, from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from relay.torch.files import Fetching, Report, download, silent, unseen

SUDOKU_EXTREME = "sapientinc/sudoku-extreme"
"""A dataset on the Hugging Face hub."""
INSTEAD = "set data.train and data.test to CSV files or to 'generated'"


def sudoku_extreme(folder: Path, name: str, report: Report = silent, fetching: Fetching = unseen) -> Path:
    """The path of Sudoku-Extreme's `name` (train.csv or test.csv) in the folder, downloaded the first time."""
    path = folder / "sudoku-extreme" / name
    if not path.exists():
        report(f"Downloading Sudoku-Extreme's {name} to {path} …")
        download(SUDOKU_EXTREME, path, fetching, INSTEAD)
    return path
