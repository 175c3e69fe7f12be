"""Reads and writes dataset folders in the reference's layout (reference/trm.md 9).

FOLDER/{train,test}/dataset.json and all__{inputs,labels,puzzle_identifiers,puzzle_indices,group_indices}.npy. A group
is one puzzle with its augmented copies. Arrays are memory-mapped and never unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from numpy.lib.format import open_memmap
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from relay.torch.faults import DataError
from relay.torch.files import whole_path
from storage.regular import regular
from storage.wording import counted
from trm.config import LIST
from trm.data.lfs import refuse_pointer
from trm.presets import NoFolder

Part = Literal["train", "test"]
ABOUT = "dataset.json"
INDICES = ("puzzle_identifiers", "puzzle_indices", "group_indices")
_MAX_ABOUT = 1 << 16
_CHUNK = 20_000
Count = Annotated[int, Field(ge=0, lt=2**31)]


class About(BaseModel):
    """dataset.json."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    pad_id: Literal[0]
    ignore_label_id: Literal[0] | None
    blank_identifier_id: Literal[0]
    vocab_size: Annotated[int, Field(gt=1, le=256)]
    seq_len: Annotated[int, Field(gt=0, le=100_000)]
    num_puzzle_identifiers: Count
    total_groups: Annotated[int, Field(gt=0, lt=2**31)]
    mean_puzzle_examples: Annotated[float, Field(gt=0)]
    total_puzzles: Count
    """The reference's builders of Sudoku and mazes write the number of groups here."""
    sets: Annotated[list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]], Field(min_length=1)]


class Puzzles(NamedTuple):
    """Tokens, uint8 (N, seq_len), and int64 (groups + 1,): group g holds rows groups[g] .. groups[g + 1] - 1."""

    inputs: Tensor
    labels: Tensor
    groups: Tensor


def is_folder(source: str) -> bool:
    """Whether a source of data is a folder, not a file or a keyword."""
    return whole_path(source).is_dir()


def read_about(folder: Path, part: Part) -> About:
    """dataset.json of one part. Raises DataError if it is missing or not valid, NoFolder without the folder."""
    path = folder / part / ABOUT
    refuse_pointer(path)
    try:
        with regular(path).open("rb") as file:
            text = file.read(_MAX_ABOUT + 1)
        if len(text) > _MAX_ABOUT:
            raise DataError(f"{path} has more than {_MAX_ABOUT} bytes. Is this the right folder?")
        return About.model_validate_json(text)
    except OSError as error:
        if not folder.exists():
            raise NoFolder(folder, f"{path} cannot be read: {error.strerror or error}.") from None
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. A dataset folder holds train/{ABOUT}, test/{ABOUT} and "
            f"arrays. Name the folder above train and test."
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise DataError(f"{path} is not valid: {where}: {first['msg']}. Build the folder again.") from None


def read_folder(folder: Path, part: Part) -> tuple[About, Puzzles]:
    """One part, every array checked. Raises DataError naming the file and its fault.

    Only puzzles with one example and one shared identifier: ARC's folders hold others.
    """
    about = read_about(folder, part)
    if about.sets != ["all"]:
        raise DataError(f"{folder / part} holds the sets {', '.join(about.sets)}; only a single set, all, can be read.")
    identifiers, puzzles, groups = (_indices(_file(folder, part, name)) for name in INDICES)
    inputs, labels = (_tokens(_file(folder, part, name), about) for name in ("inputs", "labels"))
    _check_indices(folder / part, about, (identifiers, puzzles, groups), len(inputs))
    if len(inputs) != len(labels):
        found = f"{counted(len(inputs), 'input')} and {counted(len(labels), 'label')}"
        raise DataError(f"{folder / part} holds {found}. Build it again.")
    if about.ignore_label_id is None and not bool((labels > 0).all()):
        raise DataError(f"{folder / part} scores padding (ignore_label_id is null), which is not supported.")
    return about, Puzzles(inputs, labels, groups)


def _file(folder: Path, part: str, name: str) -> Path:
    return folder / part / f"all__{name}.npy"


def array_of(path: Path, dimensions: int) -> np.ndarray:
    """A memory-mapped array of integers. `open_memmap` cannot unpickle: it refuses objects."""
    refuse_pointer(path)
    try:
        array: np.ndarray = open_memmap(regular(path), mode="r")
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{path} cannot be read: {what:.200}. Copy or build it again.") from None
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise DataError(f"{path} is {array.dtype} {array.shape}; {dimensions}-dimensional integers belong there.")
    return array


