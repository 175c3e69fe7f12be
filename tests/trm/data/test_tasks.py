"""Presets by name, and which puzzles a configuration reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relay.torch import files
from relay.torch.faults import DataError
from tests.facts import raising
from trm import presets, tasks
from trm.config import Data, TrainConfig
from trm.data import generate9, hub
from trm.data.dataset import Dataset
from trm.data.sudoku import read_csv, write_csv

GOOD = Path(__file__).parents[2] / "data" / "sudoku" / "good.csv"


def config(task: str = "sudoku", seed: int = 0, **data: object) -> TrainConfig:
    base = presets.preset(task)
    return TrainConfig(**{**base.plain(), "seed": seed, "data": {**base.data.model_dump(), **data}})


def puzzles(data: Dataset | None) -> list[tuple[int, ...]]:
    return [] if data is None else [tuple(row) for row in data.rows(0, data.size).inputs.tolist()]


def grids(data: Dataset | None) -> set[tuple[int, ...]]:
    return set() if data is None else {tuple(row) for row in data.rows(0, data.size).labels.tolist()}


@pytest.mark.parametrize("name", ["sudoku4", "sudoku4_att", "sudoku", "sudoku_att"])
def test_presets(name: str) -> None:
    chosen = presets.preset(name)
    assert chosen.task == name
    assert chosen.arch.mlp_t == (not name.endswith("_att"))
    assert chosen.ema
    targets = {"sudoku4": 800, "sudoku4_att": 1600}
    assert presets.target_steps(name) == targets.get(name, 50_000)


def test_published_settings() -> None:
    """Reference section 13."""
    mlp, att = presets.preset("sudoku"), presets.preset("sudoku_att")
    for chosen in (mlp, att):
        assert (chosen.lr, chosen.puzzle_emb_lr, chosen.lr_warmup_steps, chosen.batch_size) == (1e-4, 1e-4, 2000, 768)
        assert (chosen.weight_decay, chosen.puzzle_emb_weight_decay, chosen.ema_rate) == (1.0, 1.0, 0.999)
        arch = chosen.arch
        assert (arch.H_cycles, arch.L_cycles, arch.L_layers, arch.hidden_size, arch.prefix_len) == (3, 6, 2, 512, 16)
        assert chosen.data == Data(train="generated", test="generated", train_rows=1000, augment=True)
    assert mlp.arch.pos_encodings == "none" and att.arch.pos_encodings == "rope"
    assert presets.preset("sudoku4_att").arch.pos_encodings == "learned"


@pytest.mark.parametrize(
    ("wrong", "near"), [("soduku", "sudoku"), ("sudoku4-att", "sudoku4_att"), ("SUDOKU4", "sudoku4"), ("", "sudoku4")]
)
def test_unknown_task_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(presets.TaskError, match=f"task={near}" if wrong else near):
        presets.preset(wrong)


def test_sudoku4_splits_and_hashes() -> None:
    """Pinned: runs in progress name the training puzzles by this hash."""
    data = tasks.load_data(config("sudoku4"), Path("unused"))
    assert (data.train.size, data.test.size) == (20_000, 1000)
    assert data.valid is not None and data.valid.size == 500
    assert (data.train.vocab_size, data.train.seq_len) == (6, 16)
    assert not grids(data.train) & grids(data.test)
    assert not grids(data.train) & grids(data.valid)
    assert not grids(data.valid) & grids(data.test)
    assert data.train.augment is None and data.test is data.test
    assert data.train.content_hash[:16] == "1a6682a44855f708"
    assert data.test.content_hash[:16] == "04e8ec71ed3a28f5"
    other = tasks.load_data(config("sudoku4_att", seed=5), Path("unused"))
    assert other.train.content_hash == data.train.content_hash


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"augment": True}, "data.augment=false"),
        ({"train": "hub", "test": "hub"}, "task=sudoku"),
        ({"train": "mine.csv"}, "data.test"),
        ({"test": "mine.csv"}, "data.train"),
    ],
)
def test_sudoku4_refuses_data_that_would_leak(data: dict[str, object], message: str) -> None:
    with pytest.raises(presets.TaskError, match=message):
        tasks.load_data(config("sudoku4", **data), Path("unused"))


def test_own_files(tmp_path: Path) -> None:
    data = tasks.load_data(config(train=str(GOOD), test=str(GOOD), train_rows=9), tmp_path)
    assert (data.train.size, data.test.size, data.train.vocab_size) == (9, 12, 11)
    assert len(puzzles(data.valid)) == 3
    assert not set(puzzles(data.train)) & set(puzzles(data.valid))
    assert data.train.augment is not None and data.test.augment is None
    assert puzzles(data.test) == [tuple(row) for row in read_csv(GOOD)[0].tolist()]
    assert not list(tmp_path.iterdir())


def test_a_file_with_no_rows_to_spare_has_no_validation() -> None:
    data = tasks.load_data(config(train=str(GOOD), test=str(GOOD)), Path("unused"))
    assert data.valid is None
    assert puzzles(data.train) == puzzles(data.test), "the order of the file"


def test_rows_are_drawn_by_the_seed() -> None:
    def drawn(seed: int) -> list[tuple[int, ...]]:
        return puzzles(tasks.load_data(config(train=str(GOOD), test=str(GOOD), train_rows=6, seed=seed), Path()).train)

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(5)}) > 1


def test_a_bad_test_file_is_found_before_training(tmp_path: Path) -> None:
    with raising(DataError, tmp_path / "no.csv"):
        tasks.load_data(config(train=str(GOOD), test=str(tmp_path / "no.csv")), tmp_path)


@pytest.mark.slow
def test_generated_puzzles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "VALID_ROWS", 3)
    monkeypatch.setattr(tasks, "TEST_ROWS", 4)
    lines: list[str] = []
    data = tasks.load_data(config(train_rows=5), tmp_path, lines.append)
    assert len(lines) == 2, "the test puzzles wait until they are asked for"
    assert data.valid is not None
    assert [data.train.size, data.valid.size, data.test.size] == [5, 3, 4]
    assert len(grids(data.train) | grids(data.valid) | grids(data.test)) == 12
    monkeypatch.setattr(generate9, "generate", None)
    again = tasks.load_data(config(train_rows=5), tmp_path)
    assert again.train.content_hash == data.train.content_hash


def test_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The large training file is read once; then the split's own files serve."""

    def fetch(folder: Path, name: str, report: files.Report = files.silent, fetching: object = None) -> Path:
        report(name)
        return GOOD

    monkeypatch.setattr(hub, "sudoku_extreme", fetch)
    chosen = config(train="hub", test="hub", train_rows=10)
    lines: list[str] = []
    first = tasks.load_data(chosen, tmp_path, lines.append)
    second = tasks.load_data(chosen, tmp_path, lines.append)
    assert lines == ["train.csv", "test.csv", "test.csv"]
    assert (first.train.size, len(puzzles(first.valid)), first.test.size) == (10, 2, 12)
    own = tasks.load_data(config(train=str(GOOD), test=str(GOOD), train_rows=10), tmp_path)
    assert first.train.content_hash == second.train.content_hash == own.train.content_hash
    assert puzzles(first.valid) == puzzles(second.valid) == puzzles(own.valid)


def test_hub_without_rows_to_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "sudoku_extreme", lambda *_args: GOOD)
    assert tasks.load_data(config(train="hub", test="hub"), tmp_path).valid is None


def test_relative_and_home_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = read_csv(GOOD)
    write_csv(tmp_path / "mine.csv", "x", (inputs, labels))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("mine.csv", "~/mine.csv"):
        assert torch.equal(tasks.load_data(config(train=path, test=path), tmp_path).train.inputs, inputs)
