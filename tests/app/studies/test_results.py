"""The table: which runs count, verdicts of each kind by made numbers, and its text, CSV, Markdown and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from relay.app.studies.experiments import Design
from relay.app.studies.picking import Seen
from relay.app.studies.results import Results, results
from relay.app.studies.table import (
    list_document,
    list_text,
    report_csv,
    report_document,
    report_markdown,
    report_text,
)
from relay.core.ledger.changes import with_incident
from relay.core.ledger.finaltest import notes
from relay.core.ledger.state import RunState
from tests.app.studies.made import TOYS, design, pinned, seen, state
from tests.core.making import checkpoint
from tests.core.rulings import by

SEEDS = (1, 2, 3)
VALUES = {
    "base": (0.80, 0.81, 0.82),
    "big": (0.70, 0.715, 0.72),
    "huge": (0.90, 0.93, 0.915),
    "longer": (0.78, 0.86, 0.80),
}
"""By seed: big is worse than base, huge better than big, longer cannot be told apart."""
RAW = (0.60, 0.61, 0.60)


def states(of: Design) -> list[RunState]:
    found = []
    for name, values in VALUES.items():
        for seed, value in zip(SEEDS, values, strict=True):
            metrics = {"test/exact_accuracy": value, "loss": 1 - value}
            metrics |= {"test_raw/exact_accuracy": RAW[seed - 1]} if name == "base" else {}
            found.append(state(of, f"{name}-s{seed}", of.points[name].steps, metrics))
    return found


def found(of: Design, every: list[RunState], metric: str = "test/exact_accuracy", **changed: Any) -> Results:
    pins = pinned(of, {one.run: one for one in every})
    for name, change in changed.items():
        pins[name] |= change
    return results(of, list(of.points.values()), seen(*every), pins, metric)


@pytest.fixture
def of() -> Design:
    return design(seeds=SEEDS)


def test_a_verdict_of_each_kind(of: Design) -> None:
    rows = {row["experiment"]: row for row in report_document(found(of, states(of)))["rows"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "base": None,
        "big": "worse",
        "huge": "better",
        "twin": None,
        "raw": "worse",
        "longer": "not told apart",
    }
    assert rows["longer"]["n_needed"] > 3 and rows["twin"]["mean"] == rows["base"]["mean"] == pytest.approx(0.81)
    assert rows["big"]["p_holm"] >= rows["big"]["p"] and rows["big"]["paired"] is True
    assert (rows["base"]["published"], rows["base"]["gpu_hours"]) == (0.5, pytest.approx(0.4))
    assert rows["longer"]["gpu_hours"] == pytest.approx(0.6 + 0.4), "with those of the run that it continues"
    assert rows["longer"]["flops"] == 8.0 * 60
    lower = {row["experiment"]: row for row in report_document(found(of, states(of), "loss"))["rows"]}
    assert (lower["big"]["verdict"], lower["huge"]["verdict"]) == ("worse", "better")
    assert lower["raw"]["n"] == 0 and lower["base"]["published"] is None


def test_the_table_as_text_and_markdown(of: Design, pinned: Any) -> None:
    every = found(of, [one for one in states(of) if one.run not in ("huge-s3", "longer-s2", "longer-s3")])
    assert (
        "\n\n".join([report_text(every, 110, True), report_text(every, None, False), report_markdown(every)]) == pinned
    )


def test_csv_and_json_hold_the_same(of: Design) -> None:
    every = found(of, states(of))
    document = json.loads(json.dumps(report_document(every), allow_nan=False))
    rows = list(csv.DictReader(io.StringIO(report_csv(every))))
    assert [row["experiment"] for row in rows] == [row["experiment"] for row in document["rows"]]
    assert all(set(row) == set(document["rows"][0]) for row in rows)
    for plain, whole in zip(rows, document["rows"], strict=True):
        assert plain["mean"] == str(whole["mean"]) and plain["verdict"] == (whole["verdict"] or "")


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    of = design(seeds=(1,))
    every = [one for one in states(design(seeds=SEEDS)) if one.run.endswith("-s1")]
    for row in report_document(found(of, every))["rows"]:
        assert (row["n"], row["interval"], row["verdict"], row["p"]) == (1, None, None, None)


def test_runs_of_other_data_other_settings_or_fewer_steps_are_apart(
    of: Design, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of.plugin, "content", ("data.train",))
    every = states(of)
    every[0] = every[0].model_copy(update={"step": 39})
    every[4] = every[4].model_copy(update={"metrics": {}})
    data = {"big-s1": {"data": {"train": "sha256:other"}}, "huge-s2": {"batch_size": 3}}
    shown = found(of, every, **data)
    apart = shown.apart
    assert set(apart) == {"base-s1", "big-s1", "big-s2", "huge-s2"}
    assert "39" in apart["base-s1"] and "batch_size" in apart["huge-s2"] and "data" in apart["big-s1"]
    n = {row.point.name: len(row.values) for row in shown.rows}
    assert n == {"base": 2, "big": 1, "huge": 2, "twin": 2, "raw": 2, "longer": 3}
    assert not shown.missing
    assert set(found(of, every[:3]).missing) == {
        f"{name}-s{seed}" for name in ("big", "huge", "longer") for seed in SEEDS
    }


def test_a_run_that_lacks_a_result_is_apart_with_the_name_of_what_it_lacks(of: Design) -> None:
    """Of the metric of the table, in the reading of the experiment that needs it."""
    every = states(of)
    at = {one.run: n for n, one in enumerate(every)}

    def without(name: str, *metrics: str, **more: Any) -> None:
        one = every[at[name]]
        kept = {key: value for key, value in one.metrics.items() if key not in metrics}
        every[at[name]] = one.model_copy(update={"target_steps": one.step, "metrics": kept} | more)

    without("base-s1", "test_raw/exact_accuracy")
    without("base-s2", "test/exact_accuracy", "test_raw/exact_accuracy")
    without("big-s1", "test/exact_accuracy")
    without("huge-s1", "test/exact_accuracy", target_steps=1000)
    without("longer-s1", "loss")
    apart = found(of, every).apart
    assert set(apart) == {"base-s1", "base-s2", "big-s1", "huge-s1"}
    assert "test_raw/exact_accuracy" in apart["base-s1"] and "test/exact_accuracy" not in apart["base-s1"]
    assert "test/exact_accuracy" in apart["base-s2"] and "test_raw/exact_accuracy" in apart["base-s2"]
    offered = {name for name, why in apart.items() if "study run" in why}
    assert offered == {"base-s1", "base-s2", "big-s1"}, "a run whose target was raised has no test at this step"
    assert found(of, every, "loss").apart == {"longer-s1": "it has no loss"}


def test_a_late_result_counts(of: Design) -> None:
    every = states(of)
    metrics = {name: value for name, value in every[0].metrics.items() if not name.startswith("test")}
    head = checkpoint(every[0].step, 1)
    late = every[0].model_copy(update={"metrics": metrics, "head": head, "step": head.step})
    for reading, value in (("test", VALUES["base"][0]), ("test_raw", RAW[0])):
        for one in notes(head, reading, {f"{reading}/exact_accuracy": value}):
            late = with_incident(late, by(1), one.cause, one.text, one.step)
    usual = found(of, every)
    assert report_document(found(of, [late, *every[1:]])) == report_document(usual) and not usual.apart


def test_hours_are_those_measured_and_otherwise_scaled_by_flops(of: Design, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says 100 ms on a T4; the store measured 36 s a step of three experiments."""
    costs = {4: 8.0, 8: 16.0, 16: 32.0}
    monkeypatch.setattr(type(of.plugin), "cost", lambda _, config: _cost(costs[config.batch_size]))
    none = list_document(of, list(of.points.values()), Seen({}, 0.0))
    hours = {row["experiment"]: (row["hours"]["T4"], row["measured"]["T4"]) for row in none["experiments"]}
    assert hours["base"] == (pytest.approx(0.1 * 40 / 3600), True)
    assert hours["huge"] == (pytest.approx(0.4 * 40 / 3600), False)
    assert hours["raw"][0] == hours["twin"][0] == 0 and hours["longer"][0] == pytest.approx(0.1 * 20 / 3600)
    begun = [state(of, "base-s1", 40), state(of, "base-s2", 40), state(of, "base-s3", 30)]
    measured = list_document(of, list(of.points.values()), seen(*begun))
    first = measured["experiments"][0]
    assert first["hours"]["T4"] == pytest.approx(36 * 40 / 3600) and first["steps_left"] == 10
    assert "~" in list_text(none, list(of.points.values()), 100, True) and TOYS.count("T4") == 1


def _cost(flops: float) -> Any:
    from relay.app.models.plugin import Cost

    return Cost(flops)
