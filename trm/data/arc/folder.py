"""Writes and reads ARC data as a folder in the reference's layout (reference/trm.md 9).

A folder is read back to originals, variants and offsets, and every row is compared with what these give: so a folder
and the task files that it was built from are the same data, with the same hash.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from relay.torch.faults import DataError, TaskError
from storage.regular import regular
from storage.wording import counted
from trm.config import LIST
from trm.data.arc.rows import ArcData, of_build
from trm.data.arc.tasks import Task, raw_task, task_of
from trm.data.arc.variants import BLANK, VOCABULARY, Build, Names, Split, Variant, parsed
from trm.data.folders import ABOUT, About, Part, array_of, read_about

TESTED = "test_puzzles.json"
_CHUNK = 8192
"""Rows written or compared at once."""
_MOST_BYTES = 1 << 29


def write(made: Build, folder: Path) -> list[str]:
    """Write the folder, whole or not at all; returns lines to print. Raises TaskError if it exists, DataError."""
    if folder.exists():
        raise TaskError(f"{folder} exists already. Choose a new folder, or remove it.")
    lines = []
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.", suffix=".part"))
        try:
            for part, split in _parts(made):
                _write_part(made, split, scratch / part)
                lines.append(
                    f"{folder / part}: {counted(split.count, 'row')} of {counted(len(split.pairs) - 1, 'group')}"
                )
            (scratch / LIST).write_text(made.names.text)
            (scratch / TESTED).write_text(tested_text(made.tested))
            scratch.chmod(0o755)
            for file in (path for path in scratch.rglob("*") if path.is_file()):
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            scratch.rename(folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        what = f"{folder} cannot be written: {error.strerror or error}"
        raise DataError(f"{what}. Free some space or choose another folder.") from error
    return lines


def _parts(made: Build) -> tuple[tuple[Part, Split], ...]:
    return ("train", made.train), ("test", made.test)


def _write_part(made: Build, split: Split, place: Path) -> None:
    place.mkdir()
    cells = made.side**2
    if split.count:
        _write_tokens(of_build(made, split), place)
    else:
        for name in ("inputs", "labels"):
            np.save(place / f"all__{name}.npy", np.zeros((0, cells), np.uint8), allow_pickle=False)
    puzzles = len(split.identifiers)
    sizes = np.repeat(np.diff(split.pairs), np.diff(split.variants))
    arrays = {
        "puzzle_identifiers": split.identifiers,
        "puzzle_indices": np.concatenate(([0], np.cumsum(sizes))),
        "group_indices": split.variants,
    }
    for name, array in arrays.items():
        np.save(place / f"all__{name}.npy", array.astype(np.int32), allow_pickle=False)
    about = {
        "seq_len": cells,
        "vocab_size": VOCABULARY,
        "pad_id": 0,
        "ignore_label_id": 0,
        "blank_identifier_id": 0,
        "num_puzzle_identifiers": len(made.names),
        "total_groups": len(split.pairs) - 1,
        "mean_puzzle_examples": split.count / max(puzzles, 1),
        "total_puzzles": puzzles,
        "sets": ["all"],
    }
    (place / ABOUT).write_text(json.dumps(about))


def _write_tokens(data: ArcData, place: Path) -> None:
    shape = (data.size, data.seq_len)
    files = [open_memmap(place / f"all__{name}.npy", "w+", np.uint8, shape) for name in ("inputs", "labels")]
    for start in range(0, data.size, _CHUNK):
        for file, made in zip(files, data.tokens(start, _CHUNK), strict=True):
            file[start : start + len(made)] = made.numpy()
    for file in files:
        file.flush()


def tested_text(tested: Mapping[str, Task]) -> str:
    """test_puzzles.json, as the reference writes it."""
    return json.dumps({name: raw_task(task) for name, task in tested.items()})


def read(folder: Path) -> Build:
    """A folder of this layout, ours or the reference's. Raises DataError naming the file and its fault."""
    about = read_about(folder, "train")
    side = round(about.seq_len**0.5)
    if side * side != about.seq_len or about.vocab_size != VOCABULARY:
        raise DataError(
            f"{folder} holds rows of {about.seq_len} cells and {about.vocab_size} tokens, which is not ARC."
        )
    names = read_names(folder / LIST)
    splits = {part: _read_part(folder, part, names, side) for part in ("train", "test")}
    tested = _read_tested(folder / TESTED, side)
    _check_tested(folder, names, splits["test"], tested)
    return Build(side, names, splits["train"], splits["test"], tested, {}, {})


