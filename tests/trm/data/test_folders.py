"""Folders in the reference's layout: what is written reads back, what does not fit is named, variants are drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relay.torch.faults import DataError
from tests.facts import raising
from trm import presets, tasks
from trm.config import Data, TrainConfig
from trm.data.augment import sudoku as symmetry
from trm.data.dataset import Dataset
from trm.data.folders import read_folder, write_part
from trm.data.sudoku import read_csv

GOOD = Path(__file__).parents[2] / "data" / "sudoku" / "good.csv"


def config(source: Path | str, **data: Any) -> TrainConfig:
    base = presets.preset("sudoku")
    return base.model_copy(
        update={"data": Data(**{"train": str(source), "test": str(source), "augment": False} | data)}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inputs, labels = read_csv(GOOD)
    for part, rows in (("train", slice(0, 8)), ("test", slice(8, 12))):
        write_part(tmp_path / "set", part, inputs[rows], labels[rows], vocab_size=11)
    return tmp_path / "set"


def with_variants(folder: Path, each: int) -> None:
    """As the reference's builder stores Sudoku: int64, each puzzle followed by augmented copies of it."""
    inputs, labels = read_csv(GOOD)
    pairs = [(inputs[:8], labels[:8]), *(symmetry(inputs[:8], labels[:8], 0, k) for k in range(each - 1))]
    for name, place in (("inputs", 0), ("labels", 1)):
        stacked = torch.stack([pair[place] for pair in pairs], dim=1).flatten(0, 1)
        np.save(folder / "train" / f"all__{name}.npy", stacked.numpy().astype(np.int64))
    np.save(folder / "train" / "all__puzzle_identifiers.npy", np.zeros(8 * each, np.int32))
    np.save(folder / "train" / "all__puzzle_indices.npy", np.arange(8 * each + 1, dtype=np.int32))
    np.save(folder / "train" / "all__group_indices.npy", np.arange(0, 8 * each + 1, each, dtype=np.int32))


def test_the_layout_is_the_documented_one(folder: Path) -> None:
    """reference/trm.md 9."""
    fields = ("inputs", "labels", "puzzle_identifiers", "puzzle_indices", "group_indices")
    for part, count in (("train", 8), ("test", 4)):
        names = {path.name for path in (folder / part).iterdir()}
        assert names == {"dataset.json", *(f"all__{field}.npy" for field in fields)}
        shapes = {f: np.load(folder / part / f"all__{f}.npy", allow_pickle=False) for f in fields}
        assert [(shapes[f].shape, str(shapes[f].dtype)) for f in fields] == [
            ((count, 81), "uint8"),
            ((count, 81), "uint8"),
            ((count,), "int32"),
            ((count + 1,), "int32"),
            ((count + 1,), "int32"),
        ]
        assert json.loads((folder / part / "dataset.json").read_text()) == {
            "pad_id": 0,
            "ignore_label_id": 0,
            "blank_identifier_id": 0,
            "vocab_size": 11,
            "seq_len": 81,
            "num_puzzle_identifiers": 1,
            "total_groups": count,
            "mean_puzzle_examples": 1.0,
            "total_puzzles": count,
            "sets": ["all"],
        }
    assert json.loads((folder / "identifiers.json").read_text()) == ["<blank>"]


def test_a_folder_trains_as_the_file_it_was_made_of(folder: Path, tmp_path: Path) -> None:
    """The same content hash, so the same run: a folder and a CSV of the same puzzles are one data set."""
    whole, labels = read_csv(GOOD)
    from_folder = tasks.load_data(config(folder), tmp_path)
    assert from_folder.train.content_hash == Dataset(whole[:8], labels[:8], 11).content_hash
    assert from_folder.test.content_hash == Dataset(whole[8:], labels[8:], 11).content_hash
    assert from_folder.valid is None and from_folder.train.visits == 8
    split = tasks.load_data(config(folder, train_rows=5), tmp_path)
    assert (split.train.size, split.valid.size if split.valid else 0) == (5, 3)


