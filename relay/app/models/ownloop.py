"""Runs of a user's own loop as a plug-in: their metric names, and refusals of what only their script can do."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict

from relay.app.models.plugin import Fetching, ForeignCommand, Statement
from relay.app.views.modelcard import Published
from relay.app.views.sessionstart import About, Forecast
from relay.core.runs.ownloop import OwnLoop, measures_of
from relay.core.runs.sources import Source
from relay.core.settings.config import Shorthands
from relay.core.workload import Kernels, Measures, Refit, Workload

PUBLISHED = Published(title="a model", tags=(), names="the script")


class LoopConfig(BaseModel):
    """The settings of a loop are in its script. A configuration file may also hold those of another model."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    task: str = "loop"


@dataclass
class OwnLoopPlugin:
    """See relay/app/models/plugin.py. `pinned_now`: the run's configuration, as far as it is known."""

    pinned_now: Mapping[str, Any] = field(default_factory=dict)
    model: type[BaseModel] = LoopConfig
    default_task: str = "loop"
    content: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    shorthands: Shorthands = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"task": ("loop",)})
    published: Published = PUBLISHED

    measures: Measures = field(init=False)

    def __post_init__(self) -> None:
        self.measures = measures_of(self.pinned_now)

    def preset(self, task: str) -> LoopConfig:
        """There is one."""
        return LoopConfig()

    def defaults(self, task: str) -> Mapping[str, str]:
        """A project for runs that name none."""
        return {"project": "loops", "run": "loop"}

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> Sequence[str]:
        """As they are."""
        return overrides

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def target(self, config: BaseModel) -> NoReturn:
        """The script names it."""
        raise OwnLoop("name its target")

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        """There is one task."""
        return {}

    def base(self, pinned: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
        """The settings are in the script."""
        return {}

    def sources(self, config: BaseModel, workload: Workload) -> Mapping[str, Source]:
        """The data is the script's."""
        return {}

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> LoopConfig:
        """Nothing that a checkpoint depends on."""
        return LoopConfig()

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        """The same configuration: the fork's script must name it."""
        if changes:
            raise OwnLoop("change its settings")
        return dict(pinned)

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> Refit | None:
        """A state stays valid."""
        return None

    def with_target(self, config: BaseModel, target: int) -> BaseModel:
        """The target decides nothing here."""
        return config

    def device(self, wanted: str) -> str:
        """The script chooses its device."""
        return "cpu" if wanted == "auto" else wanted

    def processes(self, config: BaseModel, device: str, most: int) -> int:
        """The script shares its steps by itself."""
        return 1

    def fingerprint(self, config: BaseModel, device: str) -> Mapping[str, str]:
        """Only the script knows."""
        return {}

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        """Unknown."""
        return None

    def glance(self, config: BaseModel) -> Sequence[str]:
        """Only the script knows its data."""
        return ()

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        """The script's own; its batch is unknown."""
        return About("the script's own model", 0, "the script")

    def check_memory(self, workload: Workload) -> None:
        """Unknown."""

    def prepare(
        self,
        config: BaseModel,
        data_root: Path,
        folder: Path | None = None,
        variants: int = 0,
        fetching: Fetching | None = None,
    ) -> NoReturn:
        """The data is the script's."""
        raise OwnLoop("prepare its data")

    def cost(self, config: BaseModel) -> NoReturn:
        """Unknown."""
        raise OwnLoop("estimate its cost")

    def memory(self, config: BaseModel, device: str) -> NoReturn:
        """Unknown."""
        raise OwnLoop("estimate its memory")

    def forecast(
        self, config: BaseModel, device: str, steps: int | None, workload: Workload | None = None
    ) -> Forecast | None:
        """Unknown."""
        return None

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: Fetching | None = None, steps: int = 0
    ) -> NoReturn:
        """The script builds it."""
        raise OwnLoop("train or evaluate it")

    def remarks(self, workload: Workload) -> Sequence[str]:
        """None."""
        return ()

    def timings(self, workload: Workload) -> Mapping[str, float]:
        """Unknown."""
        return {}

    def kernels(self, workload: Workload) -> Kernels | None:
        """Not carried."""
        return None

    def rows(self, workload: Workload, split: str) -> int:
        """Unknown."""
        return 0

    def set_depth(self, workload: Workload, steps: int) -> NoReturn:
        """Unknown."""
        raise OwnLoop("evaluate it with fewer steps")

    def statement(self, workload: Workload) -> Statement | None:
        """None."""
        return None

    def publish(self, workload: Workload, folder: Path) -> NoReturn:
        """The reference's files are of its model."""
        raise OwnLoop("write the files of checkpoint_path")

    def answers(self, workload: Workload) -> bytes | None:
        """None."""
        return None

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> NoReturn:
        """Only the script knows what an answer is."""
        raise OwnLoop("show examples")

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> list[str]:
        """The files of the tracked parts as they are: safetensors."""
        if form != "safetensors":
            raise OwnLoop(f"export the form {form}")
        out.mkdir(parents=True, exist_ok=True)
        files = [path for path in sorted(checkpoint.glob("*.safetensors")) if path.stem not in ("random", "loader")]
        return [str(shutil.copy(path, out)) for path in files]

    def start_from(self, workload: Workload, weights: Path) -> NoReturn:
        """The script loads weights."""
        raise OwnLoop("start from other weights")
