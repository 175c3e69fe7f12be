"""The puzzles of a training run, by task: read, made, checked, augmented, judged and split."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from relay.torch import files, rng
from relay.torch.faults import DataError, TaskError
from relay.torch.files import Fetching, Report
from relay.torch.rng import Stream
from storage.wording import counted
from trm.config import GENERATED, HUB, TrainConfig
from trm.data import augment, folders, generate9, hub, maze, sudoku, sudoku4
from trm.data.arc import source as arc
from trm.data.arc.source import ArcDatasets
from trm.data.arc.variants import VOCABULARY
from trm.data.augment import SYMMETRIES
from trm.data.dataset import Augment, Dataset, Judge
from trm.data.folders import About, Part, Puzzles, array_of, is_folder, read_about, write_part
from trm.model import Sizes
from trm.presets import ARC, BOX, SPLITS, NoFolder, preset

PARTS: tuple[Part, ...] = ("train", "test")
_CHECKED = 10_000
"""Grids in one pass."""


@dataclass(frozen=True)
class Game:
    """One kind of puzzle. Tokens are uint8 (N, cells)."""

    vocab_size: int
    characters: str
    """Characters of the tokens from 1 on, as in the files."""
    cells: int | None
    """None: any square."""
    read: Callable[[Path], tuple[Tensor, Tensor]]
    """Reads a CSV file; raises DataError."""
    made: Callable[[Path, int, int, Report], tuple[Tensor, Tensor]]
    """(folder, seed, count, report): generated, and kept in the folder."""
    sound: Callable[[Tensor, Tensor], Tensor]
    """bool (N,): inputs and labels are a puzzle and its solution."""
    symmetries: Augment
    judge: Judge | None = None
    about: Callable[[Tensor, Tensor], str] = lambda inputs, labels: ""
    """More facts about these puzzles to print, ', …' or empty."""

    def read_folder(self, source: str, which: Part) -> Puzzles:
        """A part of a folder in the reference's layout, its puzzles checked. Raises DataError."""
        folder = files.whole_path(source)
        about, puzzles = folders.read_folder(folder, which)
        if about.vocab_size != self.vocab_size or (self.cells or about.seq_len) != about.seq_len:
            raise DataError(
                f"{folder} holds rows of {counted(about.seq_len, 'cell')} and {counted(about.vocab_size, 'token')}; "
                f"this task needs {self.cells or 'any number of'} cells and {self.vocab_size} tokens. Set another "
                f"task or folder."
            )
        parts = [slice(at, at + _CHECKED) for at in range(0, len(puzzles.inputs), _CHECKED)]
        good = torch.cat([self.sound(puzzles.inputs[part], puzzles.labels[part]) for part in parts])
        if not bool(good.all()):
            row = int(good.to(torch.uint8).argmin())
            raise DataError(f"{folder / which}: row {row} is not a puzzle with its solution. Build the folder again.")
        return puzzles


def sudoku_game(box: int) -> Game:
    """Sudoku with boxes of box x box cells."""
    return Game(
        vocab_size=box**2 + 2,
        characters=".123456789"[: box**2 + 1],
        cells=box**4,
        read=lambda path: sudoku.read_csv(path, box),
        made=generate9.load,
        sound=_sudoku_sound,
        symmetries=augment.sudoku,
    )


def _about_mazes(inputs: Tensor, labels: Tensor) -> str:
    """Sizes, path lengths, and how many labels the official search finds."""
    lengths, side = maze.lengths(labels), math.isqrt(inputs.shape[1])
    return (
        f", {side}x{side}, paths of {lengths.min()} to {lengths.max()} cells, "
        f"{counted(maze.official(inputs, labels), 'label')} with the official tie-break"
    )


MAZE = Game(
    vocab_size=maze.VOCABULARY,
    characters=maze.CHARACTERS,
    cells=None,
    read=maze.read_csv,
    made=maze.load,
    sound=lambda inputs, labels: maze.whole(inputs) & maze.sound(inputs, labels),
    symmetries=augment.dihedral,
    judge=maze.optimal,
    about=_about_mazes,
)


def _sudoku_sound(inputs: Tensor, labels: Tensor) -> Tensor:
    whole = (inputs >= 1).all(1) & (labels >= 2).all(1)
    questions, answers = (tokens.to(torch.int16) - 1 for tokens in (inputs, labels))
    return whole & sudoku.solved(answers.clamp(min=0)) & sudoku.agrees(questions, answers)


Tokens = tuple[Tensor, Tensor]
"""(inputs, labels), uint8 (N, cells)."""
Variants = Tokens | Puzzles
"""Tokens, optionally with groups of variants."""

VALID_ROWS, TEST_ROWS = 500, 1000
_TRAIN_SEED, _VALID_SEED, _TEST_SEED = 1, 2, 3
"""Generated 9x9 puzzles and mazes are the same for every run, so that runs compare; 4x4 puzzles are those of seed 0."""


