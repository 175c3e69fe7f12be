"""Every model keeps the interfaces' promises; a third one, of integers, shows that no other part knows its model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from lm.workload import LmWorkload
from relay.app.dashboard.data import Seen, document
from relay.app.models.ownloop import OwnLoopPlugin
from relay.app.models.plugin import TaskPlugin
from relay.app.models.registry import MODELS, OF_LM, plugins
from relay.app.models.trm import Trm
from relay.app.views.sessionstart import About
from relay.core.workload import Headline, Measures, Progress, Reading, Share, Splits, Workload, read_as
from tests.app.cli import Desk, ToyPlugin
from tests.core.toy import ToyWorkload
from tests.lm.small import small as small_text
from tests.people.views import view
from tests.trm.small import small as small_puzzles
from trm.presets import PRESETS
from trm.workload import TrmWorkload

HEADLINE = Headline("distance", "steps away", form=".2f", better="lower")
MEASURES = Measures(Splits(choosing="valid", reported="test"), HEADLINE, ("remainder",))


class Counting(ToyWorkload):
    """Measures with names of its own."""

    def advance(self, until: int, should_stop: Callable[[], bool], report: Callable[[Progress], None] | None) -> None:
        def told(progress: Progress) -> None:
            if report is not None:
                report(Progress(progress.step, {"remainder": float(self.values[0] % 97)}))

        super().advance(until, should_stop, told)

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        super().evaluate(split, rows, progress)
        return {"distance": 100.0 - self.step, "n": float(rows or 100)}

    def config(self) -> dict[str, Any]:
        return {"task": "counting", "seed": self.seed, "stride": 1}


class CountingConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    task: str = "counting"
    seed: int = 0
    stride: int = 1
    """Of each step."""


@dataclass
class CountingPlugin(ToyPlugin):
    """A model of integers."""

    model: type[BaseModel] = CountingConfig
    default_task: str = "counting"
    measures: Measures = MEASURES

    def preset(self, task: str) -> CountingConfig:  # type: ignore[override]
        return CountingConfig(task=task)

    def pinned(self, pinned: dict[str, Any], config: BaseModel) -> BaseModel:
        return CountingConfig.model_validate(pinned)

    def prepare(
        self, config: BaseModel, data_root: Path, folder: Path | None = None, variants: int = 0, fetching: object = None
    ) -> Sequence[str]:
        return ["whole numbers"]

    def about(self, config: BaseModel, workload: Workload | None = None) -> About:
        return About("a counter", 1, "the whole numbers")

    def build(
        self, config: BaseModel, device: str, data_root: Path, fetching: object = None, steps: int = 0
    ) -> Workload:
        return Counting(seed=config.model_dump()["seed"], measures=MEASURES)


class Third:
    """The program's models, and one more."""

    def of_task(self, task: str) -> TaskPlugin:
        return CountingPlugin() if task == "counting" else MODELS.of_task(task)

    def settings(self) -> Sequence[str]:
        return [*MODELS.settings(), *CountingConfig.model_fields]


def of_trm(root: Path) -> Workload:
    return TrmWorkload(small_puzzles(), root, "cpu")  # type: ignore[return-value]


def of_lm(root: Path) -> Workload:
    return LmWorkload(small_text(size_mb=1, steps=2), root, "cpu")  # type: ignore[return-value]


def of_integers(root: Path) -> Workload:
    return Counting(measures=MEASURES)


def results_of(workload: Workload) -> list[dict[str, float]]:
    """The results of a test, in each reading."""
    found = []
    for reading in (Reading(), Reading(raw=True), Reading(recursions=2)):
        with read_as(workload, reading):
            found.append(workload.evaluate(workload.measures.splits.reported, 4))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_trm, of_lm, of_integers])