def _indices(path: Path) -> Tensor:
    return torch.from_numpy(np.array(array_of(path, 1), dtype=np.int64))


def _tokens(path: Path, about: About) -> Tensor:
    """uint8 (N, seq_len), every value below the vocabulary's size; 20,000 rows at a time."""
    array = array_of(path, 2)
    if array.shape[1] != about.seq_len or not len(array):
        raise DataError(f"{path} is {array.shape}, but {ABOUT} has rows of {about.seq_len}. Build it again.")
    tokens = torch.empty(array.shape, dtype=torch.uint8)
    for start, rows in _chunks(array):
        if rows.min() < 0 or rows.max() >= about.vocab_size:
            raise DataError(f"{path} holds tokens outside 0 to {about.vocab_size - 1} from row {start} on.")
        tokens[start : start + len(rows)] = torch.from_numpy(rows.astype(np.uint8))
    return tokens


def _chunks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(array), _CHUNK):
        yield start, np.asarray(array[start : start + _CHUNK])


def _check_indices(place: Path, about: About, indices: tuple[Tensor, Tensor, Tensor], rows: int) -> None:
    identifiers, puzzles, groups = indices
    if about.num_puzzle_identifiers != 1 or bool(identifiers.any()):
        raise DataError(
            f"{place} gives its puzzles {counted(about.num_puzzle_identifiers, 'identifier')}, as ARC's folders do: "
            f"set task=arc1 or arc2. Puzzles of Sudoku and mazes share identifier 0."
        )
    count = len(puzzles) - 1
    if len(identifiers) != count or puzzles[-1:].tolist() != [rows]:
        raise DataError(
            f"{place}: puzzle_indices do not fit {counted(rows, 'row')} and {counted(len(identifiers), 'identifier')}."
        )
    if not torch.equal(puzzles, torch.arange(count + 1)):
        raise DataError(f"{place} has puzzles with several examples, as ARC's folders do: set task=arc1 or arc2.")
    ends = (groups[:1].tolist(), groups[-1:].tolist())
    if len(groups) < 2 or ends != ([0], [count]) or not bool((groups.diff() > 0).all()):
        raise DataError(f"{place}: group_indices must rise from 0 to the number of puzzles, {count}.")
    if about.total_groups != len(groups) - 1:
        raise DataError(f"{place}: {ABOUT} has {about.total_groups} groups, the arrays {len(groups) - 1}.")


def write_part(
    folder: Path, part: Part, inputs: Tensor, labels: Tensor, vocab_size: int, groups: Tensor | None = None
) -> About:
    """Write one part, each row a separate puzzle, and read it back. Raises DataError.

    inputs, labels: (N, seq_len) tokens, 0 padding. groups: as in Puzzles; None if each puzzle is a group.
    """
    count = len(inputs)
    every = np.arange(count + 1, dtype=np.int32)
    of_groups = every if groups is None else groups.cpu().numpy().astype(np.int32)
    about = _about(inputs, vocab_size, len(of_groups) - 1)
    arrays = {
        "inputs": inputs.cpu().numpy(),
        "labels": labels.cpu().numpy(),
        "puzzle_identifiers": np.zeros(count, dtype=np.int32),
        "puzzle_indices": every,
        "group_indices": of_groups,
    }
    try:
        (folder / part).mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(_file(folder, part, name), array, allow_pickle=False)
        (folder / LIST).write_text(json.dumps(["<blank>"]))
        (folder / part / ABOUT).write_text(about.model_dump_json())
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}. Choose another folder.") from error
    found = read_folder(folder, part)[1]
    same_groups = torch.equal(found.groups, torch.from_numpy(of_groups.astype(np.int64)))
    if not (same_groups and torch.equal(found.inputs, inputs.cpu()) and torch.equal(found.labels, labels.cpu())):
        raise DataError(f"{folder / part} reads back different from what was written. Check the disk.")
    return about


def _about(inputs: Tensor, vocab_size: int, groups: int) -> About:
    """The description of puzzles in so many groups."""
    seq_len = inputs.shape[1]
    return About(
        pad_id=0,
        ignore_label_id=0,
        blank_identifier_id=0,
        vocab_size=vocab_size,
        seq_len=seq_len,
        num_puzzle_identifiers=1,
        total_groups=groups,
        mean_puzzle_examples=1.0,
        total_puzzles=groups,
        sets=["all"],
    )
