"""The puzzles a training run reads, by task; knows no model and no relay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from trm import rng
from trm.config import TrainConfig
from trm.data import augment, files, generate9, sudoku4
from trm.data.dataset import Dataset
from trm.data.files import Tell
from trm.data.sudoku import read_csv, write_csv
from trm.presets import BOX, PRESETS, TaskError, preset, target_steps
from trm.rng import Stream

Tokens = tuple[Tensor, Tensor]
"""(inputs, labels), uint8 (N, cells)."""

__all__ = ["PRESETS", "Datasets", "TaskError", "load_data", "preset", "split", "target_steps"]

GENERATED, HUB = "generated", "hub"
VALID_ROWS, TEST_ROWS = 500, 1000
_TRAIN_SEED, _VALID_SEED, _TEST_SEED = 1, 2, 3
"""Generated 9x9 puzzles are the same for every run, so that runs compare; 4x4 puzzles are those of seed 0."""


@dataclass(frozen=True)
class Datasets:
    """What a run trains on, what chooses the best checkpoint, and what is reported."""

    train: Dataset
    valid: Dataset | None
    """Puzzles that are neither trained on nor reported; None if the training file has no rows to spare."""
    load_test: Callable[[], Dataset]

    @cached_property
    def test(self) -> Dataset:
        """Loaded when first asked for: training with a file of one's own never waits for generated test puzzles."""
        return self.load_test()


def load_data(config: TrainConfig, root: Path, progress: Tell | None = None) -> Datasets:
    """The puzzles the configuration names; what is downloaded or generated is kept below `root`.

    A test file that was named is read at once, so that its faults show before training. Raises TaskError for a
    combination that cannot be, DataError for data that cannot be had or used.
    """
    preset(config.task)
    _check_sources(config)
    tell = progress or files.silent
    train, valid = _train_and_valid(config, root, tell)
    transform = augment.sudoku if config.data.augment else None
    datasets = Datasets(
        train=_dataset(config, train, transform),
        valid=None if valid is None else _dataset(config, valid),
        load_test=lambda: _dataset(config, _test(config, root, tell)),
    )
    if config.data.test != GENERATED:
        _ = datasets.test
    return datasets


def _dataset(config: TrainConfig, tokens: Tokens, transform: Callable[..., Tokens] | None = None) -> Dataset:
    return Dataset(*tokens, vocab_size=BOX[config.task] ** 2 + 2, augment=transform)


def _check_sources(config: TrainConfig) -> None:
    """4x4 grids are so few that carelessly chosen data trains on the test's solutions."""
    data = config.data
    if BOX[config.task] != 2:
        return
    if HUB in (data.train, data.test):
        raise TaskError(f"The hub's puzzles are 9x9 and {config.task} is 4x4. Set task=sudoku.")
    if (data.train == GENERATED) != (data.test == GENERATED):
        raise TaskError(
            "With 4x4 Sudoku, generated and own puzzles share solutions. Set both data.train and data.test."
        )
    if data.train == GENERATED and data.augment:
        raise TaskError("Augmentation turns 4x4 training grids into test grids. Set data.augment=false.")


def _train_and_valid(config: TrainConfig, root: Path, tell: Tell) -> tuple[Tokens, Tokens | None]:
    source, rows = config.data.train, config.data.train_rows
    if source == HUB:
        return _hub_split(config, root, tell)
    if source != GENERATED:
        return split(read_csv(Path(source).expanduser(), BOX[config.task]), rows, config.seed)
    if BOX[config.task] == 2:
        return sudoku4.build(rows)[:2]
    train = generate9.load(root, _TRAIN_SEED, rows, tell)
    return train, generate9.load(root, _VALID_SEED, VALID_ROWS, tell)


def _test(config: TrainConfig, root: Path, tell: Tell) -> Tokens:
    source = config.data.test
    if source == HUB:
        return read_csv(files.sudoku_extreme(root, "test.csv", tell))
    if source != GENERATED:
        return read_csv(Path(source).expanduser(), BOX[config.task])
    if BOX[config.task] == 2:
        return sudoku4.build(config.data.train_rows)[2]
    return generate9.load(root, _TEST_SEED, TEST_ROWS, tell)


def split(tokens: Tokens, rows: int, seed: int) -> tuple[Tokens, Tokens | None]:
    """(train, valid): `rows` rows drawn by the seed, and up to 500 of those outside them; valid is None without any.

    Both keep the order of the file.
    """
    order = rng.permutations(seed, 0, Stream.BUILD, 1, len(tokens[0]))[0]
    train, valid = order[:rows].sort().values, order[rows : rows + VALID_ROWS].sort().values
    inputs, labels = tokens
    return (inputs[train], labels[train]), (inputs[valid], labels[valid]) if len(valid) else None


def _hub_split(config: TrainConfig, root: Path, tell: Tell) -> tuple[Tokens, Tokens | None]:
    """The split of Sudoku-Extreme's training file, kept in small files: reading all of it takes a minute."""
    name = f"seed{config.seed}-{config.data.train_rows}.csv"
    train, valid = (root / "sudoku-extreme" / f"{part}-{name}" for part in ("train", "valid"))
    if not train.exists():
        every = read_csv(files.sudoku_extreme(root, "train.csv", tell))
        kept, spare = split(every, config.data.train_rows, config.seed)
        if spare is not None:
            write_csv(valid, "sudoku-extreme", spare)
        write_csv(train, "sudoku-extreme", kept)
    return read_csv(train), read_csv(valid) if valid.exists() else None