def test_an_epoch_visits_each_group_once_and_all_variants_come(folder: Path, tmp_path: Path) -> None:
    with_variants(folder, 4)
    data = tasks.load_data(config(folder), tmp_path).train
    assert (data.size, data.visits) == (32, 8)
    row_of = {tuple(row): index for index, row in enumerate(data.inputs.tolist())}
    assert len(row_of) == 32
    seen = [row_of[tuple(row)] for step in range(60) for row in data.batch_at(7, step, 8).inputs.tolist()]
    for epoch in range(60):
        assert sorted(row // 4 for row in seen[8 * epoch : 8 * epoch + 8]) == list(range(8))
    assert set(seen) == set(range(32))
    shares = torch.bincount(torch.tensor(seen) % 4) / len(seen)
    assert bool((shares - 0.25).abs().max() < 0.07), shares


def test_a_batch_of_variants_depends_on_its_step_alone(folder: Path, tmp_path: Path) -> None:
    with_variants(folder, 4)
    one, other = (tasks.load_data(config(folder), tmp_path).train for _ in range(2))
    for step in (9, 2, 9):
        assert torch.equal(one.batch_at(1, step, 6).inputs, other.batch_at(1, step, 6).inputs)
        assert torch.equal(one.batch_at(1, step, 6).labels, other.batch_at(1, step, 6).labels)
    assert one.content_hash != Dataset(one.inputs, one.labels, 11).content_hash, "the groups are part of the data"


def test_some_groups_keep_all_their_variants(folder: Path, tmp_path: Path) -> None:
    with_variants(folder, 4)
    whole = tasks.load_data(config(folder), tmp_path).train
    some = tasks.load_data(config(folder, train_rows=3), tmp_path)
    assert (some.train.size, some.train.visits) == (12, 3)
    originals = {tuple(row) for row in whole.inputs[::4].tolist()}
    assert some.valid is not None and {tuple(row) for row in some.valid.inputs.tolist()} <= originals
    rows = {tuple(row): index // 4 for index, row in enumerate(whole.inputs.tolist())}
    groups = [rows[tuple(row)] for row in some.train.inputs.tolist()]
    assert groups == sorted(groups) and len(set(groups)) == 3 and all(groups.count(g) == 4 for g in groups)


Harm = Callable[[Path], None]


def array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Harm:
    def harm(folder: Path) -> None:
        path = folder / "train" / f"all__{name}.npy"
        np.save(path, change(np.load(path, allow_pickle=False)))

    return harm


def about(**changes: Any) -> Harm:
    def harm(folder: Path) -> None:
        path = folder / "train" / "dataset.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return harm


def poked(value: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda a: np.where(np.arange(a.size).reshape(a.shape) == 5, value, a.astype(np.int64))


def pickled(folder: Path) -> None:
    np.save(folder / "train" / "all__inputs.npy", np.array([[object()]], dtype=object), allow_pickle=True)


def cut(folder: Path) -> None:
    path = folder / "train" / "all__inputs.npy"
    path.write_bytes(path.read_bytes()[:-50])


HARMS: dict[str, tuple[Harm, tuple[object, ...]]] = {
    "objects": (pickled, ("all__inputs.npy",)),
    "cut": (cut, ("all__inputs.npy",)),
    "floats": (array("labels", lambda a: a.astype(np.float32)), ("all__labels.npy", "float32")),
    "flat": (array("inputs", np.ravel), ("all__inputs.npy", 2)),
    "narrow": (array("inputs", lambda a: a[:, :80]), (81,)),
    "fewer": (array("inputs", lambda a: a[:-1]), (7,)),
    "more labels": (array("labels", lambda a: np.vstack([a, a[:1]])), (8, 9)),
    "large token": (array("inputs", poked(11)), (0, 10)),
    "negative token": (array("inputs", poked(-1)), (0, 10)),
    "wrong solution": (array("labels", poked(2)), ("row 0",)),
    "padding": (array("inputs", poked(0)), ("row 0",)),
    "identifiers": (array("puzzle_identifiers", lambda a: a + 1), ("ARC",)),
    "many identifiers": (about(num_puzzle_identifiers=3), ("ARC",)),
    "examples": (array("puzzle_indices", lambda a: a[[0, 2, 3, 4, 5, 6, 7, 8, 8]]), ()),
    "falling groups": (array("group_indices", lambda a: a[[0, 2, 1, 3, 4, 5, 6, 7, 8]]), ("group_indices",)),
    "group total": (about(total_groups=7), (7,)),
    "sets": (about(sets=["all", "more"]), ("set",)),
    "no vocabulary": (about(vocab_size=1000), ("vocab_size",)),
    "path as a set": (about(sets=["../x"]), ("sets",)),
    "other game": (about(vocab_size=12), (12,)),
    "no json": (lambda folder: (folder / "train" / "dataset.json").unlink(), ("dataset.json",)),
    "long json": (
        lambda folder: (folder / "train" / "dataset.json").write_text(" " * 70_000), ("dataset.json",)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("harm", "facts"), HARMS.values(), ids=HARMS.keys())
def test_what_does_not_fit_is_named(folder: Path, tmp_path: Path, harm: Harm, facts: tuple[object, ...]) -> None:
    harm(folder)
    with raising(DataError, folder, *facts):
        tasks.load_data(config(folder), tmp_path)


def test_writing_where_nothing_can_be_written(tmp_path: Path) -> None:
    inputs, labels = read_csv(GOOD)
    (tmp_path / "file").write_text("")
    with raising(DataError, tmp_path / "file"):
        write_part(tmp_path / "file", "train", inputs, labels, 11)


def test_datasets_are_written_verified_and_described(folder: Path, tmp_path: Path) -> None:
    data = tasks.load_data(config(GOOD, train_rows=9), tmp_path)
    lines = tasks.write_folder("sudoku", data, tmp_path / "made")
    assert [line.split(": ")[1].split(",")[0] for line in lines] == ["9 puzzles", "12 puzzles"]
    assert torch.equal(read_folder(tmp_path / "made", "train")[1].inputs, data.train.inputs)
    again = tasks.load_data(config(tmp_path / "made"), tmp_path)
    assert again.train.content_hash == data.train.content_hash
    with_variants(folder, 2)
    with raising(presets.TaskError, "data.train"):
        tasks.write_folder("sudoku", tasks.load_data(config(folder), tmp_path), tmp_path / "other")


def test_variants_are_stored_behind_their_puzzle(tmp_path: Path) -> None:
    """The reference's layout for augmented Sudoku: a group is the puzzle, then its variants; the test has none."""
    data = tasks.load_data(config(GOOD, train_rows=9), tmp_path)
    tasks.write_folder("sudoku", data, tmp_path / "made", variants=3, seed=5)
    about, train = read_folder(tmp_path / "made", "train")
    assert (about.total_groups, about.total_puzzles, about.mean_puzzle_examples, len(train.inputs)) == (9, 9, 1.0, 36)
    assert train.groups.tolist() == list(range(0, 37, 4))
    grouped = train.inputs.view(9, 4, 81)
    assert torch.equal(grouped[:, 0], data.train.inputs)
    assert all(len({row.numpy().tobytes() for row in group}) == 4 for group in grouped), "variants differ"
    assert len(read_folder(tmp_path / "made", "test")[1].inputs) == data.test.size
    again = tasks.load_data(config(tmp_path / "made"), tmp_path)  # checks that each is a puzzle with its solution
    assert (again.train.size, again.train.visits) == (36, 9)
    tasks.write_folder("sudoku", data, tmp_path / "same", variants=3, seed=5)
    assert torch.equal(read_folder(tmp_path / "same", "train")[1].inputs, train.inputs)
    tasks.write_folder("sudoku", data, tmp_path / "other", variants=3, seed=6)
    assert not torch.equal(read_folder(tmp_path / "other", "train")[1].inputs, train.inputs)


def test_a_tasks_variants_are_those_that_it_has(tmp_path: Path) -> None:
    grids = tasks.load_data(presets.preset("sudoku4"), tmp_path)
    with raising(presets.TaskError, "4x4"):
        tasks.write_folder("sudoku4", grids, tmp_path / "made", variants=3)
    assert not (tmp_path / "made").exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    for asked in (
        lambda: read_folder(tmp_path / "none", "train"),
        lambda: tasks.load_data(config(tmp_path / "none"), tmp_path),
    ):
        with pytest.raises(presets.NoFolder) as missing:
            asked()
        assert missing.value.folder == tmp_path / "none"
