"""The looped language model as a plug-in. torch is imported only where it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from lm import criteria, presets
from lm.config import BYTES, GENERATED, HUB, SHORTHANDS, TOKENIZER_FILE, LmConfig
from lm.criteria import Criterion
from lm.refinement import Result, judged
from relay.app.messages.wording import counted
from relay.app.models import shared
from relay.app.models.plugin import PROJECT, Cost, Examples, Fetching, Finding, History, Memory, OnCard, Statement
from relay.app.views.modelcard import Published
from relay.app.views.sessionstart import About, Forecast
from relay.core.errors import BadConfig
from relay.core.runs.opening import CONTENT
from relay.core.runs.sources import Source
from relay.core.settings.config import Shorthands, flat
from relay.core.workload import Measures, Workload
from storage.transfer import file_digest

if TYPE_CHECKING:
    from lm.workload import LmWorkload


class Lm(shared.TorchPlugin):
    """The looped language model for the application."""

    model: type[BaseModel] = LmConfig
    default_task: str = "lm_tiny"
    measures: Measures = presets.MEASURES
    content: tuple[str, ...] = ("data.train", "data.valid", "data.test", "data.tokenizer")
    carried: Mapping[str, str] = MappingProxyType({"data.tokenizer": TOKENIZER_FILE})
    local: tuple[str, ...] = ()
    words: Mapping[str, Sequence[str]] = MappingProxyType(
        {"task": tuple(presets.PRESETS), "data.train": (GENERATED, HUB), "data.tokenizer": (BYTES,)}
    )
    shorthands: Shorthands = SHORTHANDS
    notes: Mapping[str, str] = MappingProxyType(
        {
            "task": "another task is another network and seldom fits",
            "data.train": "pinned by content: another path to the same text is no change",
            "data.valid": "pinned by content",
            "data.test": "pinned by content",
            "data.tokenizer": "pinned by content; a fork keeps it",
            "data.vocab_size": "a fork keeps it",
            "refine.steps": "the shapes stay: a fork may take another number",
            "total_steps": "pinned only while `decay_share` is above 0: a new run's target; "
            "a later target does not change it",
        }
    )
    published: Published = Published(
        title="a looped language model",
        tags=("language-model", "refinement"),
        names="names of their own: blocks.N.q, k, v, o, up and down, embed, head",
        network=("arch.", "refine.", "data.tokenizer", "data.vocab_size"),
        averages=False,
    )

    def preset(self, task: str) -> LmConfig:
        """The preset of that name; raises BadConfig."""
        with shared.speaking_our_errors():
            return presets.preset(task)

    def defaults(self, task: str) -> Mapping[str, str]:
        """The project of all models, and a run named after the task; large ones commit by the clock only."""
        by_time = {"checkpoint.every_minutes": "15", "checkpoint.every_steps": "100000"}
        return {"project": PROJECT, "run": task} | (by_time if task in presets.LARGE else {})

    def target(self, config: BaseModel) -> int:
        """The length of a falling rate, if it was set; otherwise the preset's."""
        return self.schedule_end(config) or presets.target_steps(_config(config).task)

    def base(self, pinned: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
        """The pinned settings; text and tokenizer as found here, otherwise generated, never downloaded."""
        usual = {"data.train": GENERATED, "data.valid": "", "data.test": "", "data.tokenizer": GENERATED}
        content = {key for key, value in flat(pinned) if str(value).startswith(CONTENT)}
        kept = {key: value for key, value in flat(pinned) if key not in content}
        return kept | {key: usual[key] for key in content & usual.keys()} | dict(found)

    def sources(self, config: BaseModel, workload: Workload) -> Mapping[str, Source]:
        """Of the texts and of the tokenizer that have a name; a file's bytes are hashed."""
        found, live = _config(config).data, _lm(workload).text
        named = {"train": found.train, "valid": found.valid, "test": found.test}
        sources = {f"data.{part}": _source(name, live.extents[part].documents) for part, name in named.items() if name}
        if found.tokenizer != BYTES:
            sources["data.tokenizer"] = _source(found.tokenizer, live.tokenizer.vocab_size)
        return sources

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> LmConfig:
        """A run's configuration with the text on this machine; raises BadData."""
        mine = {key: value for key, value in _config(config).data.model_dump().items() if f"data.{key}" in self.content}
        with shared.speaking_our_errors():
            return LmConfig.model_validate({**pinned, "data": {**pinned["data"], **mine}})

    def forked(
        self, pinned: dict[str, Any], changes: dict[str, Any], config: BaseModel, data_root: Path
    ) -> dict[str, Any]:
        """Replaces settings. A text that changes is read to get its hash; shapes and tokens stay."""
        merged = shared.changed(pinned, changes)
        if not merged.get("decay_share"):
            merged.pop("total_steps", None)  # the workload pins it without
        self._check_shapes(pinned, merged)
        if any(key.startswith("data.") for key in changes):
            self._check_text(pinned, changes, config, data_root)
            merged = self.build(self.pinned(merged, config), "cpu", data_root).config()
        if pinned["data"]["tokenizer"] != merged["data"]["tokenizer"]:
            raise BadConfig(
                "A fork keeps the meaning of its tokens. Export a checkpoint of the run, and set data.tokenizer to its "
                "tokenizer.json."
            )
        return merged

    def _check_text(
        self, pinned: dict[str, Any], changes: Mapping[str, Any], config: BaseModel, data_root: Path
    ) -> None:
        """Raises BadConfig (78) if a training text that is not named is not the one that the run pinned."""
        if "data.train" in changes:
            return
        unset = {name: "" for name in ("valid", "test") if not pinned["data"][name]}
        own = self.pinned(pinned, config)
        parents = own.model_copy(update={"data": own.data.model_copy(update=unset)})
        if self.build(parents, "cpu", data_root).config()["data"]["train"] != pinned["data"]["train"]:
            raise BadConfig(
                f"The run did not start with data.train={own.data.train}, and a fork under these changes reads its "
                "text again. Name it too: data.train=PATH."
            )

    def _check_shapes(self, pinned: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
        """Raises BadConfig (78) if a state of the parent does not fit."""
        with shared.speaking_our_errors():
            from lm.model import shapes

            each = [LmConfig.model_validate(_with_data(one)) for one in (pinned, merged)]
        old, new = (shapes(one.arch, one.data.vocab_size) for one in each)
        if old != new:
            name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
            raise BadConfig(
                f"A fork keeps the weights, and {name} would be {new.get(name)} in place of {old.get(name)}. Start "
                "another network as a new run, under another name."
            )

    def with_target(self, config: BaseModel, target: int) -> LmConfig:
        """The length of a falling rate is the target, unless it was set."""
        found = _config(config)
        settled = not found.decay_share or found.total_steps is not None
        return found if settled else found.model_copy(update={"total_steps": target})

    def schedule_end(self, config: BaseModel) -> int | None:
        """The length of a falling rate, if it is known."""
        found = _config(config)
        return found.total_steps if found.decay_share else None

    def device(self, wanted: str) -> str:
        """'cuda' or 'cpu', if present; raises BadConfig."""
        if wanted == "xla":
            raise BadConfig("device=xla trains no language model. Use device=auto or cpu.")
        return super().device(wanted)

    def slow_here(self, config: BaseModel, device: str) -> str | None:
        """A warning if a large task would run on a CPU."""
        return shared.slow_here(_config(config).task, device, presets.SMALL)

    def prepare(
        self,
        config: BaseModel,
        data_root: Path,
        folder: Path | None = None,
        variants: int = 0,
        fetching: Fetching | None = None,
    ) -> list[str]:
        """Read or make the text and turn it into tokens; raises BadConfig or BadData."""
        if folder is not None:
            raise BadConfig("A text has no dataset folder. Leave --folder out.")
        lines = list[str]()
        with shared.speaking_our_errors():
            from lm.data.text import load_text
            from relay.torch.files import unseen

            return lines + load_text(_config(config), data_root, lines.append, fetching or unseen).lines()

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        """Task, size and recursion; parameters and rows are those of the workload."""
        found = _config(config)
        arch, refine = found.arch, found.refine
        model = (
            f"task {found.task}, {arch.depth} blocks {arch.d} wide, {counted(refine.passes, 'pass', 'passes')} a token"
        )
        source = Path(found.data.train).name
        if workload is None:
            return About(model, found.batch_size, source)
        live = _lm(workload)
        return About(model, found.batch_size, source, live.parameters, live.text.train.windows, path=live.path)

    def cost(self, config: BaseModel) -> Cost:
        """By the settings."""
        with shared.speaking_our_errors():
            from lm.cost import step_flops

            return Cost(step_flops(_config(config)))

    def memory(self, config: BaseModel, device: str) -> Memory:
        """As predicted before the batch is split."""
        with shared.speaking_our_errors():
            from lm.cost import need

            found = _config(config)
            needed = need(found, kind="cuda" if device.startswith("cuda") else "cpu")
            return Memory(whole=needed.session(found.batch_size), least=needed.session(1))

    def on_card(self, config: BaseModel, capability: tuple[int, int]) -> OnCard:
        """The stack is compiled from capability 8.0 on."""
        with shared.speaking_our_errors():
            from lm.cost import need

            narrow = capability >= (8, 0)
            return OnCard("compiled" if narrow else "plain", need(_config(config), wide=not narrow).session)

    def processes(self, config: BaseModel, device: str, most: int) -> int:
        """The largest number that divides the batch."""
        return shared.dividing(_config(config).batch_size, most)

    def forecast(
        self,
        config: BaseModel,
        device: str,
        steps: int | None,
        workload: Workload | None = None,
        processes: int = 1,
    ) -> Forecast | None:
        """None: no card's times are known."""
        return None

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: Fetching | None = None, steps: int = 0
    ) -> Workload:
        """An LmWorkload with its text read; raises BadConfig or BadData."""
        with shared.speaking_our_errors():
            from lm.workload import LmWorkload

            return cast(Workload, LmWorkload(_config(config), data_root, device, fetching=fetching))

    def rows(self, workload: Workload, split: str) -> int:
        """Rows of a split, one after another."""
        return _lm(workload).text.parts[split].size

    def statement(self, workload: Workload, history: History) -> Statement | None:
        """Values that letter counts beat, a text that was read too often, the guide's criteria for its objective."""
        live = _lm(workload)
        marks, found = live.statement(), list[Criterion]()
        if bpb := live.guided():
            found = criteria.criteria(bpb, history())
        if not marks and not found:
            return None
        document = {"marks": marks} | ({"criteria": [vars(one) for one in found]} if found else {})
        return Statement(document, [*marks, *criteria.lines(found)])

    def glance(self, config: BaseModel) -> Sequence[str]:
        """A session reads its own text."""
        return ()

    def publish(self, workload: Workload, folder: Path) -> None:
        """The reference's files are of another model."""
        raise BadConfig("checkpoint_path belongs to the tiny recursive model. Leave it out, and use `export`.")

    def worth(self, findings: Sequence[Finding]) -> Statement | None:
        """Bits per byte after the first and the last step, and the gain over plain models of equal arithmetic."""
        rows = judged([found for one in findings if (found := _result(one)) is not None])
        if not rows:
            return None
        return Statement({"refinement": [row.document() for row in rows]}, [row.line() for row in rows])

    def examples(self, workload: Workload, split: str, rows: Sequence[int], raw: bool) -> Examples:
        """Continuations, and the guesses after each refinement step; raises BadData."""
        from relay.app.models.continuations import Continuations

        with shared.speaking_our_errors():
            return Continuations(_lm(workload).examples(split, rows))

    def export(self, checkpoint: Path, out: Path, config: dict[str, Any], raw: bool, form: str) -> list[str]:
        """Weights as safetensors, settings and tokenizer as JSON; raises BadConfig for another form."""
        if form != "safetensors":
            raise BadConfig(f"A language model is exported as safetensors, not as {form}.")
        with shared.speaking_our_errors():
            from lm.interop import export

            return [str(path) for path in export(checkpoint, out, config)]

    def start_from(self, workload: Workload, weights: Path) -> Sequence[str]:
        """An exported file; raises BadData."""
        with shared.speaking_our_errors():
            return _lm(workload).start_from(weights)


def _with_data(pinned: Mapping[str, Any]) -> dict[str, Any]:
    """A pinned configuration whose data has a form that is valid without its text."""
    data = pinned["data"]
    tokenizer = GENERATED if str(data["tokenizer"]).startswith(CONTENT) else data["tokenizer"]
    train = HUB if data["text"] == "stories" else GENERATED
    return {**pinned, "data": {**data, "train": train, "tokenizer": tokenizer}}


def _result(one: Finding) -> Result | None:
    """None without the metrics of the reported split."""
    refine, metrics = _config(one.config).refine, one.metrics
    split = presets.SPLITS.reported
    names = [f"{split}/{name}" for name in (*(presets.at_step("bpb", i) for i in range(1, refine.steps)), "bpb")]
    if any(name not in metrics for name in (*names, f"{split}/unigram_bpb")):
        return None
    return Result(
        one.name,
        one.flops,
        tuple(metrics[name] for name in names),
        metrics[f"{split}/unigram_bpb"],
        metrics.get("epochs", 0.0),
        refine.passes == 1,
        one.spread,
        one.n,
    )


def _source(name: str, rows: int) -> Source:
    """Where a text or a tokenizer came from."""
    if name in (GENERATED, HUB):
        return Source(kind="generated" if name == GENERATED else "hub")
    path = Path(name).expanduser().absolute()
    return Source(kind="file", name=path.name, rows=rows, sha256=file_digest(path)[1])


def _lm(workload: Workload) -> LmWorkload:
    from lm.workload import LmWorkload

    assert isinstance(workload, LmWorkload)
    return workload


def _config(config: BaseModel) -> LmConfig:
    assert isinstance(config, LmConfig)
    return config