def test_a_workload_keeps_its_promises(make: Callable[[Path], Workload], tmp_path: Path) -> None:
    """relay/core/workload.py, Workload: one after another."""
    one, other, folder = make(tmp_path), make(tmp_path), tmp_path / "checkpoint"
    assert one.step == 0 and json.loads(json.dumps(one.config())) == one.config()
    for each in (one, other):
        each.start()
    assert one.digest() == other.digest(), "a function of the pinned configuration"
    one.advance(3, lambda: False, None)
    taken, digest = one.snapshot(), one.digest()
    found = one.evaluate(one.measures.splits.choosing, 4)
    assert one.digest() == digest and one.measures.headline.name in found and found[one.measures.count] == 4
    results = results_of(one)
    assert one.digest() == digest
    one.advance(6, lambda: one.step == 4, None)
    assert one.step == 4, "a true should_stop returns early, at a step boundary"
    folder.mkdir()
    saved = taken.save(folder)
    assert (saved.step, saved.state_hash) == (3, digest.digest) and taken.finite.ok
    assert sorted(path.name for path in folder.iterdir()) == list(saved.files) == sorted(saved.files)
    other.load(folder)
    assert other.digest() == digest
    assert results_of(other) == results and all(results), "in the session that loads it as in the one that made it"
    seen: list[int] = []
    every = other.report_every
    until = 2 * every + 4
    other.advance(until, lambda: False, lambda progress: seen.append(progress.step))
    assert seen == [step for step in range(4, until + 1) if step % every == 0 or step == until]
    (folder / "state.json").write_text("{}")
    with pytest.raises(ValueError) as refused:
        one.load(folder)
    assert "\n" not in str(refused.value) and one.step == 4


REFUSED = ["_", "__"]
"""Parameters of a method that is refused whatever it is given."""


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


EVERY = [*plugins(), OwnLoopPlugin(), ToyPlugin(), CountingPlugin()]


@pytest.mark.parametrize("plugin", EVERY, ids=lambda plugin: type(plugin).__name__)
def test_a_plug_in_has_every_part_of_the_interface(plugin: TaskPlugin) -> None:
    for name, member in vars(TaskPlugin).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            assert parameters(getattr(type(plugin), name)) in (parameters(member), REFUSED), name
    for name in inspect.get_annotations(TaskPlugin):
        assert hasattr(plugin, name), name
    assert {"project", "run"} <= set(plugin.defaults(plugin.default_task))


def test_the_task_picks_the_model() -> None:
    by_task: Mapping[str, str] = {task: type(MODELS.of_task(task)).__name__ for task in (*PRESETS, *OF_LM)}
    assert by_task == dict.fromkeys(PRESETS, "Trm") | dict.fromkeys(OF_LM, "Lm")
    trm, lm = plugins()
    assert [type(MODELS.of_task(typo)).__name__ for typo in ("sudoku5", "lm_tinny", "")] == ["Trm", "Lm", "Trm"]
    assert trm.measures.splits == lm.measures.splits and trm.measures.first[0] != lm.measures.first[0]
    assert {lm.preset(task).model_dump()["task"] for task in OF_LM} == set(OF_LM)


def test_a_third_model_is_trained_and_shown_by_its_own_names(tmp_path: Path) -> None:
    """No command is told of it but by the registry that it stands in."""
    desk = Desk(tmp_path, plugin=Trm(), models=Third())  # type: ignore[arg-type]
    desk.train(6, "task=counting", "stride=1", "evaluation.every_commits=1", "checkpoint.every_steps=2")
    assert desk.held()
    desk("run", "--run", "r", "--account", "account_1", "--new-target", "8", "evaluation.every_commits=1")
    assert "steps away" in desk("report", "--run", "r").out
    shown = {one["key"]: one["value"] for one in desk("config", "show", "--run", "r", "--json").json["settings"]}
    assert shown["stride"] == 1 and "batch_size" not in shown
    assert desk("evaluate", "--run", "r", "--rows", "5", "--json").json["metrics"]["distance"] == 92
    assert "whole numbers" in desk("prepare", "task=counting").out
    page = document(Seen(view(desk_state(desk))), MEASURES)
    assert page["header"]["validation"]["text"].endswith("steps away")
    assert "stride" in desk("run", "--run", "r", "--target-steps", "9", "strid=2", code=78).err


def desk_state(desk: Desk) -> Any:
    from relay.core.clock import RealRuntime
    from relay.core.ledger.ledger import RunLedger
    from storage.base import open_store
    from tests.app.cli import PROJECT

    store = open_store((desk.folder / "relay_store").as_uri())
    return RunLedger(store, PROJECT, "r", RealRuntime()).read().state
