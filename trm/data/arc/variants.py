"""The variants of each task with their names and identifiers, and the splits that a model is trained and tested on.

The draws are those of the reference's builder, bit for bit: numpy's legacy generator, seeded once, its 32-bit words
rejected by a mask (reference/arc.md 3). Only originals, variants and offsets are kept; rows are computed from them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from relay.torch.faults import DataError
from trm.data.arc.tasks import COLORS, SIDE, Grid, Pair, Task

SEED = 42
RETRIES = 5
"""Trials for each wanted variant: a task with few colors or much symmetry stays below its number."""
BLANK = "<blank>"
SEPARATOR = "|||"
VOCABULARY = COLORS + 2
"""0 padding, 1 end of the grid, color c as c + 2."""
_NAME = re.compile(r"([A-Za-z0-9_.-]{1,80})(?:\|\|\|t([0-7])\|\|\|(0[1-9]{9}))?")
SWAPS = (False, True, False, True, False, False, True, True)
"""Of the eight symmetries: whether it exchanges height and width."""
_INVERSE = (0, 3, 2, 1, 4, 5, 6, 7)
_PLAIN = tuple(range(COLORS))

Words = Callable[[], int]
"""The next 32-bit word."""


@dataclass(frozen=True)
class Variant:
    """One of the eight symmetries, after a permutation of the colors that keeps 0."""

    turn: int = 0
    colors: tuple[int, ...] = _PLAIN

    def apply(self, grid: np.ndarray) -> np.ndarray:
        """The variant of a grid, uint8."""
        found: np.ndarray = turned(np.array(self.colors, dtype=np.uint8)[grid], self.turn)
        return found

    def undo(self, grid: np.ndarray) -> np.ndarray:
        """The original of a grid of this variant."""
        found: np.ndarray = np.argsort(self.colors).astype(np.uint8)[turned(grid, _INVERSE[self.turn])]
        return found


def turned(grid: np.ndarray, turn: int) -> np.ndarray:
    """One of the eight symmetries of a square: four quarter turns, two flips, two reflections."""
    if turn < 4:
        return np.rot90(grid, turn)
    if turn == 7:
        return np.fliplr(np.rot90(grid))
    return (np.fliplr(grid), np.flipud(grid), grid.T)[turn - 4]


def parsed(name: str) -> tuple[str, Variant]:
    """A task's name and the variant. Raises ValueError for another name than `Names.text` gives."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r:.100} is not the name of a task's variant")
    if found[2] is None:
        return found[1], Variant()
    colors = tuple(map(int, found[3]))
    if sorted(colors) != list(_PLAIN):
        raise ValueError(f"{name!r:.100} does not permute the colors")
    return found[1], Variant(int(found[2]), colors)