def _load(path: Path) -> Any:
    try:
        if regular(path).stat().st_size > _MOST_BYTES:
            raise DataError(f"{path} has more than {_MOST_BYTES:,} bytes. Is this the right folder?")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}. Copy or build the folder again.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not complete JSON: {error!s:.100}. Copy or build the folder again.") from None


def read_names(path: Path) -> Names:
    """A list of identifiers. Raises DataError naming the file and its fault."""
    texts = _load(path)
    if not isinstance(texts, list) or texts[:1] != [BLANK] or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{path} is not a list of names that begins with {BLANK}. Copy or build the folder again.")
    tasks, indices = dict[str, int](), list[int]()
    variants = list[Variant]()
    for row, text in enumerate(texts[1:], 1):
        try:
            task, variant = parsed(text)
        except ValueError as error:
            raise DataError(f"{path}: row {row} of the list: {error}. Build the folder again.") from None
        indices.append(tasks.setdefault(task, len(tasks)))
        variants.append(variant)
    if len(set(texts)) < len(texts):
        raise DataError(f"{path} holds a name twice. Build the folder again.")
    return Names(
        tuple(tasks),
        np.array(indices, dtype=np.int32),
        np.array([variant.turn for variant in variants], dtype=np.uint8),
        np.array([variant.colors for variant in variants], dtype=np.uint8).reshape(-1, 10),
    )


def _read_part(folder: Path, part: Part, names: Names, side: int) -> Split:
    about = read_about(folder, part)
    place = folder / part
    if about.num_puzzle_identifiers != len(names) or about.seq_len != side * side:
        raise DataError(
            f"{place / ABOUT} has {about.num_puzzle_identifiers:,} identifiers and rows of {about.seq_len}, "
            f"{LIST} has {len(names):,}, and the other part rows of {side * side}. They are not of one build."
        )
    found = {name: array_of(place / f"all__{name}.npy", 1).astype(np.int64) for name in _INDICES}
    pairs, variants = _groups(place, about, names, found)
    rows = {name: array_of(place / f"all__{name}.npy", 2) for name in ("inputs", "labels")}
    shape = (int(found["puzzle_indices"][-1]), side * side)
    for name, array in rows.items():
        if array.shape != shape:
            raise DataError(f"{place / f'all__{name}.npy'} is {array.shape} where {shape} belongs. Build it again.")
    identifiers = found["puzzle_identifiers"].astype(np.int32)
    offsets = np.concatenate([_corners(rows, start) for start in range(0, shape[0], _CHUNK)] or [np.zeros((0, 2))])
    empty = np.zeros((int(pairs[-1]), 2, side, side), np.uint8), np.zeros((int(pairs[-1]), 2, 2), np.uint8)
    split = Split(*empty, pairs, variants, identifiers, offsets.astype(np.uint8))
    _fill(split, rows, side)
    _compare(split, names, side, rows, place)
    return split


_INDICES = ("puzzle_identifiers", "puzzle_indices", "group_indices")


