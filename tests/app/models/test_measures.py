"""Only a model's plug-in names its measures, also where lower is better."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.app.dashboard.curves import curves, values_of
from relay.app.dashboard.data import Seen, document
from relay.app.dashboard.history import CommitEvent
from relay.app.models.registry import SPLITS, default_plugin
from relay.app.models.trm import Trm
from relay.app.plots.lines import series_of
from relay.app.trackers.line import points_of
from relay.app.views.report import draw
from relay.core.workload import Headline, Measures, Share, Splits
from tests.core.lab import Lab
from tests.core.making import checkpoint
from tests.core.toy import ToyWorkload
from tests.people.views import MACHINE, NOW, trained, view
from trm.presets import PRESETS
from trm.workload import TrmWorkload

BITS = Measures(
    Splits(choosing="held-out", reported="last"), Headline("bpb", "bits a byte", form=".3f", better="lower"), ("nats",)
)


class Text(ToyWorkload):
    """Best at step 40, by bits a byte."""

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        assert split == "held-out"
        return {"bpb": {20: 1.5, 40: 1.2, 60: 1.4}[self.step]}


def evaluated(step: int, bits: float) -> CommitEvent:
    metrics = {"nats": 2.0, BITS.stored: bits, BITS.on_split("n"): 10.0}
    return CommitEvent(step, step, 1, NOW + step, float(step), "", metrics, BITS.headline.score(bits))


def test_a_score_is_larger_for_the_better_model() -> None:
    headline = BITS.headline
    assert headline.score(1.25) == -1.25 and headline.value(-1.25) == 1.25 and headline.score(None) is None
    assert headline.text(-1.25) == "1.250 bits a byte"
    share = Headline("accuracy", "right", form=".1%")
    assert share.score(0.931) == share.value(0.931) == 0.931 and share.text(0.931) == "93.1% right"


def test_the_best_checkpoint_has_the_lowest_number_where_lower_is_better(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    toy = Text(measures=BITS)
    lab.run(lab.session("ana", workload=toy, target_steps=60, every_steps=20, evaluate_every=1))
    state = lab.state()
    assert {one.step: one.metric for one in state.retained} == {20: -1.5, 40: -1.2, 60: -1.4}
    assert state.best is not None and state.best[0] == 40 and state.metrics[BITS.stored] == 1.4


def test_pictures_and_trackers_show_the_number_and_not_the_score() -> None:
    events = [evaluated(10, 1.5), evaluated(20, 1.2), evaluated(30, 1.4)]
    found = curves(events, [], BITS)
    names = [one["name"] for one in found["series"]]
    assert names == ["nats", "validation", "held-out/n"]
    shown = found["series"][1]
    assert {key: shown[key] for key in ("name", "group", "better", "form")} == {
        "name": "validation",
        "group": "other",
        "better": "lower",
        "form": ".3f",
    }
    assert shown["title"].endswith(f", {BITS.headline.title}")
    assert values_of(events, "validation", BITS.headline) == [1.5, 1.2, 1.4]
    (validation,) = (one for one in series_of(found, "step")["other"] if one.name == "validation")
    assert validation.best == (20.0, 1.2)
    (point,) = points_of(events[1], BITS)
    assert point.values == {"nats": 2.0, "held-out/bpb": 1.2, "held-out/n": 10.0}


def test_reports_show_the_number_with_its_title() -> None:
    state = trained()
    newest = checkpoint(state.step, 1).model_copy(update={"metric": -1.25})
    seen = view(state.model_copy(update={"retained": (newest,)}))
    text = f"1.250 {BITS.headline.title}"
    assert f"{text} at step {newest.step:,}" in draw(seen, MACHINE, BITS)
    shown = document(Seen(seen), BITS)["header"]["validation"]
    assert shown == {"step": newest.step, "value": 1.25, "text": text}


def test_a_plug_in_measures_what_its_workloads_measure(tmp_path: Path) -> None:
    plugin = default_plugin()
    assert plugin.measures is TrmWorkload.measures and plugin.measures.splits == SPLITS
    assert plugin.measures.stored == "valid/exact_accuracy", "as every run has stored it"
    for task in PRESETS:
        assert {"project", "run"} <= set(plugin.defaults(task))


def test_cost_and_memory_of_the_published_tasks() -> None:
    """reference/trm.md 16.1: 32.81 TFLOP a step."""
    plugin = Trm()
    published = plugin.preset("sudoku")
    assert plugin.cost(published).flops == pytest.approx(32.81e12, rel=1e-3)
    on_gpu, on_cpu = plugin.memory(published, "cuda"), plugin.memory(published, "cpu")
    assert on_gpu.least < on_gpu.whole < on_cpu.whole and on_cpu.least < on_cpu.whole
    assert plugin.memory(plugin.preset("sudoku4"), "cpu").whole < 1e9 < on_gpu.whole