@dataclass(frozen=True)
class Datasets:
    """The puzzles to train on, to choose the best checkpoint, and to report."""

    train: Dataset
    valid: Dataset | None
    """Puzzles that are neither trained on nor reported; None if the training file has no other rows."""
    load_test: Callable[[], Dataset]

    @cached_property
    def test(self) -> Dataset:
        """Loaded at first use: training with one's own file never waits for generated test puzzles."""
        return self.load_test()

    def pinned(self, config: TrainConfig) -> dict[str, str]:
        """What a run pins of its data, by content."""
        test = {} if config.data.test == GENERATED else {"test": f"sha256:{self.test.content_hash}"}
        return {"train": f"sha256:{self.train.content_hash}"} | test

    def split(self, name: str) -> Dataset | None:
        """Puzzles of one of `measures.SPLITS`; None if there are none."""
        return self.valid if name == SPLITS.choosing else self.test


def load_data(
    config: TrainConfig, root: Path, progress: Report | None = None, fetching: Fetching | None = files.unseen
) -> Datasets | ArcDatasets:
    """The puzzles of the configuration; downloads and generated files are kept below `root`.

    fetching: shows downloads; None: nothing is downloaded.

    A named test file is read at once, so that its faults show before training. Raises TaskError for an impossible
    combination, DataError for missing or unusable data.
    """
    preset(config.task)
    if config.task in ARC:
        return arc.load(config, root)
    _check_sources(config)
    report = progress or files.silent
    train, valid = _train_and_valid(config, root, report, fetching)
    datasets = Datasets(
        train=_dataset(config, train, config.data.augment),
        valid=None if valid is None else _dataset(config, valid),
        load_test=lambda: _dataset(config, _test(config, root, report, fetching)),
    )
    if config.data.test != GENERATED:
        _ = datasets.test
    return datasets


def glance(config: TrainConfig) -> list[str]:
    """What the settings lead to on this machine, a line a part, without building it; [] for data that is made here.

    Raises TaskError, DataError for files that cannot be trained on.
    """
    if config.task in ARC and config.data.source:
        return arc.glance(config)
    if config.task not in ARC:
        _check_sources(config)
    if config.data.train in (GENERATED, HUB):
        return []
    source = files.whole_path(config.data.train)
    if not source.is_dir():
        _refuse_missing(config.data.train)
        return [f"{source}: {source.stat().st_size:,} bytes"] if source.exists() else []
    abouts = {part: _part(source, part) for part in PARTS}
    if len({(about.num_puzzle_identifiers, about.seq_len) for about, _ in abouts.values()}) > 1:
        raise DataError(f"{source}: train and test are not of one build: their dataset.json differ. Build it again.")
    return [
        f"{source / part}: {counted(rows, 'row')} of {counted(about.total_groups, 'group')}"
        for part, (about, rows) in abouts.items()
    ]


def _part(folder: Path, part: Part) -> tuple[About, int]:
    """dataset.json and the number of rows, by the headers. Raises DataError for a missing or cut file."""
    shapes = {name: array_of(folder / part / f"all__{name}.npy", 2).shape for name in ("inputs", "labels")}
    about = read_about(folder, part)
    if shapes["inputs"] != shapes["labels"] or shapes["inputs"][1] != about.seq_len:
        raise DataError(f"{folder / part}: its arrays are {shapes}, for rows of {about.seq_len}. Build it again.")
    return about, int(shapes["inputs"][0])


def lines_about(task: str, datasets: Datasets | ArcDatasets) -> list[str]:
    """A summary of all splits, to print."""
    if isinstance(datasets, ArcDatasets):
        return arc.described(datasets)
    parts = {"train": datasets.train, "validation": datasets.valid, "test": datasets.test}
    return [f"{name}: {described(task, part)}" for name, part in parts.items() if part is not None]


def described(task: str, data: Dataset) -> str:
    """A summary of the checked puzzles, to print."""
    groups = "" if data.groups is None else f" in {counted(data.visits, 'group')}"
    return f"{counted(data.size, 'puzzle')}{groups}{game(task).about(data.inputs, data.labels)}"


def write_folder(
    task: str, datasets: Datasets | ArcDatasets, folder: Path, variants: int = 0, seed: int = 0
) -> list[str]:
    """Training and test puzzles as a folder in the reference's layout, read back and compared; lines to print.

    Each puzzle is a separate group: the puzzle, and for training so many variants of it, drawn by the seed; ARC's
    tasks have theirs. Raises DataError, or TaskError if the task has no such variants.
    """
    if isinstance(datasets, ArcDatasets):
        if variants:
            raise TaskError("ARC's variants are part of its data: set data.num_aug instead of --num-aug.")
        return arc.write_folder(datasets, folder)
    if datasets.train.groups is not None:
        raise TaskError("data.train is such a folder already, with groups of variants. Copy it.")
    _check_variants(task, variants)
    lines = []
    parts: tuple[tuple[Part, Dataset], ...] = (("train", datasets.train), ("test", datasets.test))
    for part, data in parts:
        stored = _with_variants(task, data, variants if part == "train" else 0, seed)
        write_part(folder, part, stored.inputs, stored.labels, data.vocab_size, groups=stored.groups)
        lines.append(f"{folder / part}: {described(task, stored)}, sha256 {stored.content_hash[:16]}…")
    return lines


