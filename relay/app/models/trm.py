"""The tiny recursive model as a plug-in. torch is imported only by what needs it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from relay.app.models.plugin import Cost, Examples, ForeignCommand, Memory
from relay.app.views.modelcard import Published
from relay.core.errors import BadConfig, BadData
from relay.core.workload import Kernels, Measures, Refit, Saved, Workload
from relay.torch.launch import is_follower, launched
from storage.packages import install
from trm import presets, upstream
from trm.config import TrainConfig, needs_fresh_carry, without_defaults
from trm.presets import MEASURES

if TYPE_CHECKING:
    from relay.torch.device import DeviceError
    from trm.workload import TrmWorkload

PROJECT, RUN = "sudoku_pretrain_multiaccount", "sudoku_rotation"
"""The guide's names."""


class Trm:
    """What the application knows of tiny recursive models."""

    model: type[BaseModel] = TrainConfig
    default_task: str = "sudoku4"
    measures: Measures = MEASURES
    published: Published = Published(
        title="a tiny recursive model",
        tags=("tiny-recursive-model", "trm"),
        names="the names of the TRM reference implementation",
        averaged="; the puzzle table is as trained",
    )

    def preset(self, task: str) -> TrainConfig:
        """The preset of that name; raises BadConfig."""
        with _speaking_our_errors():
            return presets.preset(task)

    def defaults(self, task: str) -> Mapping[str, str]:
        """The guide's names; commits and evaluations as often as the settings say for any model."""
        return {"project": PROJECT, "run": RUN}

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> ForeignCommand | Sequence[str]:
        """The reference's command line, where `arch=trm` or `data_paths` says that it is one."""
        with _speaking_our_errors():
            return upstream.translated(overrides, keys, folder)

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        """Steps, commits and evaluations out of epochs; raises BadConfig."""
        with _speaking_our_errors():
            return cast(upstream.ReferenceCommand, command).implied(_train_config(config))

    def target(self, config: BaseModel) -> int:
        """The preset's own length."""
        return presets.target_steps(_train_config(config).task)

    def identity(self, pinned: dict[str, Any]) -> dict[str, str]:
        """The task."""
        return {"task": str(pinned.get("task"))}

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> TrainConfig:
        """A run's configuration with data that is at hand; raises BadData."""
        with _speaking_our_errors():
            return TrainConfig.model_validate({**pinned, "data": _train_config(config).data.model_dump()})

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        """Settings are exchanged as they are; data that may be other data is read for its content's hash."""
        merged = copy.deepcopy(pinned)
        for key, value in changes.items():
            *groups, last = key.split(".")
            reduce(lambda node, group: node.setdefault(group, {}), groups, merged)[last] = value
        if merged.get("lr_min_ratio") == 1:
            merged.pop("total_steps", None)  # as the workload pins it
        if not any(key == "seed" or key.startswith("data.") for key in changes):
            with _speaking_our_errors():
                return without_defaults(TrainConfig.model_validate(merged), merged)
        sources = {key: getattr(_train_config(config).data, key) for key in ("train", "test")}
        unnamed = [key for key in sources if f"data.{key}" not in changes and pinned["data"][key] != sources[key]]
        if unnamed:
            self._check_same(pinned, sources, unnamed, data_root)
        merged["data"] |= sources
        with _speaking_our_errors():
            forked = TrainConfig.model_validate(merged)
        return self.build(forked, "cpu", data_root).config()

    def _check_same(self, pinned: dict[str, Any], sources: dict[str, str], keys: list[str], data_root: Path) -> None:
        """Raises BadConfig (78) if these `sources` are not the data that the run pinned by its content."""
        with _speaking_our_errors():
            parents = TrainConfig.model_validate({**pinned, "data": {**pinned["data"], **sources}})
        found = self.build(parents, "cpu", data_root).config()["data"]
        other = [f"data.{key}={sources[key]}" for key in keys if found[key] != pinned["data"][key]]
        if other:
            raise BadConfig(
                f"The run was not begun with {' '.join(other)}, and a fork under these changes reads its data anew. "
                f"Name the data too: the run's own by where it lies here, or other data that you mean."
            )

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> Refit | None:
        """Weights and moments stay, the carry begins anew: under another batch size, network or data set."""

        def written(checkpoint: Path, out: Path) -> Saved:
            with _speaking_our_errors():
                from trm.refit import refit

                try:
                    return refit(checkpoint, out, TrainConfig.model_validate(pinned), pinned)
                except ValueError as error:
                    raise BadData(
                        f"The checkpoint's weights do not fit these settings: {error}. Another network begins anew, "
                        f"with `run` under another name."
                    ) from error

        return written if needs_fresh_carry(changes) else None

    def with_target(self, config: BaseModel, target: int) -> TrainConfig:
        """The length of the cosine is the target, unless it was set; without a decaying rate it does not matter."""
        found = _train_config(config)
        open_ended = found.lr_min_ratio == 1 or found.total_steps is not None
        return found if open_ended else found.model_copy(update={"total_steps": target})

    def device(self, wanted: str) -> str:
        """'cuda' or 'cpu' as asked and present; raises BadConfig."""
        with _speaking_our_errors():
            from relay.torch.device import DeviceError, choose

            try:
                return choose(wanted)
            except DeviceError as error:
                raise BadConfig(f"{error} {_other_device(error)}") from error

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        """A warning if a large task would run on a CPU."""
        task = _train_config(config).task
        if device != "cpu" or presets.BOX.get(task) == 2:
            return None
        return f"NO GPU: task={task} wants one and would train on the CPU, many times slower; task=sudoku4 needs none."

    def prepare(self, config: BaseModel, data_root: Path, folder: Path | None = None) -> list[str]:
        """Make, read and check all puzzles, and write them as the reference's folder; raises BadConfig or BadData."""
        lines, found = list[str](), _train_config(config)
        with _speaking_our_errors():
            from trm.tasks import described, load_data, write_folder

            data = load_data(found, data_root, lines.append)
            parts = {"train": data.train, "validation": data.valid, "test": data.test}
            lines += [f"{name}: {described(found.task, part)}" for name, part in parts.items() if part is not None]
            return lines + (write_folder(found.task, data, folder) if folder else [])

    def cost(self, config: BaseModel) -> Cost:
        """By the sizes of the task's puzzles."""
        with _speaking_our_errors():
            from trm.cost import step_flops
            from trm.tasks import sizes_of

            found = _train_config(config)
            return Cost(step_flops(found, sizes_of(found.task)))

    def memory(self, config: BaseModel, device: str) -> Memory:
        """As predicted before a step is chosen: by Triton's kernels on a GPU, by autograd on a CPU."""
        with _speaking_our_errors():
            from trm.cost import need
            from trm.tasks import sizes_of

            found = _train_config(config)
            needed = need(found, sizes_of(found.task), "fused" if device.startswith("cuda") else "eager")
            return Memory(whole=needed.session(found.batch_size), least=needed.session(1))

    def build(self, config: BaseModel, device: str, data_root: Path) -> Workload:
        """A TrmWorkload with its data read; raises BadConfig or BadData."""
        with _speaking_our_errors():
            from trm.workload import TrmWorkload

            return cast(Workload, TrmWorkload(_train_config(config), data_root, device))

    def remarks(self, workload: Workload) -> Sequence[str]:
        """How the batch is split or shared, and what an old card cannot do."""
        return _trm(workload).remarks

    def timings(self, workload: Workload) -> Mapping[str, float]:
        """Compiling kernels and capturing the graph."""
        return _trm(workload).timings

    def kernels(self, workload: Workload) -> Kernels | None:
        """Triton's, on a GPU."""
        return _trm(workload).kernels()

    def rows(self, workload: Workload, split: str) -> int:
        """Puzzles of a split."""
        found = _trm(workload).data.split(split)
        return found.size if found else 0

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> Examples:
        """Step by step, decoded; raises BadData."""
        with _speaking_our_errors():
            from relay.app.models.puzzletext import SolvedPuzzles

            found = _trm(workload).examples(split, rows, raw)
            return SolvedPuzzles(found.weights, found.puzzles)

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> list[str]:
        """Weights under the reference's names: safetensors, or the reference's own file (step_N); raises BadData."""
        with _speaking_our_errors():
            from trm.interop import export_folder, export_step

            ema, compiled = not raw, form == "reference"
            as_files = export_folder if form == "safetensors" else partial(export_step, compiled=compiled)
            return [str(path) for path in as_files(checkpoint, out, config, ema=ema)]

    def start_from(self, workload: Workload, weights: Path) -> Sequence[str]:
        """A safetensors file or the reference's step_N; raises BadData."""
        with _speaking_our_errors():
            return _trm(workload).start_from(weights)


