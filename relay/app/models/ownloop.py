"""Runs of a user's own loop as a plug-in: their metric names, and refusals of what only their script can do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict

from relay.app.models.plugin import Finding, ForeignCommand, History
from relay.app.views.modelcard import Published
from relay.app.views.sessionstart import About
from relay.core.runs.ownloop import RESERVED, OwnLoop, measures_of
from relay.core.runs.sources import Source
from relay.core.settings.config import Shorthands
from relay.core.workload import Measures, Workload

PUBLISHED = Published(title="a model", tags=(), names="the script")


class LoopConfig(BaseModel):
    """The settings of a loop are in its script. A configuration file may also hold those of another model."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    task: str = "loop"


def _only_the_script(doing: str) -> Callable[..., NoReturn]:
    """A method that is refused (78)."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OwnLoop(doing)

    return refuse


@dataclass
class OwnLoopPlugin:
    """See relay/app/models/plugin.py. `pinned_now`: the run's configuration, as far as it is known."""

    pinned_now: Mapping[str, Any] = field(default_factory=dict)
    model: type[BaseModel] = LoopConfig
    default_task: str = "loop"
    content: tuple[str, ...] = ()
    carried: Mapping[str, str] = field(default_factory=dict)
    local: tuple[str, ...] = ()
    shorthands: Shorthands = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"task": ("loop",)})
    published: Published = PUBLISHED

    measures: Measures = field(init=False)

    def __post_init__(self) -> None:
        self.measures = measures_of(self.pinned_now)

    prepare = _only_the_script("prepare its data")
    cost = _only_the_script("estimate its cost")
    memory = _only_the_script("estimate its memory")
    on_card = _only_the_script("estimate its memory")
    build = _only_the_script("train or evaluate it")
    examples = _only_the_script("show examples")
    start_from = _only_the_script("start from other weights")

    def preset(self, task: str) -> LoopConfig:
        return LoopConfig()

    def defaults(self, task: str) -> Mapping[str, str]:
        return {"project": "loops", "run": "loop"}

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> Sequence[str]:
        return overrides

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        return {}

    def target(self, config: BaseModel) -> int:
        """Unknown before its first session: the script names it."""
        return 0

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        return {}

    def base(self, pinned: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
        return {}

    def sources(self, config: BaseModel, workload: Workload) -> Mapping[str, Source]:
        return {}

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> LoopConfig:
        return LoopConfig()

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        return dict(pinned)

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> None:
        return None

    def with_target(self, config: BaseModel, target: int) -> BaseModel:
        return config

    def schedule_end(self, config: BaseModel) -> None:
        return None

    def device(self, wanted: str) -> str:
        return "cpu" if wanted == "auto" else wanted

    def processes(self, config: BaseModel, device: str, most: int) -> int:
        """The script shares its steps by itself."""
        return 1

    def fingerprint(self, config: BaseModel, device: str) -> Mapping[str, str]:
        return {}

    def slow_here(self, config: BaseModel, device: str) -> None:
        return None

    def glance(self, config: BaseModel) -> Sequence[str]:
        """Only the script knows its data."""
        return ()

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        return About("the script's own model", 0, "the script")

    def check_memory(self, workload: Workload) -> None:
        return

    def forecast(
        self,
        config: BaseModel,
        device: str,
        steps: int | None,
        workload: Workload | None = None,
        processes: int = 1,
    ) -> None:
        return None

    def remarks(self, workload: Workload) -> Sequence[str]:
        return ()

    def timings(self, workload: Workload) -> Mapping[str, float]:
        return {}

    def kernels(self, workload: Workload) -> None:
        return None

    def rows(self, workload: Workload, split: str) -> int:
        return 0

    def worth(self, findings: Sequence[Finding]) -> None:
        return None

    def statement(self, workload: Workload, history: History) -> None:
        return None

    def publish(self, workload: Workload, folder: Path) -> NoReturn:
        """The reference's files are of its model."""
        raise OwnLoop("write the files of checkpoint_path")

    def answers(self, workload: Workload) -> None:
        return None

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> list[str]:
        """The files of the tracked parts as they are: safetensors."""
        if form != "safetensors":
            raise OwnLoop(f"export the form {form}")
        out.mkdir(parents=True, exist_ok=True)
        files = [path for path in sorted(checkpoint.glob("*.safetensors")) if not RESERVED.fullmatch(path.stem)]
        return [str(shutil.copy(path, out)) for path in files]

    def companions(self, pinned: dict[str, Any], config: Callable[[], BaseModel], data_root: Path) -> Mapping[str, Any]:
        return {}
