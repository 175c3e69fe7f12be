"""How fast a slow machine trains is measured and told before it has taken anybody's hour."""

from __future__ import annotations

import math

import pytest

from relay.app.messages.events import line
from relay.core.events import Committed, Pace
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload


@pytest.mark.parametrize(
    ("step_s", "left_s", "expected"),
    [
        (5.25, 1500.0, ["5,250 ms", "285 steps", "25 min"]),
        (61.0, 30.0, ["61 s", "0 steps", "30 s"]),
        (0.5, math.inf, ["500 ms", "7,200 steps"]),
        (0.0, 60.0, ["too short"]),
    ],
)
def test_pace_in_words(step_s: float, left_s: float, expected: list[str]) -> None:
    text = line(Pace(step_s, left_s))
    assert text.startswith("PACE: ") and all(fact in text for fact in expected)


def test_a_machine_that_people_were_warned_of_tells_its_pace_after_three_steps(tmp_path) -> None:
    lab = Lab(tmp_path)
    lab.run(lab.session(budget_s=600.0, workload=ToyWorkload(step_s=5.0), report_pace=True, target_steps=60))
    kinds = [type(event) for event in lab.heard.events]
    assert kinds.count(Pace) == 1 and kinds.index(Pace) < kinds.index(Committed)
    pace = next(event for event in lab.heard.events if isinstance(event, Pace))
    assert pace.step_s == pytest.approx(5.0) and 500.0 < pace.left_s < 600.0


def test_a_machine_as_usual_tells_none(tmp_path) -> None:
    lab = Lab(tmp_path)
    lab.run(lab.session(budget_s=600.0, workload=ToyWorkload(step_s=5.0), target_steps=20))
    assert not [event for event in lab.heard.events if isinstance(event, Pace)]