def _trm(workload: Workload) -> TrmWorkload:
    from trm.workload import TrmWorkload

    assert isinstance(workload, TrmWorkload)
    return workload


def _train_config(config: BaseModel) -> TrainConfig:
    assert isinstance(config, TrainConfig)
    return config


def _other_device(error: DeviceError) -> str:
    """What to choose where a device cannot be used."""
    if error.why == "absent":
        return "Use device=auto or cpu."
    if error.why == "unbuilt":
        return (
            f"Choose another GPU (on Kaggle: T4 x2 instead of P100), install a torch whose list has "
            f"{error.capability}, or set device=cpu, which is enough for task=sudoku4."
        )
    return (
        "See nvidia-smi whether another process fills it, restart the machine, choose another GPU, or set device=cpu."
    )


@contextmanager
def _speaking_our_errors() -> Iterator[None]:
    """What trm refuses is a person's to correct: a wish that cannot be (78), or data that cannot be used (65)."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise BadConfig(f"{missing}. Training needs more packages: `{install('train')}`.") from missing
    except presets.TaskError as error:
        raise BadConfig(str(error)) from error
    except ValueError as error:
        raise BadData(str(error)) from error


@contextmanager
def leading() -> Iterator[bool]:
    """Whether this process has the session: under torchrun the first has it, and the others follow it to its end."""
    with ExitStack() as at_the_end:
        if launched() > 1:
            from trm.together import dismiss, follow

            if is_follower():
                follow()
                yield False
                return
            at_the_end.callback(dismiss)  # not atexit's: what a library does there may be cut short
        yield True
