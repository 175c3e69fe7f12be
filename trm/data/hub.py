"""Sudoku-Extreme, from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from relay.torch.files import Fetching, Report, download, permit, silent, unseen

SUDOKU_EXTREME = "sapientinc/sudoku-extreme"
"""A dataset on the Hugging Face hub."""
INSTEAD = "set data.train and data.test to CSV files or to 'generated'"


def sudoku_extreme(folder: Path, name: str, report: Report = silent, fetching: Fetching | None = unseen) -> Path:
    """The path of Sudoku-Extreme's `name` (train.csv or test.csv) in the folder, downloaded the first time.

    Raises NotHere if `fetching` is None.
    """
    path = folder / "sudoku-extreme" / name
    if not path.exists():
        shown = permit(fetching, f"Sudoku-Extreme (data.{path.stem}=hub, {name})", path.parent)
        report(f"Downloading Sudoku-Extreme's {name} to {path} …")
        download(SUDOKU_EXTREME, path, shown, INSTEAD)
    return path