def _check_variants(task: str, variants: int) -> None:
    if variants and BOX.get(task) == 2:
        raise TaskError("Variants of 4x4 training grids are test grids. Store no variants of them.")
    if variants and task not in BOX and variants != SYMMETRIES - 1:
        raise TaskError(f"A maze has {SYMMETRIES - 1} variants, turned and reflected, not {variants}.")


def _with_variants(task: str, data: Dataset, variants: int, seed: int) -> Dataset:
    """Each puzzle followed by variants of it: all of a maze, those of a Sudoku drawn by chance."""
    if not variants:
        return data
    made = [(data.inputs, data.labels)]
    if task in BOX:
        made += [augment.sudoku(data.inputs, data.labels, seed, draw) for draw in range(1, variants + 1)]
    else:
        made += [augment.turned(data.inputs, data.labels, number) for number in range(1, SYMMETRIES)]
    inputs, labels = (torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*made, strict=True))
    groups = torch.arange(0, len(inputs) + 1, variants + 1)
    return Dataset(inputs, labels, data.vocab_size, groups=groups)


def game(task: str) -> Game:
    """The game of a task that is not ARC's."""
    return sudoku_game(BOX[task]) if task in BOX else MAZE


def sizes_of(config: TrainConfig) -> Sizes:
    """The network dimensions for a task's generated and published puzzles, without reading any."""
    if config.task in ARC:
        return Sizes(config.data.canvas**2, VOCABULARY, arc.identifiers_of(config))
    kind = game(config.task)
    return Sizes(kind.cells or maze.SIDE**2, kind.vocab_size, Dataset.num_identifiers)


def _dataset(config: TrainConfig, tokens: Variants, augmented: bool = False) -> Dataset:
    kind, groups = game(config.task), tokens.groups if isinstance(tokens, Puzzles) else None
    made = Dataset(*tokens[:2], kind.vocab_size, kind.symmetries if augmented else None, groups)
    made.judge = kind.judge
    return made


def _check_sources(config: TrainConfig) -> None:
    """Task files are ARC's; 4x4 grids are so few that carelessly chosen data trains on the test's solutions."""
    data, box = config.data, BOX.get(config.task)
    if data.source:
        raise TaskError(
            f"data.source names ARC tasks, and task={config.task} trains on none. Add task=arc1 or task=arc2, or leave "
            f"data.source out."
        )
    if box is None and HUB in (data.train, data.test):
        raise TaskError(
            f"The hub has only Sudoku puzzles, not {config.task}. Set data.train and data.test to CSV files, to "
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


def _train_and_valid(
    config: TrainConfig, root: Path, report: Report, fetching: Fetching | None
) -> tuple[Variants, Tokens | None]:
    source, rows, kind = config.data.train, config.data.train_rows, game(config.task)
    if source == HUB:
        return _hub_split(config, root, report, fetching)
    if is_folder(source):
        return split_groups(kind.read_folder(source, "train"), rows, config.seed)
    _refuse_missing(source)
    if source != GENERATED:
        return split(kind.read(files.whole_path(source)), rows, config.seed)
    if BOX.get(config.task) == 2:
        return sudoku4.build(rows)[:2]
    return kind.made(root, _TRAIN_SEED, rows, report), kind.made(root, _VALID_SEED, VALID_ROWS, report)


def _test(config: TrainConfig, root: Path, report: Report, fetching: Fetching | None) -> Tokens:
    source, kind = config.data.test, game(config.task)
    if source == HUB:
        return sudoku.read_csv(hub.sudoku_extreme(root, "test.csv", report, fetching))
    if is_folder(source):
        return kind.read_folder(source, "test")[:2]
    _refuse_missing(source)
    if source != GENERATED:
        return kind.read(files.whole_path(source))
    if BOX.get(config.task) == 2:
        return sudoku4.build(config.data.train_rows)[2]
    return kind.made(root, _TEST_SEED, TEST_ROWS, report)


def _refuse_missing(source: str) -> None:
    """Raises NoFolder for a path that does not exist and does not look like a file's."""
    path = files.whole_path(source)
    if source != GENERATED and not path.suffix and not path.exists() and not path.is_symlink():
        raise NoFolder(path, f"{path.absolute()} does not exist. Check the path in data.train or data.test.")


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


def _hub_split(
    config: TrainConfig, root: Path, report: Report, fetching: Fetching | None
) -> tuple[Tokens, Tokens | None]:
    """The split of Sudoku-Extreme's training file, kept in small files: reading all of it takes a minute."""
    name = f"seed{config.seed}-{config.data.train_rows}.csv"
    train, valid = (root / "sudoku-extreme" / f"{part}-{name}" for part in ("train", "valid"))
    if not train.exists():
        every = sudoku.read_csv(hub.sudoku_extreme(root, "train.csv", report, fetching))
        kept, spare = split(every, config.data.train_rows, config.seed)
        if spare is not None:
            sudoku.write_csv(valid, "sudoku-extreme", spare)
        sudoku.write_csv(train, "sudoku-extreme", kept)
    return sudoku.read_csv(train), sudoku.read_csv(valid) if valid.exists() else None
