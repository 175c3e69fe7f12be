"""The puzzles a training run reads, by task; knows no relay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from relay.torch import rng
from relay.torch.rng import Stream
from trm.config import TrainConfig
from trm.data import files, generate_maze, sudoku4
from trm.data.dataset import Dataset
from trm.data.files import Tell
from trm.data.folders import Part, Puzzles, is_folder, write_part
from trm.data.games import MAZE, Game, sudoku_game
from trm.data.sudoku import read_csv, write_csv
from trm.measures import SPLITS
from trm.model import Sizes
from trm.presets import BOX, TaskError, preset

Tokens = tuple[Tensor, Tensor]
"""(inputs, labels), uint8 (N, cells)."""
Variants = Tokens | Puzzles
"""Perhaps with groups of variants."""

GENERATED, HUB = "generated", "hub"
VALID_ROWS, TEST_ROWS = 500, 1000
_TRAIN_SEED, _VALID_SEED, _TEST_SEED = 1, 2, 3
"""Generated 9x9 puzzles and mazes are the same for every run, so that runs compare; 4x4 puzzles are those of seed 0."""


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

    def split(self, name: str) -> Dataset | None:
        """Puzzles of one of `measures.SPLITS`; None if there are none."""
        return self.valid if name == SPLITS.choosing else self.test


def load_data(config: TrainConfig, root: Path, progress: Tell | None = None) -> Datasets:
    """The puzzles the configuration names; what is downloaded or generated is kept below `root`.

    A test file that was named is read at once, so that its faults show before training. Raises TaskError for a
    combination that cannot be, DataError for data that cannot be had or used.
    """
    preset(config.task)
    _check_sources(config)
    tell = progress or files.silent
    train, valid = _train_and_valid(config, root, tell)
    datasets = Datasets(
        train=_dataset(config, train, config.data.augment),
        valid=None if valid is None else _dataset(config, valid),
        load_test=lambda: _dataset(config, _test(config, root, tell)),
    )
    if config.data.test != GENERATED:
        _ = datasets.test
    return datasets


def described(task: str, data: Dataset) -> str:
    """What was read or made and found sound, for people."""
    groups = "" if data.groups is None else f" in {data.visits:,} groups"
    return f"{data.size:,} puzzles{groups}{game(task).about(data.inputs, data.labels)}"


def write_folder(task: str, datasets: Datasets, folder: Path) -> list[str]:
    """Training and test puzzles as a folder in the reference's layout, read back and compared; lines for people.

    Each puzzle is a group of its own, without stored variants. Raises DataError.
    """
    if datasets.train.groups is not None:
        raise TaskError("data.train holds groups of variants: it is such a folder already. Copy it as it is.")
    lines = []
    parts: tuple[tuple[Part, Dataset], ...] = (("train", datasets.train), ("test", datasets.test))
    for part, data in parts:
        write_part(folder, part, data.inputs, data.labels, data.vocab_size)
        lines.append(f"{folder / part}: {described(task, data)}, sha256 {data.content_hash[:16]}…")
    return lines


def game(task: str) -> Game:
    """What the task's puzzles are."""
    return sudoku_game(BOX[task]) if task in BOX else MAZE


def sizes_of(task: str) -> Sizes:
    """What the task's generated puzzles, and those of its published data, decide about the network."""
    kind = game(task)
    return Sizes(kind.cells or generate_maze.SIDE**2, kind.vocab_size, Dataset.num_identifiers)


def _dataset(config: TrainConfig, tokens: Variants, augmented: bool = False) -> Dataset:
    kind, groups = game(config.task), tokens.groups if isinstance(tokens, Puzzles) else None
    made = Dataset(*tokens[:2], kind.vocab_size, kind.symmetries if augmented else None, groups)
    made.judge = kind.judge
    return made


def _check_sources(config: TrainConfig) -> None:
    """4x4 grids are so few that carelessly chosen data trains on the test's solutions."""
    data, box = config.data, BOX.get(config.task)
    if box is None and HUB in (data.train, data.test):
        raise TaskError(
            f"The hub's puzzles are Sudokus and {config.task} is none. Set data.train and data.test to CSV files, to "
            f"a folder, or to 'generated'."
        )
    if box != 2:
        return
    if HUB in (data.train, data.test):
        raise TaskError(f"The hub's puzzles are 9x9 and {config.task} is 4x4. Set task=sudoku.")
    if (data.train == GENERATED) != (data.test == GENERATED):
        raise TaskError(
            "With 4x4 Sudoku, generated and own puzzles share solutions. Set both data.train and data.test."
        )
    if data.train == GENERATED and data.augment:
        raise TaskError("Augmentation turns 4x4 training grids into test grids. Set data.augment=false.")


def _train_and_valid(config: TrainConfig, root: Path, tell: Tell) -> tuple[Variants, Tokens | None]:
    source, rows, kind = config.data.train, config.data.train_rows, game(config.task)
    if source == HUB:
        return _hub_split(config, root, tell)
    if is_folder(source):
        return split_groups(kind.read_folder(source, "train"), rows, config.seed)
    if source != GENERATED:
        return split(kind.read(Path(source).expanduser()), rows, config.seed)
    if BOX.get(config.task) == 2:
        return sudoku4.build(rows)[:2]
    return kind.made(root, _TRAIN_SEED, rows, tell), kind.made(root, _VALID_SEED, VALID_ROWS, tell)


def _test(config: TrainConfig, root: Path, tell: Tell) -> Tokens:
    source, kind = config.data.test, game(config.task)
    if source == HUB:
        return read_csv(files.sudoku_extreme(root, "test.csv", tell))
    if is_folder(source):
        return kind.read_folder(source, "test")[:2]
    if source != GENERATED:
        return kind.read(Path(source).expanduser())
    if BOX.get(config.task) == 2:
        return sudoku4.build(config.data.train_rows)[2]
    return kind.made(root, _TEST_SEED, TEST_ROWS, tell)


def split_groups(puzzles: Puzzles, rows: int, seed: int) -> tuple[Puzzles, Tokens | None]:
    """`split` by groups: `rows` groups to train on, and the first puzzle of up to 500 others, which is the original."""
    count = len(puzzles.groups) - 1
    order = rng.permutations(seed, 0, Stream.BUILD, 1, count)[0]
    train, valid = order[:rows].sort().values, order[rows : rows + VALID_ROWS].sort().values
    firsts = puzzles.groups[valid]
    spare = (puzzles.inputs[firsts], puzzles.labels[firsts]) if len(valid) else None
    return (_chosen(puzzles, train) if len(train) < count else puzzles), spare


def _chosen(puzzles: Puzzles, groups: Tensor) -> Puzzles:
    """Some of the groups, renumbered."""
    starts, sizes = puzzles.groups[groups], puzzles.groups.diff()[groups]
    ends = sizes.cumsum(0)
    rows = torch.arange(int(ends[-1])) + torch.repeat_interleave(starts - (ends - sizes), sizes)
    return Puzzles(puzzles.inputs[rows], puzzles.labels[rows], torch.cat((torch.zeros(1, dtype=torch.int64), ends)))


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
