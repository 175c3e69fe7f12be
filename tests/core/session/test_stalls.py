"""The cost of a checkpoint to training is counted apart from steps and evaluations."""

from __future__ import annotations

import pytest

from relay.core.session.timing import Stalls
from relay.core.workload import Finite
from tests.core.lab import Lab
from tests.core.toy import ToySnapshot


def reports(stalls: Stalls, steps: int, since: float = 0.0, first: int = 0, each: float = 1.0) -> None:
    for step in range(steps + 1):
        stalls.report(since + step * each, first + 10 * step)


def test_a_stall_is_what_a_commit_adds_to_as_many_steps() -> None:
    stalls = Stalls()
    reports(stalls, 5)
    stalls.commit()
    stalls.report(5 + 2 + 0.25, 70)
    stalls.report(8.25, 80)
    assert stalls.seconds == [pytest.approx(0.25)]
    stalls.commit()
    stalls.report(9.75, 90)
    assert (stalls.median_s, stalls.most_s) == (pytest.approx(0.375), pytest.approx(0.5))


def test_an_evaluation_is_no_stall() -> None:
    stalls = Stalls()
    reports(stalls, 3)
    stalls.commit()
    stalls.excuse(2.0)
    stalls.report(6.1, 40)
    assert stalls.seconds == [pytest.approx(0.1)]


def test_nothing_is_said_without_a_comparison() -> None:
    stalls = Stalls()
    for step in range(4):
        stalls.commit()
        stalls.report(float(step), step)
    reports(stalls, 1, since=10, first=10)
    stalls.commit(), stalls.commit()
    stalls.report(99, 30)
    assert stalls.seconds == []
    assert stalls.median_s is None
    assert stalls.most_s is None


def test_a_session_tells_it(lab: Lab) -> None:
    """A snapshot that takes 0.3 s: in the outcome, and in the metrics of the commits after it."""
    session = lab.session()
    taken = session.workload.snapshot

    def slow() -> ToySnapshot:
        session.workload.sleep(0.3)
        return taken()

    session.workload.snapshot = slow  # type: ignore[method-assign]
    outcome = lab.run(session)
    assert len(outcome.stall_s) == 9  # steps 10 to 90; the last one delays nothing
    assert outcome.stall_s == pytest.approx([0.3] * 9, abs=0.02)
    assert lab.state().metrics["stall_ms"] == pytest.approx(300, abs=20)


def test_a_copy_that_is_only_queued_takes_as_long_as_it_is_waited_for(lab: Lab) -> None:
    """A GPU's snapshot is there at once and checked late: the time that a session reserves for its end holds both."""
    session = lab.session()
    taken = session.workload.snapshot

    class Queued(ToySnapshot):
        @property
        def finite(self) -> Finite:  # type: ignore[override]
            session.workload.sleep(0.3)
            return Finite(True)

        @finite.setter
        def finite(self, value: Finite) -> None: ...

    def queue() -> ToySnapshot:
        return Queued(**vars(taken()))

    session.workload.snapshot = queue  # type: ignore[method-assign]
    lab.run(session)
    assert lab.state().metrics["snapshot_s"] >= 0.3
