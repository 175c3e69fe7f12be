"""Trained weights for solving: the trunk, the puzzle table and the list of identifiers that its rows belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from relay.torch.faults import TaskError
from relay.torch.files import readable
from storage.regular import is_there
from storage.wording import counted
from trm.act import TRM
from trm.config import LIST, Arch, TrainConfig
from trm.data.arc import folder
from trm.data.arc.variants import VOCABULARY, Names
from trm.interop import ARCHITECTURE, CANVAS, IDENTIFIERS, MEAN, PUZZLES, description, is_step, load_named, read_weights
from trm.model import Inner, Sizes
from trm.presets import ARC

if TYPE_CHECKING:
    from trm.workload import TrmWorkload

FILE = "model.safetensors"


@dataclass(frozen=True)
class Trained:
    """Weights on the CPU, averaged if they were trained so."""

    arch: Arch
    side: int
    """Cells in a line of the canvas."""
    trunk: Mapping[str, Tensor]
    """Everything but the table, by plain name (`inner.*`)."""
    table: Tensor
    """float32 (rows, width). Row 0 belongs to no puzzle, or is the mean of a longer table."""
    names: Names | None
    """What the rows from 1 on belong to; None if it is not known, which makes every task an unknown one."""
    mean: Tensor
    """float32 (width,): of all rows of the table that was trained."""
    source: Mapping[str, Any]
    """Where they come from, for the report."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the network, the list, and all values."""
        listed = None if self.names is None else self.names.hash
        digest = hashlib.sha256(json.dumps([self.arch.model_dump(mode="json"), self.side, listed]).encode())
        for name, value in (*sorted(self.trunk.items()), (PUZZLES, self.table), ("mean", self.mean)):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def network(self, table: Tensor, device: torch.device) -> Inner:
        """The network with another table. Raises ValueError if the trunk does not fit."""
        model = TRM(self.arch, Sizes(self.side**2, VOCABULARY, len(table)))
        load_named(model, {**self.trunk, PUZZLES: table})
        return model.inner.to(device).eval()

    def reduced(self, tasks: Collection[str]) -> Trained:
        """With the rows of these tasks only; the mean takes row 0."""
        kept = np.zeros(0, np.int64)
        if self.names is not None:
            wanted = [index for index, name in enumerate(self.names.tasks) if name in tasks]
            kept = np.flatnonzero(np.isin(self.names.task, wanted))
        names = None if self.names is None else _chosen(self.names, kept)
        table = torch.cat((self.mean[None], self.table[torch.from_numpy(kept + 1)]))
        return Trained(self.arch, self.side, self.trunk, table, names, self.mean, self.source)

    def write(self, place: Path) -> list[Path]:
        """`model.safetensors` and `identifiers.json` of a reduced form."""
        listed = (self.names or Names((), *_empty())).text
        about = {
            IDENTIFIERS: f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}",
            ARCHITECTURE: self.arch.model_dump(mode="json"),
            CANVAS: self.side,
            MEAN: True,
        }
        tensors = {f"model.{name}": value.contiguous() for name, value in {**self.trunk, PUZZLES: self.table}.items()}
        save_file(tensors, place / FILE, {name: json.dumps(value) for name, value in about.items()})
        (place / FILE).chmod(0o644)  # the library's own files are private
        (place / LIST).write_text(listed)
        return [place / FILE, place / LIST]


def _empty() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros((0, 10), np.uint8)


def _chosen(names: Names, rows: np.ndarray) -> Names:
    tasks, task = np.unique(names.task[rows], return_inverse=True)
    own = tuple(names.tasks[index] for index in tasks.tolist())
    return Names(own, task.astype(np.int32), names.turn[rows], names.colors[rows])


def of_workload(workload: TrmWorkload, names: Names, source: Mapping[str, Any]) -> Trained:
    """A loaded checkpoint of a run on ARC, with its averaged weights."""
    state = workload.state
    every = {**state.model.state_dict(), **state.eval_weights()}
    tensors = {name: value.detach().cpu().clone() for name, value in every.items()}
    table = tensors.pop(PUZZLES)
    side = round(state.sizes.seq_len**0.5)
    return Trained(state.config.arch, side, tensors, table, names, table[1:].mean(0), source)


def of_file(
    path: Path, given: Mapping[str, Any], config: TrainConfig, load_names: Callable[[], Names] | None
) -> Trained:
    """A safetensors export, a bundle's folder, or the reference's step_N with its identifiers.json next to it.

    given: settings of the user by dotted key, which must not contradict the file; config: all settings, which describe
    a file that does not describe itself. load_names: of these settings' data, for a file without a list next to it.
    Raises TaskError for a list, table or network that is not the file's, ValueError for a damaged file.
    """
    with readable(path):
        path = path / FILE if path.is_dir() else path
        if not is_there(path):
            raise ValueError(f"{path} does not exist. --weights names a file of weights, or a folder with {FILE}")
    about = description(path)
    arch, side = _network(path, about, given, config)
    listed = path.with_name(LIST)
    with readable(listed):
        has_list = is_there(listed)
    names = folder.read_names(listed) if has_list else load_names() if load_names else None
    _check_list(path, about, names)
    ours = TRM(arch, Sizes(side * side, VOCABULARY, 1)).state_dict()
    tensors = read_weights(path, ours)
    table = tensors.pop(PUZZLES)
    if names is not None and len(names) != len(table):
        raise TaskError(
            f"The table of {path.name} has {counted(len(table), 'row')} and its list of identifiers "
            f"{counted(len(names), 'name')}. They are not of one training: "
            f"put the identifiers.json of these weights next to them."
        )
    mean = table[0] if about.get(MEAN) else table[1:].mean(0)
    source = {"file": path.name, "kind": "step_N" if is_step(path) else "safetensors"}
    return Trained(arch, side, tensors, table, names, mean, source)


def _network(path: Path, about: Mapping[str, Any], given: Mapping[str, Any], config: TrainConfig) -> tuple[Arch, int]:
    """As the file says, or the settings for one that says nothing."""
    if ARCHITECTURE not in about:
        if config.task not in ARC:
            raise TaskError(
                f"{path.name} does not describe its network. Give its settings, for example task=arc2 for weights of "
                f"ARC-AGI-2's published settings."
            )
        return config.arch, config.data.canvas
    arch, side = Arch.model_validate(about[ARCHITECTURE]), int(about.get(CANVAS, config.data.canvas))
    theirs = {f"arch.{key}": value for key, value in arch.model_dump(mode="json").items()} | {"data.canvas": side}
    mine = {f"arch.{key}": value for key, value in config.arch.model_dump(mode="json").items()}
    mine |= {"data.canvas": config.data.canvas}
    wrong = [key for key in theirs if key in given and mine[key] != theirs[key]]
    if wrong:
        listed = ", ".join(f"{key}={theirs[key]}, not {mine[key]}" for key in wrong)
        raise TaskError(f"{path.name} was trained with {listed}. Leave these settings out: the file has its own.")
    return arch, side


def _check_list(path: Path, about: Mapping[str, Any], names: Names | None) -> None:
    theirs, ours = about.get(IDENTIFIERS), None if names is None else f"sha256:{names.hash}"
    if None not in (theirs, ours) and theirs != ours:
        raise TaskError(
            f"{path.name} was trained with the list of identifiers {theirs}, the list given here is {ours}. Put the "
            f"identifiers.json of its training next to it, or name the data that it was trained with."
        )
