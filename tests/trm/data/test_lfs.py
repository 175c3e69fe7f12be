"""A Git LFS pointer in place of weights or data is called one, in every place where a person names a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relay.torch.faults import DataError
from tests.facts import raising
from trm.data import folders
from trm.data.lfs import refuse_pointer
from trm.data.sudoku import read_csv
from trm.interop import begin_from

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"


@pytest.mark.parametrize("name", ["w.safetensors", "step_100", "model.pt"])
def test_as_weights(make, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(POINTER)
    with raising(DataError, path, "git lfs pull"):
        begin_from(make(0), path)


def test_as_a_table(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(POINTER)
    with raising(DataError, path, "git lfs pull"):
        read_csv(path)


@pytest.mark.parametrize("name", ["dataset.json", "all__inputs.npy", "all__puzzle_indices.npy"])
def test_as_a_part_of_a_folder(tmp_path: Path, name: str) -> None:
    tokens = torch.ones(2, 16, dtype=torch.uint8)
    folders.write_part(tmp_path, "train", tokens, tokens, 6)
    path = tmp_path / "train" / name
    assert path.exists()
    path.write_text(POINTER)
    with raising(DataError, path, "git lfs pull"):
        folders.read_folder(tmp_path, "train")


def test_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("", "version 1", POINTER + "x" * 2000):
        path.write_text(text)
        refuse_pointer(path)
    refuse_pointer(tmp_path / "absent")
