"""What the command line needs of anything that trains, beyond a Workload: presets, data, construction, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from relay.app.views.puzzles import Examples
from relay.core.workload import Kernels, Refit, Workload


class Spoken(Protocol):
    """A command in the spelling of another program that trains the same."""

    @property
    def overrides(self) -> Sequence[str]:
        """In our spelling."""
        ...

    def base(self, task: str) -> BaseModel:
        """That program's defaults, in the place of a preset."""
        ...


class Kind(Protocol):
    """One way to train. `relay/app/cli.py` is trm's; tests pass a toy."""

    model: type[BaseModel]
    """Of the pinned configuration."""
    default_task: str
    """Where nobody names one."""

    def preset(self, task: str) -> BaseModel:
        """A task's configuration; raises BadConfig naming the nearest task."""
        ...

    def spoken(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> Spoken | Sequence[str]:
        """Overrides as another program spells them, or the same ones with single keys renamed.

        keys: of our settings; folder: where relative paths begin. Raises BadConfig or BadData.
        """
        ...

    def implied(self, spoken: Spoken, config: BaseModel) -> Mapping[str, str]:
        """Settings that follow from what was spoken and the resolved configuration; stronger than files. BadConfig."""
        ...

    def target(self, config: BaseModel) -> int:
        """Steps to train if nobody says."""
        ...

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        """The settings that choose the preset of a pinned configuration, e.g. its task."""
        ...

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> BaseModel:
        """What a run pinned, with the data of `config`: for reading its checkpoints. Raises BadData."""
        ...

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        """A pinned configuration with some dotted keys changed, to be pinned by a fork; data as `config` names it.

        Raises BadConfig or BadData.
        """
        ...

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> Refit | None:
        """How a checkpoint's state becomes one of the forked configuration `pinned`, in another folder: with a fresh
        carry. None where it goes on as it is under these changes. The Refit raises BadData if the weights do not fit.
        """
        ...

    def with_target(self, config: BaseModel, target: int) -> BaseModel:
        """The configuration with its length filled in, where the length decides the state (a decaying rate)."""
        ...

    def device(self, wanted: str) -> str:
        """'auto' as 'cuda' where there is one, else 'cpu'; raises BadConfig if the wanted one is absent."""
        ...

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        """A loud line if this device is no match for the task."""
        ...

    def prepare(self, config: BaseModel, data_root: Path, folder: Path | None = None) -> Sequence[str]:
        """Make and check the data, without a GPU; returns lines for people. Raises BadConfig or BadData.

        folder: where to write it in the layout that others read.
        """
        ...

    def build(self, config: BaseModel, device: str, data_root: Path) -> Workload:
        """The workload, not yet started. Raises BadConfig or BadData."""
        ...

    def remarks(self, workload: Workload) -> Sequence[str]:
        """Loud lines about how this device trains: what was split, emulated or is slow. Usually none."""
        ...

    def timings(self, workload: Workload) -> Mapping[str, float]:
        """Seconds that the first step spent on what later ones do not: compile, capture."""
        ...

    def kernels(self, workload: Workload) -> Kernels | None:
        """What it compiles, for the compile cache; None if it compiles nothing here."""
        ...

    def rows(self, workload: Workload, split: str) -> int:
        """Rows in 'valid' or 'test'; 0 if there are none."""
        ...

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> Examples:
        """What the averaged (or raw) weights answer to those rows (from 1), step by step. Raises BadData."""
        ...

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> Sequence[str]:
        """Weights of a checkpoint folder (averaged, or raw) for use elsewhere; returns what was written.

        form: 'safetensors', or one that the kind knows. Raises BadConfig for another one.
        """
        ...

    def start_from(self, workload: Workload, weights: Path) -> Sequence[str]:
        """Start at step 0 with the weights of somebody's file; returns lines for people. Raises BadData."""
        ...
