"""How fast a slow machine trains is measured and told before it has taken anybody's hour."""

from __future__ import annotations

import math

import pytest

from relay.app.messages.pace import pace
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload


@pytest.mark.parametrize(
    ("step_s", "left_s", "expected"),
    [
        (5.25, 1500.0, "a step takes 5,250 ms here, so this session has time for about 285 steps more (25 min)"),
        (61.0, 30.0, "a step takes 61 s here, so this session has time for about 0 steps more (30 s)"),
        (0.5, math.inf, "a step takes 500 ms here, so an hour is 7,200 steps"),
        (0.0, 60.0, "no time that could be measured"),
    ],
)
def test_pace_in_words(step_s: float, left_s: float, expected: str) -> None:
    assert expected in pace(step_s, left_s)


def test_a_machine_that_people_were_warned_of_tells_its_pace_after_three_steps(tmp_path) -> None:
    lab = Lab(tmp_path)
    lab.run(lab.session(budget_s=600.0, workload=ToyWorkload(step_s=5.0), tell_pace=True, target_steps=60))
    told = [line for line in lab.told if line.startswith("PACE")]
    assert len(told) == 1
    assert "a step takes 5,000 ms here, so this session has time for about 1" in told[0]
    committed = next(index for index, line in enumerate(lab.told) if "is committed" in line)
    assert lab.told.index(told[0]) < committed


def test_a_machine_as_usual_tells_none(tmp_path) -> None:
    lab = Lab(tmp_path)
    lab.run(lab.session(budget_s=600.0, workload=ToyWorkload(step_s=5.0), target_steps=20))
    assert not [line for line in lab.told if line.startswith("PACE")]
