"""The phases of a session add up to its time, also when one waited during another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.session.timing import ORDER, Spent, Startup, phases
from tests.core.lab import Lab


@given(
    marks=st.dictionaries(
        st.sampled_from(["import", "data", "lease", "restore", "cache", "first_step"]), st.floats(0, 1e4)
    ),
    inside=st.dictionaries(st.sampled_from(["compile", "capture"]), st.floats(0, 1e4)),
    spent=st.dictionaries(st.sampled_from(["evaluate", "snapshot", "upload", "release"]), st.floats(0, 1e4)),
    train_s=st.floats(0, 1e5),
    rest=st.floats(0, 1e4),
)
def test_phases_add_up(
    marks: dict[str, float], inside: dict[str, float], spent: dict[str, float], train_s: float, rest: float
) -> None:
    start = Startup(0.0, inside=lambda: inside, phases=dict(marks))
    before = sum(seconds for phase, seconds in marks.items() if phase != "first_step")
    wall = before + train_s + sum(spent.values()) + rest
    found = phases(start, spent, train_s, wall)
    assert sum(found.values()) == pytest.approx(wall)
    assert [name for name in ORDER if name in found] == list(found)


def test_what_waits_beside_something_else_is_counted_once(lab: Lab) -> None:
    process = lab.world.process()
    spent = Spent(process)

    def body() -> None:
        with spent.on("upload"):
            process.sleep(2)
            with spent.on("evaluate"):
                process.sleep(3)
            process.sleep(1)

    process.start(body)
    lab.world.run()
    assert spent.seconds == {"evaluate": pytest.approx(3, abs=0.01), "upload": pytest.approx(3, abs=0.01)}