def _groups(place: Path, about: About, names: Names, found: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """`Split.pairs` and `Split.variants`. Every group must be one task in variants, the original first."""
    ids, puzzles, groups = (found[name] for name in _INDICES)
    sizes = np.diff(puzzles)
    fits = (
        len(groups) == about.total_groups + 1
        and len(puzzles) == len(ids) + 1
        and puzzles[:1].tolist() == groups[:1].tolist() == [0]
        and groups[-1:].tolist() == [len(ids)]
        and bool((np.diff(groups) > 0).all() and (sizes > 0).all())
        and bool(((ids > 0) & (ids < len(names))).all())
    )
    if not fits:
        raise DataError(f"{place}: its indices do not fit each other and {LIST}. Build the folder again.")
    first = groups[:-1]
    of_group = np.repeat(np.arange(len(first)), np.diff(groups))
    tasks = names.task[ids - 1]
    same = (sizes == sizes[first][of_group]) & (tasks == tasks[first][of_group])
    plain = (names.turn[ids[first] - 1] == 0) & (names.colors[ids[first] - 1] == np.arange(10)).all(1)
    if not same.all() or not plain.all():
        group = int(of_group[same.argmin()] if not same.all() else plain.argmin())
        name = names.of(int(ids[first[group]]))
        raise DataError(f"{place}: group {group} is not task {name} followed by its variants. Build the folder again.")
    return np.concatenate(([0], np.cumsum(sizes[first]))).astype(np.int64), groups


def _corners(rows: Mapping[str, np.ndarray], start: int) -> np.ndarray:
    """(rows, 2): the first line and column with a color in the input."""
    some = np.asarray(rows["inputs"][start : start + _CHUNK])
    side = round(some.shape[1] ** 0.5)
    colored = some.reshape(-1, side, side) >= 2
    return np.stack((colored.any(2).argmax(1), colored.any(1).argmax(1)), axis=1)


def _fill(split: Split, rows: Mapping[str, np.ndarray], side: int) -> None:
    """The originals, from the first puzzle of each group."""
    for group, start in enumerate(split.rows[:-1]):
        for pair in range(int(split.pairs[group]), int(split.pairs[group + 1])):
            row = int(start) + pair - int(split.pairs[group])
            for which, name in enumerate(("inputs", "labels")):
                canvas = np.asarray(rows[name][row]).reshape(side, side)
                down, across = split.offsets[row]
                colored = canvas[down:, across:] >= 2
                height, width = int(colored.any(1).sum()), int(colored.any(0).sum())
                split.shapes[pair, which] = height, width
                grid = canvas[down : down + height, across : across + width].astype(np.int64) - 2
                split.grids[pair, which, :height, :width] = np.clip(grid, 0, 9)


def _compare(split: Split, names: Names, side: int, rows: Mapping[str, np.ndarray], place: Path) -> None:
    if not split.count:
        return
    data = ArcData(split, names, side, "")
    for start in range(0, split.count, _CHUNK):
        for name, made in zip(("inputs", "labels"), data.tokens(start, _CHUNK), strict=True):
            theirs = np.asarray(rows[name][start : start + _CHUNK])
            wrong = (theirs != made.numpy()).any(1)
            if wrong.any():
                row = start + int(wrong.argmax())
                raise DataError(
                    f"{place / f'all__{name}.npy'}: row {row} is not the variant that its name gives. Was the folder "
                    f"changed, or copied in part? Build it again."
                )


def _read_tested(path: Path, side: int) -> dict[str, Task]:
    raw = _load(path)
    if not isinstance(raw, dict):
        raise DataError(f"{path} is not an object of tasks. Build the folder again.")
    return {name: task_of(path, name, value, side) for name, value in raw.items()}


def _check_tested(folder: Path, names: Names, test: Split, tested: Mapping[str, Task]) -> None:
    first = test.identifiers[test.variants[:-1]]
    order = [names.of(int(identifier)) for identifier in first]
    counts = dict(zip(order, np.diff(test.pairs).tolist(), strict=True))
    if {name: len(task.tests) for name, task in tested.items()} != counts:
        raise DataError(f"{folder / TESTED} does not hold the tasks of {folder / 'test'}. Build the folder again.")
