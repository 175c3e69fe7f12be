"""The language model's studies: sound files, equal arithmetic, and a report that tells an artefact from a gain."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm.cost import token_flops
from relay.app.models.registry import MODELS
from relay.app.studies.experiments import Design, resolve
from relay.app.studies.results import Results, results
from relay.app.studies.studyfile import load
from relay.app.studies.table import report_document, report_text
from tests.app.studies.made import pinned, seen, state

NOWHERE = Path("/nowhere")


def study(name: str) -> Design:
    return resolve(load(name, NOWHERE), MODELS.of_task("lm_tiny"))


@pytest.mark.parametrize("name", ["lm_refinement", "lm_refinement_tiny"])
def test_the_plain_models_of_a_study_cost_what_the_looped_ones_do(name: str) -> None:
    points = study(name).points
    costs = {key: token_flops(point.config) * point.steps for key, point in points.items()}  # type: ignore[arg-type]
    looped = {key for key, point in points.items() if point.values["refine.steps"] > 1}
    for key in looped:
        twelve = key.endswith("_12")
        equal = [other for other in points if other.startswith("plain_") and other.endswith("_12") is twelve]
        assert equal and all(abs(costs[other] / costs[key] - 1) <= 0.12 for other in equal), key


def test_both_models_are_tried_with_the_same_rates() -> None:
    found = study("lm_rates")
    rates = [{found.points[name].values["lr_matrix"] for name in of} for of in found.study.lists.values()]
    assert rates == [{0.005, 0.01, 0.02, 0.04}] * 2 and found.points["looped_01"].values["refine.steps"] == 4


def report(values: dict[str, tuple[float, ...]], seeds: tuple[int, ...]) -> Results:
    """values: bpb after each refinement step, by experiment; seeds differ by .002."""
    found = study("lm_refinement_tiny")
    found = resolve(found.file, found.plugin, seeds=seeds)
    states = []
    for name, steps in values.items():
        for seed in seeds:
            own = [bpb + 0.002 * (seed % 3) for bpb in steps]
            metrics = {f"test/bpb_{place}": bpb for place, bpb in enumerate(own[:-1], 1)}
            metrics |= {"test/bpb": own[-1], "test/unigram_bpb": 4.7, "epochs": 1.5}
            states.append(state(found, f"{name}-s{seed}", found.points[name].steps, metrics))
    pins = pinned(found, {one.run: one for one in states})
    return results(found, list(found.points.values()), seen(*states), pins, "test/bpb")


VALUES = {
    "plain": (3.4,),
    "plain_width": (3.1,),
    "plain_tokens": (2.7,),
    "final": (3.6, 3.0, 2.65, 2.6),
    "extreme": (9.0, 4.0, 3.5, 3.4),
}


def test_a_punished_first_step_is_an_artefact_and_a_better_model_a_gain() -> None:
    found = report(VALUES, (0, 1, 2))
    rows = {row["experiment"]: row for row in report_document(found)["worth"]["refinement"]}
    assert (rows["extreme"]["verdict"], rows["final"]["verdict"]) == ("artefact", "gain")
    assert rows["extreme"]["refinement_percent"] > 60 and rows["extreme"]["gain"] == pytest.approx(-0.7)
    assert rows["extreme"]["baseline"] == rows["final"]["baseline"] == "plain_tokens"
    assert "letter counts" in rows["extreme"]["marks"][0] and rows["plain"]["refinement_percent"] is None
    text = report_text(found, 200, True)
    shares = [line for line in text.splitlines() if "refinement " in line and "%" in line]
    assert len(shares) == 2 and all("bpb" in line and "gain" in line for line in shares)


def test_one_seed_gets_no_verdict_and_no_baseline_no_share() -> None:
    rows = {row["experiment"]: row for row in report_document(report(VALUES, (0,)))["worth"]["refinement"]}
    assert rows["final"]["verdict"] == "n = 1"
    alone = report({"plain": (3.4,), "final": (3.6, 3.0, 2.65, 2.6)}, (0, 1, 2))
    assert report_document(alone)["worth"]["refinement"][1]["refinement_percent"] is None
    assert "refinement " not in report_text(alone, 200, True)
