"""The plug-in interface of a model, beyond its Workload: names, presets, data, construction, examples, export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from relay.app.views.modelcard import Published
from relay.app.views.sessionstart import About, Forecast
from relay.core.runs.sources import Source
from relay.core.settings.config import Shorthands
from relay.core.workload import Kernels, Measures, Refit, Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

    from relay.app.plots.style import Palette


@dataclass(frozen=True)
class Cost:
    """The arithmetic of a training step, and the size of the network."""

    flops: float
    """Floating-point operations: 2 for a multiply-add, backward twice the forward, no recomputation."""
    parameters: int | None = None
    """Trained numbers; None if they are not known without the data."""


@dataclass(frozen=True)
class Memory:
    """Predicted device memory of a session, bytes."""

    whole: int
    """With the batch computed at once."""
    least: int
    """With the batch split into single rows."""


@dataclass(frozen=True)
class OnCard:
    """How a GPU that is not here would compute the steps of a configuration."""

    step: str
    """Kind of step, as relay/app/data/rates.yaml names it."""
    session: Callable[[int], int]
    """Predicted device memory of a session that computes so many rows at once, bytes."""


PROJECT = "sudoku_pretrain_multiaccount"
"""The guide's name of a project, which runs of every model have if none is given."""
Fetching = Callable[[str, int], Callable[[int], object]]
"""Called with a download's name and bytes; returns a function that counts bytes as they arrive."""
History = Callable[[], Sequence[Mapping[str, float]]]
"""Reads the metrics of a run's training, oldest first; a file of weights has none."""


class Examples(Protocol):
    """A model's answers to some rows, ready to show."""

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

    def figure(self, title: str, colors: Palette) -> Figure:
        """A picture; to be drawn inside `paper.drawing`."""
        ...


@dataclass(frozen=True)
class Finding:
    """An experiment of a study: its settings and its results."""

    name: str
    config: BaseModel
    flops: float
    """Of one run."""
    n: int
    """Runs."""
    metrics: Mapping[str, float]
    """Means over the runs, by stored name."""
    spread: float
    """Half of the 95 % interval of the study's usual metric; 0 for one run."""


@dataclass(frozen=True)
class Statement:
    """Origin of the metrics of an evaluation."""

    document: Mapping[str, Any]
    """Plain JSON values."""
    lines: Sequence[str]
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of the command's document, by name."""


class ForeignCommand(Protocol):
    """A command in the spelling of another program that trains the same model."""

    @property
    def overrides(self) -> Sequence[str]:
        """In our spelling."""
        ...

    def base(self, task: str) -> BaseModel:
        """That program's defaults, in place of a preset."""
        ...


class Models(Protocol):
    """All models of the program."""

    def of_task(self, task: str) -> TaskPlugin:
        """The model of a task; for an unknown one, the model with the nearest name."""
        ...

    def tasks(self) -> Sequence[str]:
        """Names of all models' tasks."""
        ...

    def settings(self) -> Sequence[str]:
        """Dotted keys of the settings of all models. Loads them."""
        ...

    def phases(self) -> Mapping[str, str]:
        """Tasks by the names that the guide to cloud GPUs has for them."""
        ...


