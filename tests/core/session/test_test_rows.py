"""The state at the target is evaluated on the reported split, in each reading that was asked for, and committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from relay.core.errors import Exit
from relay.core.workload import NotReadable, Reading, Share, read_as
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload


@dataclass
class Read(ToyWorkload):
    """Its accuracy tells the split, the rows and the reading."""

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        super().evaluate(split, rows, progress)
        which = (self.reading.recursions or 0) + 0.5 * self.reading.raw
        return {"exact_accuracy": which, "n": float(rows or 0)} if split == "test" else {"exact_accuracy": 0.0}


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(tmp_path)


def test_the_last_commit_alone_has_the_test_metrics_of_every_reading(lab: Lab) -> None:
    readings = (Reading(raw=True), Reading(recursions=16))
    lab.run(lab.session(workload=Read(), until_step=50, test_rows=30, test_also=readings))
    assert not [name for name in lab.state().metrics if name.startswith("test")]
    workload = Read()
    lab.run(lab.session(workload=workload, test_rows=30, test_also=readings))
    found = {name: value for name, value in lab.state().metrics.items() if name.startswith("test")}
    assert found == {
        "test/exact_accuracy": 0.0,
        "test/n": 30.0,
        "test_raw/exact_accuracy": 0.5,
        "test_r16/exact_accuracy": 16.0,
    }
    assert workload.reading == Reading() and lab.state().step == 100


def test_a_session_without_time_for_the_test_leaves_the_last_step_to_the_next(lab: Lab) -> None:
    """128 validation rows took 5 s, so 1,280 test rows will take some 50 s."""
    slow = Read(evaluate_s=5.0)
    plan = {"evaluate_every": 4, "test_rows": 1280, "target_steps": 100}
    first = lab.run(lab.session(workload=slow, budget_s=70, **plan))
    assert (first.exit_code, first.durable_step) == (Exit.HANDOFF, 99)
    second = lab.run(lab.session(workload=Read(evaluate_s=5.0), budget_s=70, **plan))
    assert (second.exit_code, second.durable_step) == (Exit.OK, 100)
    assert lab.state().metrics["test/n"] == 1280


class Timely(Read):
    """128 rows take 5 s."""

    def evaluate(
        self, split: str, rows: int | None, progress: Callable[[Share], None] = lambda _: None
    ) -> dict[str, float]:
        self.evaluate_s = 5.0 * (rows or 0) / 128
        return super().evaluate(split, rows, progress)


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 1, 4, 9])
@pytest.mark.parametrize("budget_s", range(25, 80, 2))
def test_no_budget_ends_between_the_target_and_its_test(lab: Lab, budget_s: int, every: int) -> None:
    """At the target validation is due, too, and takes its time first. It may not have come before, or was abandoned,
    and then its time was short."""
    plan = {"evaluate_every": every, "test_rows": 256, "target_steps": 60, "budget_s": budget_s}
    while lab.run(lab.session(workload=Timely(step_s=0.6), **plan)).exit_code == Exit.HANDOFF:
        pass
    assert lab.state().metrics["test/n"] == 256


class OneReading(ToyWorkload):
    """It has no `reading`."""

    def __getattribute__(self, name: str) -> object:
        if name == "reading":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_a_workload_with_one_reading_refuses_another() -> None:
    workload = OneReading()
    with pytest.raises(NotReadable), read_as(workload, Reading(raw=True)):
        raise AssertionError("not read as asked for")
    with read_as(workload, Reading()):
        assert workload.evaluate("test", 3)


@pytest.mark.parametrize(("text", "expected"), [("raw", Reading(True)), ("recursions=16", Reading(False, 16))])
def test_readings_as_text(text: str, expected: Reading) -> None:
    assert Reading.of(text) == expected
    assert expected.named("test", "loss") == ("test_raw/loss" if expected.raw else "test_r16/loss")


@pytest.mark.parametrize("text", ["", "ema", "recursions=0", "recursions=-1", "recursions", "raw=1"])
def test_other_texts_are_no_reading(text: str) -> None:
    with pytest.raises(ValueError, match="reading"):
        Reading.of(text)
