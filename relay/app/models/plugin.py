"""What the application needs of a model beyond its Workload: names, presets, data, construction, examples, export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from relay.app.views.modelcard import Published
from relay.core.workload import Kernels, Measures, Refit, Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

    from relay.app.plots.style import Palette


@dataclass(frozen=True)
class Cost:
    """What a training step takes, by arithmetic alone."""

    flops: float
    """Floating-point operations: 2 for a multiply-add, backward twice the forward, no recomputation."""


@dataclass(frozen=True)
class Memory:
    """Bytes of the device's memory that a session takes, as predicted."""

    whole: int
    """With the batch computed at once."""
    least: int
    """With the batch split into single rows."""


class Examples(Protocol):
    """What a model answers to some rows, and how that is shown."""

    @property
    def weights(self) -> str:
        """'averaged' or 'raw'."""
        ...

    def document(self) -> Mapping[str, Any]:
        """The model's part of relay.examples/1."""
        ...

    def text(self, width: int, utf8: bool) -> Iterator[Text]:
        """Line by line; `width` in columns."""
        ...

    def figure(self, title: str, colours: Palette) -> Figure:
        """A picture; within `paper.drawing`."""
        ...


class ForeignCommand(Protocol):
    """A command in the spelling of another program that trains the same."""

    @property
    def overrides(self) -> Sequence[str]:
        """In our spelling."""
        ...

    def base(self, task: str) -> BaseModel:
        """That program's defaults, in the place of a preset."""
        ...


class TaskPlugin(Protocol):
    """A model as the application knows it: everything that names the model comes from here. Tests pass a toy."""

    model: type[BaseModel]
    """Of the pinned configuration."""
    default_task: str
    """Where nobody names one."""
    measures: Measures
    """Its splits, headline and metrics; those of its workloads."""
    published: Published

    def preset(self, task: str) -> BaseModel:
        """A task's configuration; raises BadConfig naming the nearest task."""
        ...

    def defaults(self, task: str) -> Mapping[str, str]:
        """The relay's settings for a task, by dotted key, where nobody gives them: names, commits, evaluation.

        Every source is stronger, the file too. `project` and `run` must be among them.
        """
        ...

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> ForeignCommand | Sequence[str]:
        """Overrides as another program spells them, or the same ones with single keys renamed.

        keys: of our settings; folder: where relative paths begin. Raises BadConfig or BadData.
        """
        ...

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        """Settings that follow from a command and the resolved configuration; stronger than files. BadConfig."""
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

    def cost(self, config: BaseModel) -> Cost:
        """Of a training step. Reads no data and needs no device."""
        ...

    def memory(self, config: BaseModel, device: str) -> Memory:
        """Of a session on 'cpu', 'cuda' or 'cuda:N'. Reads no data and needs no device."""
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
        """Rows of a split; 0 if there are none."""
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
