"""The tiny recursive model as a plug-in. torch is imported only where it is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from relay.app.messages.advice import command
from relay.app.models import shared
from relay.app.models.plugin import (
    PROJECT,
    Cost,
    Examples,
    Fetching,
    ForeignCommand,
    History,
    Memory,
    OnCard,
    Statement,
)
from relay.app.views.modelcard import Published
from relay.app.views.sessionstart import About, Forecast
from relay.core.errors import BadConfig, BadData
from relay.core.runs.sources import Source
from relay.core.settings.config import Shorthands, flat
from relay.core.settings.pinned import without_defaults
from relay.core.workload import Measures, Refit, Saved, Workload
from trm import presets, upstream
from trm.config import GENERATED, HUB, KEPT, LIST, LOCAL, TrainConfig, needs_fresh_carry
from trm.presets import MEASURES

if TYPE_CHECKING:
    from trm.workload import TrmWorkload

RUN = "sudoku_rotation"
"""The guide's name."""


class Trm(shared.TorchPlugin):
    """The tiny recursive model for the application."""

    model: type[BaseModel] = TrainConfig
    default_task: str = "sudoku4"
    measures: Measures = MEASURES
    content: tuple[str, ...] = ("data.train", "data.test")
    carried: Mapping[str, str] = MappingProxyType({})
    local: tuple[str, ...] = tuple(f"data.{name}" for name in LOCAL)
    shorthands: Shorthands = MappingProxyType({})
    notes: Mapping[str, str] = MappingProxyType(
        {
            "task": "another task is another data set and seldom fits",
            "seed": "of data of one's own it draws other rows: then *all but the carry*, as with other data",
            "data.train": "pinned by content: another path to the same rows is no change",
            "data.test": "pinned by content",
            "total_steps": "pinned only while `lr_min_ratio` is below 1: a new run's target; "
            "a later target does not change it",
        }
    )
    words: Mapping[str, Sequence[str]] = MappingProxyType(
        {"task": tuple(presets.PRESETS), **dict.fromkeys(content, (GENERATED, HUB))}
    )
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
        """The guide's names; commits and evaluations use the settings' defaults, large ones only the clock's."""
        by_time = {"checkpoint.every_minutes": "15", "checkpoint.every_steps": "100000"}
        return {"project": PROJECT, "run": RUN} | (by_time if task in presets.LARGE else {})

    def translated(self, overrides: Sequence[str], keys: Sequence[str], folder: Path) -> ForeignCommand | Sequence[str]:
        """The reference's command line, recognized by `arch=trm` or `data_paths`."""
        with _speaking_our_errors():
            return upstream.translated(overrides, keys, folder)

    def implied(self, command: ForeignCommand, config: BaseModel) -> Mapping[str, str]:
        """Steps, commits and evaluations from epochs; raises BadConfig."""
        with _speaking_our_errors():
            return cast(upstream.ReferenceCommand, command).implied(_train_config(config))

    def target(self, config: BaseModel) -> int:
        """The preset's length."""
        return presets.target_steps(_train_config(config).task)

    def base(self, pinned: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
        """The pinned settings; data as found here, or generated. What leads to data is that of the task's preset."""
        kept = {key: value for key, value in flat(pinned) if key not in self.content or value == GENERATED}
        preset = presets.PRESETS.get(str(pinned.get("task")))
        usual = flat(preset.model_dump(mode="json")) if preset else ()
        return {key: value for key, value in usual if key in self.local} | kept | dict(found)

    def sources(self, config: BaseModel, workload: Workload) -> Mapping[str, Source]:
        """Of training and test puzzles; a file's rows are counted and its bytes hashed."""
        with _speaking_our_errors():
            from trm.sources import sources

            return sources(_train_config(config), _trm(workload).data)

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> TrainConfig:
        """A run's configuration with the data on this machine; raises BadData."""
        kept = {key: value for key, value in pinned["data"].items() if key in KEPT}
        with _speaking_our_errors():
            return TrainConfig.model_validate({**pinned, "data": _train_config(config).data.model_dump() | kept})

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        """Replaces settings; data that may differ is read to get its hash."""
        merged = shared.changed(pinned, changes)
        if merged.get("lr_min_ratio") == 1:
            merged.pop("total_steps", None)  # the workload pins it without
        if not any(key == "seed" or key.startswith("data.") for key in changes):
            with _speaking_our_errors():
                return without_defaults(TrainConfig.model_validate(merged), merged)
        mine = _train_config(config).data
        sources = {key: getattr(mine, key) for key in ("train", "test")}
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
                f"The run did not start with {' '.join(other)}, and a fork under these changes reads its data again. "
                f"Name the data too: the path of the run's own data on this machine, or other data."
            )

    def refit(self, changes: Mapping[str, Any], pinned: dict[str, Any]) -> Refit | None:
        """Weights and moments stay, the carry is new: for another batch size, network or data set."""

        def written(checkpoint: Path, out: Path) -> Saved:
            with _speaking_our_errors():
                from trm.refit import refit

                try:
                    return refit(checkpoint, out, TrainConfig.model_validate(pinned), pinned)
                except ValueError as error:
                    raise BadData(
                        f"The checkpoint's weights do not fit these settings: {error}. Start another network "
                        f"as a new run, under another name."
                    ) from error

        return written if needs_fresh_carry(changes) else None

    def with_target(self, config: BaseModel, target: int) -> TrainConfig:
        """The length of the cosine is the target, unless it was set; it does not matter without a decaying rate."""
        found = _train_config(config)
        open_ended = found.lr_min_ratio == 1 or found.total_steps is not None
        return found if open_ended else found.model_copy(update={"total_steps": target})

    def schedule_end(self, config: BaseModel) -> int | None:
        """The end of a cosine that falls to 0."""
        found = _train_config(config)
        return None if found.lr_min_ratio else found.total_steps

    def processes(self, config: BaseModel, device: str, most: int) -> int:
        """The largest number that divides the batch; XLA's step runs in one process."""
        return 1 if device == "xla" else shared.dividing(_train_config(config).batch_size, most)

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        """A warning if a large task would run on a CPU."""
        return shared.slow_here(_train_config(config).task, device, presets.SMALL)

    def prepare(
        self,
        config: BaseModel,
        data_root: Path,
        folder: Path | None = None,
        variants: int = 0,
        fetching: Fetching | None = None,
    ) -> list[str]:
        """Make, read and check all puzzles, and write them in the reference's layout; raises BadConfig or BadData."""
        lines, found = list[str](), _train_config(config)
        with _speaking_our_errors():
            from relay.torch.files import unseen
            from trm.tasks import lines_about, load_data, write_folder

            data = load_data(found, data_root, lines.append, fetching or unseen)
            lines += lines_about(found.task, data)
            return lines + (write_folder(found.task, data, folder, variants, found.seed) if folder else [])

    def glance(self, config: BaseModel) -> Sequence[str]:
        """Subsets of ARC's task files, or rows of a folder; raises BadConfig or BadData."""
        found = _train_config(config)
        if not found.data.source and found.data.train == GENERATED:
            return []
        with _speaking_our_errors():
            from trm.tasks import glance

            return glance(found)

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        """The task and the mixer; parameters and rows are those of the workload."""
        found = _train_config(config)
        model = f"task {found.task}, {'MLP mixer' if found.arch.mlp_t else 'attention'} {found.arch.hidden_size} wide"
        named = found.data.source if found.task in presets.ARC else ""
        source = Path(named or found.data.train).name
        if source == GENERATED and found.task in presets.LARGE:
            source = ""  # its files are not named here
        if workload is None:
            rows = found.data.train_rows if source == GENERATED else None
            return About(model, found.batch_size, source, rows=rows)
        live = _trm(workload)
        train = live.data.train
        lacking = 0 if found.task in presets.ARC else max(0, found.data.train_rows - train.visits)
        return About(model, found.batch_size, source, live.parameters, train.size, lacking, live.path)

    def cost(self, config: BaseModel) -> Cost:
        """From the sizes of the task's puzzles."""
        with _speaking_our_errors():
            from trm.cost import parameter_count, step_flops
            from trm.tasks import sizes_of

            found = _train_config(config)
            sizes = sizes_of(found)
            return Cost(step_flops(found, sizes), parameter_count(found.arch, sizes))

    def memory(self, config: BaseModel, device: str) -> Memory:
        """As predicted before a step is chosen: with Triton's kernels on a GPU, with autograd on a CPU."""
        with _speaking_our_errors():
            from trm.cost import need
            from trm.tasks import sizes_of

            found = _train_config(config)
            sizes = sizes_of(found)
            on_gpu = device.startswith("cuda")
            needed = need(found, sizes, "fused") if on_gpu else need(found, sizes, "eager", kind="cpu")
            return Memory(whole=needed.session(found.batch_size), least=needed.session(1))

    def on_card(self, config: BaseModel, capability: tuple[int, int]) -> OnCard:
        """The step of a long session, with our kernels where they run."""
        with _speaking_our_errors():
            from trm.cards import usual
            from trm.choosing import METHODS
            from trm.cost import need
            from trm.tasks import sizes_of

            found = _train_config(config)
            how = usual(capability, found.arch.forward_dtype)
            wide = capability < (8, 0) and found.arch.forward_dtype == "bfloat16"
            needed = need(found, sizes_of(found), METHODS[how], wide)
            return OnCard(how, needed.session)

    def forecast(
        self,
        config: BaseModel,
        device: str,
        steps: int | None,
        workload: Workload | None = None,
        processes: int = 1,
    ) -> Forecast | None:
        """By the table of cards; None on XLA. Raises BadConfig."""
        if device == "xla":
            return None
        with _speaking_our_errors():
            from trm.choosing import choose
            from trm.tasks import sizes_of

            found = _train_config(config)
            count = presets.target_steps(found.task) if steps is None else steps
            live = None if workload is None else _trm(workload).choice
            choice = live or choose(device, found, sizes_of(found), count, processes)
            known = choice.expected
            return Forecast(
                choice.path,
                choice.reason,
                known.ms if known else None,
                known.basis if known else "",
                known.measured if known else False,
                choice.warning,
            )

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: Fetching | None = None, steps: int = 0
    ) -> Workload:
        """A TrmWorkload with its data read; raises BadConfig or BadData."""
        with _speaking_our_errors():
            from trm.workload import TrmWorkload

            made = TrmWorkload(_train_config(config), data_root, device, fetching=fetching, steps=steps)
            return cast(Workload, made)

    def rows(self, workload: Workload, split: str) -> int:
        """Puzzles of a split; raises BadConfig if the loaded puzzle table has no rows for them."""
        if _trm(workload).foreign_table:
            raise BadConfig(_trm(workload).foreign_table)
        found = _trm(workload).data.split(split)
        return found.size if found else 0

    def statement(self, workload: Workload, history: History) -> Statement | None:
        """Provenance of a score on ARC."""
        found = _trm(workload).provenance()
        if found is None:
            return None
        from trm.data.arc.provenance import lines

        return Statement(found, lines(found), {"arc": _trm(workload).about_votes()})

    def publish(self, workload: Workload, folder: Path) -> None:
        """step_N, and on ARC evaluator_ARC_step_N/submission.json, as the reference writes them; raises BadConfig."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadConfig(f"checkpoint_path={folder} cannot be written: {error.strerror}.") from error
        _trm(workload).published = folder

    def answers(self, workload: Workload) -> bytes | None:
        """submission.json of ARC's test pairs; raises BadData if only some rows were evaluated."""
        with _speaking_our_errors():
            return _trm(workload).submission()

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> Examples:
        """Step by step, decoded; raises BadData."""
        with _speaking_our_errors():
            from relay.app.models.gridtasks import SolvedPairs
            from relay.app.models.puzzletext import SolvedPuzzles
            from trm.data.arc.shown import ShownPairs

            found = _trm(workload).examples(split, rows, raw)
            if isinstance(found, ShownPairs):
                return SolvedPairs(found.weights, found.pairs)
            return SolvedPuzzles(found.weights, found.puzzles)

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> list[str]:
        """Weights under the reference's names: safetensors, or the reference's format (step_N); raises BadData."""
        with _speaking_our_errors():
            from trm.interop import export_folder, export_step

            ema, compiled = not raw, form == "reference"
            as_files = export_folder if form == "safetensors" else partial(export_step, compiled=compiled)
            return [str(path) for path in as_files(checkpoint, out, config, ema=ema)]

    def companions(
        self, pinned: dict[str, Any], config: Callable[[], BaseModel], data_root: Path
    ) -> Mapping[str, Callable[[], bytes]]:
        """ARC's list of identifiers: the names of the puzzle table's rows."""

        def listed() -> bytes:
            run = self.pinned(pinned, config())
            with _speaking_our_errors():
                from trm.data.arc.source import load

                return load(run, data_root).made.names.text.encode()

        return {LIST: listed} if pinned.get("data", {}).get("identifiers") else {}

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


@contextmanager
def _speaking_our_errors() -> Iterator[None]:
    """As `shared.speaking_our_errors`; a dataset folder that does not exist is answered with its maker."""
    with shared.speaking_our_errors():
        try:
            yield
        except presets.NoFolder as error:
            raise BadData(f"{error} {_maker(error.folder)}") from error


def _maker(folder: Path) -> str:
    """The command that makes a dataset folder, by the reference's way to name one."""
    named, copies, rows = folder.name.lower(), re.search(r"aug-(\d+)", folder.name), re.search(r"(\d+)k\b", folder.name)
    words = ["task=maze"] if "maze" in named else ["task=sudoku", "data.train=hub", "data.test=hub"]
    words += [f"data.train_rows={int(rows[1]) * 1000}"] if rows and rows[1] != "1" else []
    words += ["--folder", str(folder)]
    words += [] if "maze" in named else ["--num-aug", copies[1] if copies else "1000"]
    return f"Check the path, or make the folder: `{command('prepare', None, *words)}`."