@dataclass(frozen=True)
class Names:
    """The list of identifiers: 0 is blank, i + 1 the variant in row i."""

    tasks: tuple[str, ...]
    task: np.ndarray
    """int32 (I,): index into `tasks`."""
    turn: np.ndarray
    """uint8 (I,)."""
    colors: np.ndarray
    """uint8 (I, 10)."""

    def __len__(self) -> int:
        """Number of identifiers, the blank one counted."""
        return len(self.task) + 1

    def variant(self, identifier: int) -> Variant:
        """The variant of an identifier from 1 on."""
        return Variant(int(self.turn[identifier - 1]), tuple(self.colors[identifier - 1].tolist()))

    def of(self, identifier: int) -> str:
        """The task of an identifier from 1 on."""
        return str(self.tasks[self.task[identifier - 1]])

    @cached_property
    def text(self) -> str:
        """identifiers.json, as the reference writes it."""
        ends = self._ends
        names = [self.tasks[task] + ends[key] for task, key in zip(self.task.tolist(), self._keys, strict=True)]
        return json.dumps([BLANK, *names])

    @property
    def _keys(self) -> list[bytes]:
        packed = np.concatenate((self.turn[:, None], self.colors), axis=1)
        return [row.tobytes() for row in packed]

    @property
    def _ends(self) -> dict[bytes, str]:
        plain = bytes((0, *_PLAIN))
        return {
            key: "" if key == plain else f"{SEPARATOR}t{key[0]}{SEPARATOR}{''.join(map(str, key[1:]))}"
            for key in set(self._keys)
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 of identifiers.json: the rows of a table mean nothing without this list."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Split:
    """Pairs of tasks, each group in several variants. Row order: groups, their variants, the pairs of each."""

    grids: np.ndarray
    """uint8 (E, 2, side, side): input and output of each pair at the corner, colors, 0 outside."""
    shapes: np.ndarray
    """uint8 (E, 2, 2): height and width of both; 0 for an absent output."""
    pairs: np.ndarray
    """int64 (G + 1,): group g has the pairs pairs[g] to pairs[g + 1] - 1."""
    variants: np.ndarray
    """int64 (G + 1,): and the variants of these numbers."""
    identifiers: np.ndarray
    """int32 (V,): of each variant."""
    offsets: np.ndarray
    """uint8 (R, 2): where the grids of a row begin on the canvas."""

    @cached_property
    def rows(self) -> np.ndarray:
        """int64 (G + 1,): first row of each group."""
        return np.concatenate(([0], np.cumsum(np.diff(self.pairs) * np.diff(self.variants)))).astype(np.int64)

    @property
    def count(self) -> int:
        """Rows."""
        return len(self.offsets)

    @property
    def labelled(self) -> bool:
        """Whether every output is known."""
        return bool(self.shapes[:, 1].all())

    def where(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(pair, identifier) of rows."""
        group = np.searchsorted(self.rows, rows, side="right") - 1
        variant, pair = np.divmod(rows - self.rows[group], np.diff(self.pairs)[group])
        return self.pairs[group] + pair, self.identifiers[self.variants[group] + variant]

    def hash_into(self, digest: hashlib._Hash) -> None:
        """Everything that decides the rows, except the names."""
        for array in vars(self).values():
            if isinstance(array, np.ndarray) and array is not vars(self).get("rows"):
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)


@dataclass(frozen=True)
class Build:
    """Tasks with their variants, ready to train and to test."""

    side: int
    """Cells in a line of the canvas."""
    names: Names
    train: Split
    test: Split
    tested: Mapping[str, Task]
    """The tasks of the test set, in the order of test_puzzles.json."""
    short: Mapping[str, int]
    """Tasks that cannot fill their variants, with the number that they have, the original counted."""
    subsets: Mapping[str, int]
    """Tasks of each subset."""
    shared: tuple[tuple[str, str, int], ...] = ()
    """(task of the test set, other task, equal pairs)."""

    def content_hash(self, split: Split) -> str:
        """SHA-256 (hexadecimal) of a split: canvas, names, and what decides its rows."""
        digest = hashlib.sha256(f"arc {self.side} {self.names.hash}\n".encode())
        split.hash_into(digest)
        return digest.hexdigest()


@dataclass(frozen=True)
class Draws:
    """All that is random in a build."""

    order: np.ndarray
    """int32 (T,): number of each task of the list, among those of all subsets one after another."""
    counts: np.ndarray
    """int32 (T,): its variants, the original counted."""
    turn: np.ndarray
    """uint8 (I,): of each variant."""
    colors: np.ndarray
    """uint8 (I, 10): of each variant."""
    offsets: np.ndarray
    """uint8 (R, 2): where the grids of each training row begin."""


def draw(subsets: Mapping[str, Sequence[Task]], test_set: str, num_aug: int, side: int) -> Draws:
    """As the reference's builder draws, the training split first."""
    words, order, listed = words_of(SEED), list[int](), _listed(subsets, test_set)
    drawn = list[list[Variant]]()
    for tasks in subsets.values():
        for number in _shuffled(range(len(order), len(order) + len(tasks)), words):
            drawn.append([Variant(), *_variants(listed[number][0], num_aug, words)])
            order.append(number)
    names = names_of([listed[number][0] for number in order], drawn)
    offsets = offsets_of([listed[number][1] for number in order], drawn, side, words)
    counts = [len(variants) for variants in drawn]
    return Draws(np.array(order, np.int32), np.array(counts, np.int32), names.turn, names.colors, offsets)


def build(
    subsets: Mapping[str, Sequence[Task]],
    test_set: str,
    num_aug: int,
    side: int = SIDE,
    drawn: Callable[[Mapping[str, Sequence[Task]], str, int, int], Draws] = draw,
) -> Build:
    """Variants and splits, as the reference's builder makes them, with the training split drawn first.

    The demonstrations of the test set are training data, its test pairs are not; all pairs of the other subsets are.
    """
    every = _listed(subsets, test_set)
    if not every:
        raise DataError("There are no tasks. Raise data.max_tasks, or name other subsets in data.subsets.")
    for task, pairs, _ in every:
        if any(pair.output is None for pair in pairs):
            raise DataError(
                f"Task {task.name} has a test input without a solution, but is not in the test set {test_set}. Name "
                f"its subset in data.test_set, or put its solutions next to its challenges."
            )
    found = drawn(subsets, test_set, num_aug, side)
    listed = [every[number] for number in found.order]
    tasks = [task for task, _, _ in listed]
    task_of_each = np.repeat(np.arange(len(tasks), dtype=np.int32), found.counts)
    names = Names(tuple(task.name for task in tasks), task_of_each, found.turn, found.colors)
    edges = np.concatenate(([0], np.cumsum(found.counts)))
    ids = [np.arange(low, high) + 1 for low, high in pairwise(edges.tolist())]
    train = split_of([pairs for _, pairs, _ in listed], ids, side, found.offsets)
    tests = [at for at, (_, _, test) in enumerate(listed) if test]
    test = split_of([tasks[at].tests for at in tests], [ids[at] for at in tests], side)
    tested = {tasks[at].name: tasks[at] for at in tests}
    others = [task for task, _, test in listed if not test]
    wanted = zip(tasks, found.counts.tolist(), strict=True)
    short = {task.name: count for task, count in wanted if count < num_aug + 1}
    counts = {subset: len(own) for subset, own in subsets.items()}
    return Build(side, names, train, test, tested, short, counts, _overlap(tested.values(), others))


def _listed(subsets: Mapping[str, Sequence[Task]], test_set: str) -> list[tuple[Task, Sequence[Pair], bool]]:
    """Each task, the pairs of it that are trained on, and whether it is one of the test set."""
    return [
        (task, task.demonstrations if subset == test_set else task.pairs(), subset == test_set)
        for subset, tasks in subsets.items()
        for task in tasks
    ]


def words_of(seed: int) -> Words:
    """numpy's legacy stream of 32-bit words, which is frozen."""
    generator = np.random.RandomState(seed)

    def blocks() -> Iterator[int]:
        while True:
            yield from generator.randint(0, 1 << 32, 1 << 16, dtype=np.uint32).tolist()

    return blocks().__next__


def _upto(most: int, words: Words) -> int:
    """Uniform in 0 .. most; no word is drawn for 0."""
    if most == 0:
        return 0
    mask = (1 << most.bit_length()) - 1
    while (value := words() & mask) > most:
        pass
    return value


def _shuffled(numbers: Sequence[int], words: Words) -> list[int]:
    order = list(numbers)
    for at in range(len(order) - 1, 0, -1):
        other = _upto(at, words)
        order[at], order[other] = order[other], order[at]
    return order


def _variants(task: Task, num_aug: int, words: Words) -> Iterator[Variant]:
    """New variants of a task. Two are equal if all pairs of one are those of the other, in any order."""
    forms = [[_packed(pair, turn) for pair in task.pairs()] for turn in range(8)]
    low, high = bytes(range(_FIRST)), bytes(range(_FIRST + COLORS, 256))
    seen, found = {b"".join(sorted(forms[0]))}, 0
    for _ in range(RETRIES * num_aug):
        turn, order = _upto(7, words), list(range(1, COLORS))
        for at in range(COLORS - 2, 0, -1):
            other = _upto(at, words)
            order[at], order[other] = order[other], order[at]
        table = low + bytes((_FIRST, *(_FIRST + color for color in order))) + high
        content = b"".join(sorted(pair.translate(table) for pair in forms[turn]))
        if content in seen:
            continue
        seen.add(content)
        yield Variant(turn, (0, *order))
        found += 1
        if found == num_aug:
            return


_FIRST = 100
"""Code of color 0 where sizes, 1 to 30, are in the same text."""


def _packed(pair: Pair, turn: int) -> bytes:
    """Sizes and cells of a pair in one of the eight symmetries; an absent output has the size 0."""
    packed = b""
    for grid in (pair.input, pair.output):
        if grid is None:
            packed += bytes(2)
            continue
        form = turned(np.array(grid, dtype=np.uint8), turn)
        packed += bytes(form.shape) + (form + _FIRST).tobytes()
    return packed


def drawn_for(tasks: Sequence[Task], num_aug: int) -> list[list[Variant]]:
    """The original and up to `num_aug` variants of each task, always the same."""
    words = words_of(SEED)
    return [[Variant(), *_variants(task, num_aug, words)] for task in tasks]


def names_of(tasks: Sequence[Task], drawn: Sequence[Sequence[Variant]]) -> Names:
    every = [variant for variants in drawn for variant in variants]
    task = np.repeat(np.arange(len(tasks), dtype=np.int32), [len(each) for each in drawn])
    turn = np.array([variant.turn for variant in every], dtype=np.uint8)
    colors = np.array([variant.colors for variant in every], dtype=np.uint8)
    return Names(tuple(task.name for task in tasks), task, turn, colors)


def placed(pairs: Sequence[Pair], side: int) -> tuple[np.ndarray, np.ndarray]:
    """Grids at the corner of a canvas and their shapes, as in `Split`."""
    grids = np.zeros((len(pairs), 2, side, side), dtype=np.uint8)
    shapes = np.zeros((len(pairs), 2, 2), dtype=np.uint8)
    for number, pair in enumerate(pairs):
        for which, grid in enumerate((pair.input, pair.output)):
            if grid is not None:
                shapes[number, which] = len(grid), len(grid[0])
                grids[number, which, : len(grid), : len(grid[0])] = grid
    return grids, shapes


def offsets_of(
    groups: Sequence[Sequence[Pair]], drawn: Sequence[Sequence[Variant]], side: int, words: Words
) -> np.ndarray:
    """uint8 (R, 2): where the grids of each row begin, drawn; one row of each variant stays at the corner."""
    offsets = bytearray()
    for pairs, variants in zip(groups, drawn, strict=True):
        room = [_room(pair, side) for pair in pairs]
        swapped = [(across, down) for down, across in room]
        for variant in variants:
            fixed = _upto(len(pairs) - 1, words)
            for number, (down, across) in enumerate(swapped if SWAPS[variant.turn] else room):
                offsets += b"\0\0" if number == fixed else bytes((_upto(down, words), _upto(across, words)))
    return np.frombuffer(offsets, np.uint8).reshape(-1, 2)


def split_of(
    groups: Sequence[Sequence[Pair]], ids: Sequence[np.ndarray], side: int, offsets: np.ndarray | None = None
) -> Split:
    """Groups of pairs, each in the variants with these identifiers. offsets: of each row; None: all at the corner."""
    grids, shapes = placed([pair for pairs in groups for pair in pairs], side)
    sizes, spans = np.array([len(pairs) for pairs in groups]), np.array([len(own) for own in ids])
    puzzles, groups_at = (np.concatenate(([0], np.cumsum(each))).astype(np.int64) for each in (sizes, spans))
    every = np.concatenate(ids).astype(np.int32) if ids else np.zeros(0, np.int32)
    rows = np.zeros((int(sizes @ spans), 2), np.uint8) if offsets is None else offsets
    return Split(grids, shapes, puzzles, groups_at, every, rows)


def _room(pair: Pair, side: int) -> tuple[int, int]:
    """The greatest offsets, down and across, that keep both grids on the canvas."""
    both = [grid for grid in (pair.input, pair.output) if grid is not None]
    return side - max(len(grid) for grid in both), side - max(len(grid[0]) for grid in both)


def _overlap(tested: Iterable[Task], others: Sequence[Task]) -> tuple[tuple[str, str, int], ...]:
    """Pairs that a task of the test set shares with another task: on these a right answer may be remembered."""
    holders = dict[tuple[Grid, Grid | None], set[str]]()
    for task in others:
        for pair in task.pairs():
            holders.setdefault((pair.input, pair.output), set()).add(task.name)
    counts = dict[tuple[str, str], int]()
    for task in tested:
        for pair in task.pairs():
            for name in holders.get((pair.input, pair.output), ()):
                counts[task.name, name] = counts.get((task.name, name), 0) + 1
    return tuple((*names, count) for names, count in sorted(counts.items()))
