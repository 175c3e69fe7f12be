"""Data named by what is no file: refused unopened, since a pipe without a writer is waited for without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relay.torch.faults import DataError
from tests.facts import raising
from trm.data import maze, sudoku


@pytest.mark.timeout(10)
@pytest.mark.parametrize("read_csv", [sudoku.read_csv, maze.read_csv])
def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path, read_csv: object) -> None:
    os.mkfifo(tmp_path / "train.csv")
    for path in (tmp_path / "train.csv", Path("/dev/zero")):
        with raising(DataError, path):
            read_csv(path)  # type: ignore[operator]