class TaskPlugin(Protocol):
    """A model as the application knows it; no other part of the application names the model. Tests pass a toy."""

    model: type[BaseModel]
    """Type of the pinned configuration."""
    default_task: str
    """The task if none is given."""
    local: tuple[str, ...]
    """Settings that only lead to data on a machine: no run pins them, and each session may have its own."""
    words: Mapping[str, Sequence[str]]
    """Values that Tab offers for settings that are plain text: the tasks, and names of data that are no paths."""
    published: Published
    content: tuple[str, ...]
    """Settings that name data, which a run may pin by its content."""
    carried: Mapping[str, str]
    """Settings of `content` whose data each checkpoint holds, with the name of the file there."""
    shorthands: Shorthands
    """Settings that stand for others; no run pins them."""
    notes: Mapping[str, str]
    """Remarks on changes of single settings, for their page."""

    @property
    def measures(self) -> Measures:
        """Its splits, headline and metrics, as in its workloads."""
        ...

    def preset(self, task: str) -> BaseModel:
        """A task's configuration; raises BadConfig naming the nearest task."""
        ...

    def defaults(self, task: str) -> Mapping[str, str]:
        """The relay's settings for a task, by dotted key, as its weakest source: names, commits, evaluation.

        `project` and `run` must be among them.
        """
        ...

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> ForeignCommand | Sequence[str]:
        """Overrides in another program's spelling, or the given ones with single keys renamed.

        keys: of our settings; folder: base of relative paths. Raises BadConfig or BadData.
        """
        ...

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        """Settings that follow from a command and the resolved configuration; they override files. Raises BadConfig."""
        ...

    def target(self, config: BaseModel) -> int:
        """Number of steps to train by default."""
        ...

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        """The settings that choose the preset of a pinned configuration, e.g. its task."""
        ...

    def base(self, pinned: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
        """The settings of a run that exists, by dotted key, for its next session. `found`: a source on this machine for
        each of `content` that has one; the others are left out. Nothing in the result is a path from the store.
        """
        ...

    def sources(self, config: BaseModel, workload: Workload) -> Mapping[str, Source]:
        """Where the data of a workload came from, by the settings in `content`."""
        ...

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> BaseModel:
        """The pinned configuration of a run, with the data of `config`, for reading its checkpoints. Raises BadData."""
        ...

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        """A pinned configuration with some dotted keys changed, which a fork will pin; data as `config` names it.

        Raises BadConfig or BadData.
        """
        ...

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> Refit | None:
        """How to turn a checkpoint's state into one of the forked configuration `pinned`, in another folder, with a
        fresh carry. None if these changes leave the state valid. The Refit raises BadData if the weights do not fit.
        """
        ...

    def with_target(self, config: BaseModel, target: int) -> BaseModel:
        """The configuration with its length filled in, if the length decides the state (a decaying rate)."""
        ...

    def schedule_end(self, config: BaseModel) -> int | None:
        """The step after which all learning rates are 0; None if they never are."""
        ...

    def device(self, wanted: str) -> str:
        """'auto' as 'cuda' with a GPU, otherwise 'cpu'; raises BadConfig if the requested one is absent."""
        ...

    def processes(self, config: BaseModel, device: str, most: int) -> int:
        """The largest number of processes, up to `most`, that can share its steps; 1 if they cannot be shared."""
        ...

    def fingerprint(self, config: BaseModel, device: str) -> Mapping[str, str]:
        """The environment of a session, as its workload reports it. Reads no data. Raises BadConfig."""
        ...

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        """A warning if this device is too slow for the task."""
        ...

    def prepare(
        self,
        config: BaseModel,
        data_root: Path,
        folder: Path | None = None,
        variants: int = 0,
        fetching: Fetching | None = None,
    ) -> Sequence[str]:
        """Make and check the data, without a GPU; returns lines to print. Raises BadConfig or BadData.

        folder: also write the data there, in the layout that other programs read, each training row with so many
        variants. fetching: shows downloads.
        """
        ...

    def glance(self, config: BaseModel) -> Sequence[str]:
        """The data that the settings name on this machine, a line a part, without making or reading all of it.

        Raises BadConfig or BadData if it cannot be trained on.
        """
        ...

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        """What a configuration trains. Without a workload it loads nothing, and leaves out what it then cannot know."""
        ...

    def cost(self, config: BaseModel) -> Cost:
        """Cost of a training step. Reads no data and needs no device."""
        ...

    def memory(self, config: BaseModel, device: str) -> Memory:
        """Memory of a session on 'cpu', 'cuda' or 'cuda:N'. Reads no data and needs no device."""
        ...

    def on_card(self, config: BaseModel, capability: tuple[int, int]) -> OnCard:
        """On a GPU of this compute capability. Reads no data and needs no device."""
        ...

    def forecast(
        self,
        config: BaseModel,
        device: str,
        steps: int | None,
        workload: Workload | None = None,
        processes: int = 1,
    ) -> Forecast | None:
        """How `steps` steps would be computed on a device, or are by a workload; None if the model does not know.

        steps: None for the model's usual number. processes: how many would share each step. Raises BadConfig.
        """
        ...

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: Fetching | None = None, steps: int = 0
    ) -> Workload:
        """The workload, not yet started. Raises BadConfig or BadData.

        fetching: shows downloads of data. None: nothing is downloaded (raises NotFetched), and data that is too short
        to train on may do.
        steps: how many may be trained; many of them repay a long start.
        """
        ...

    def check_memory(self, workload: Workload) -> None:
        """Raises BadConfig, naming what would fit, if its device has too little memory to train."""
        ...

    def remarks(self, workload: Workload) -> Sequence[str]:
        """Warnings about this device: the batch is split, arithmetic is emulated or slow. Usually none."""
        ...

    def timings(self, workload: Workload) -> Mapping[str, float]:
        """Seconds of work that only the first step does: compile, capture."""
        ...

    def kernels(self, workload: Workload) -> Kernels | None:
        """Its kernels, for the compile cache; None if it compiles nothing on this device."""
        ...

    def rows(self, workload: Workload, split: str) -> int:
        """Rows of a split; 0 if there are none. Raises BadConfig if the loaded weights cannot answer any."""
        ...

    def statement(self, workload: Workload, history: History) -> Statement | None:
        """Origin of the last evaluation's metrics; None if they need no explanation."""
        ...

    def publish(self, workload: Workload, folder: Path) -> None:
        """Have a session write its weights and answers there after each evaluation (`relay.core.workload.Publisher`).

        Raises BadConfig if the folder cannot be written, or the model has no such files.
        """
        ...

    def worth(self, findings: Sequence[Finding]) -> Statement | None:
        """What the experiments of a study show beyond the study's table; None if nothing."""
        ...

    def answers(self, workload: Workload) -> bytes | None:
        """The answers of the last evaluation, as the file that a competition takes; None if the model has none."""
        ...

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> Examples:
        """Answers of the averaged (or raw) weights to those rows (from 1), step by step. Raises BadData."""
        ...

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> Sequence[str]:
        """Weights of a checkpoint folder (averaged, or raw) for other programs; returns a line for each file.

        form: 'safetensors', or another form of this model. Raises BadConfig for an unknown one.
        """
        ...

    def companions(
        self, pinned: dict[str, Any], config: Callable[[], BaseModel], data_root: Path
    ) -> Mapping[str, Callable[[], bytes]]:
        """Files, by name, that exported weights need next to them and that come from the run's data; usually none.

        config: returns the run's settings, with its data on this machine. Calling an entry returns the file's content,
        or raises BadConfig or BadData if that data is missing or not the run's.
        """
        ...

    def start_from(self, workload: Workload, weights: Path) -> Sequence[str]:
        """Start at step 0 with the weights of a foreign file; returns lines to print. Raises BadData."""
        ...
