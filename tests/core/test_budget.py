"""A session stops in time for its last commit, by measured durations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.budget import BELIEVED, SAMPLES, Budget, Limits, Measured
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload

seconds = st.floats(0.001, 100)


def budget(total: float | None = 1000.0, **measured: float) -> Budget:
    known = Measured({f"{kind}_s": value for kind, value in measured.items()})
    return Budget(Limits(started=0.0, budget_s=total, margin_s=3.0), known)


def test_the_earlier_of_two_clocks_rules() -> None:
    limits = Limits(started=100.0, budget_s=3000.0, machine_started=0.0, machine_limit_s=1000.0)
    assert limits.ends() == {"budget": 3100.0, "machine": 1000.0}
    assert limits.deadline == 1000.0
    assert Limits(started=0.0).deadline == math.inf


def test_without_limits_nothing_stops() -> None:
    free = budget(None, step=1, upload=5)
    assert not free.should_stop(1e12) and free.may_upload(1e12) and free.for_evaluation(1e12) == math.inf
    free.cut(10.0)
    assert free.should_stop(10.0)


@given(st.floats(1, 100), seconds, seconds, seconds, seconds)
@settings(max_examples=50, deadline=None)
def test_what_is_allowed_to_begin_ends_before_the_deadline(
    step: float, snapshot: float, save: float, upload: float, append: float
) -> None:
    """One more step, then the end with everything as slow as it ever was, is over by the deadline."""
    it = budget(1000.0, step=step, snapshot=snapshot, save=save, upload=upload, append=append)
    now = 0.0
    while not it.should_stop(now):
        now += step
    if now > 0:
        assert now + snapshot + max(save + upload, step) + 2 * append + 3.0 <= 1000.0


def test_the_upload_in_flight_is_counted() -> None:
    it = budget(100.0, step=1, upload=10)
    assert not it.should_stop(60.0)
    assert it.should_stop(60.0, inflight_rest=15.0)


def test_no_background_upload_begins_that_would_meet_the_final_snapshot() -> None:
    it = budget(100.0, step=0.1, snapshot=0, save=0, upload=10, append=0)  # doubled, for a single sample
    assert it.may_upload(100 - 3 - 20 - 20 - 0.1)
    assert not it.may_upload(100 - 3 - 20 - 20 + 0.1)


@pytest.mark.parametrize(
    ("now", "rest", "plan"),
    [
        (0, None, "both"),
        (0, 30, "both"),
        (70, 10, "both"),
        (70, 15, "final"),
        (80, 5, "final"),
        (95, 3, "inflight"),
        (95, None, "both"),
    ],
)
def test_the_end_keeps_the_highest_step_that_can_become_durable(now: float, rest: float | None, plan: str) -> None:
    it = budget(100.0, save=0, upload=10, append=0)
    assert it.plan_end(now, rest) == plan


def test_small_samples_are_trusted_less_and_old_ones_forgotten() -> None:
    measured = Measured()
    assert measured.high("upload", 7.0) == 7.0
    measured.add("upload", 10.0)
    assert measured.high("upload") == 20.0
    for _ in range(SAMPLES):
        measured.add("upload", 1.0)
    assert measured.high("upload") == pytest.approx(1.05)


def test_the_median_is_the_middle_one() -> None:
    measured = Measured()
    assert measured.median("restore") == 0.0
    for value in (9.0, 1.0, 2.0, 30.0, 4.0):
        measured.add("restore", value)
    assert measured.median("restore") == 4.0


def test_the_next_session_starts_from_what_this_one_measured() -> None:
    measured = Measured()
    measured.add("upload", 3.0)
    assert Measured(measured.summary()).known("upload")
    assert not Measured({"upload_s": -1.0, "append_s": 1e9, "step": 1.0}).known("append")


def test_an_unmeasured_upload_takes_little_of_a_short_budget() -> None:
    assert not budget(20.0).should_stop(10.0)


def test_what_another_machine_measured_is_believed_only_so_far_and_until_measured_here() -> None:
    slow = {f"{kind}_s": 1600.0 for kind in ("step", "snapshot", "save", "upload", "append")}
    measured = Measured(slow, believed_s=BELIEVED * 1000)
    it = Budget(Limits(started=0.0, budget_s=1000.0), measured)
    assert not it.should_stop(300.0) and it.may_upload(0.0), "no budget is starved by it"
    assert not measured.known("upload"), "so an early commit measures it"
    measured.add("upload", 2.0)
    assert measured.known("upload") and measured.high("upload") == 4.0 and measured.summary()["upload_s"] == 2.0


def test_a_larger_checkpoint_is_foreseen_by_the_bandwidth_and_a_smaller_one_not_believed_faster() -> None:
    measured = Measured()
    for _ in range(SAMPLES):
        measured.add("upload", 10.0, 1_000_000)
    it = Budget(Limits(started=0.0, budget_s=1000.0), measured)
    for size, seconds in ((0, 10.0), (500_000, 10.0), (1_000_000, 10.0), (3_000_000, 30.0)):
        it.size = size
        assert it.transfer() == pytest.approx(seconds * (1 + 1 / SAMPLES))
    late = 1000 - 3 - 2 - 30 * (1 + 1 / SAMPLES)
    assert not it.should_stop(late - 1.0) and it.should_stop(late + 1.0), "when to stop goes by it"


def test_a_transfer_without_a_bandwidth_is_foreseen_by_its_time() -> None:
    assert Measured({"upload_s": 2.0}).foreseen("upload", 10**9, 0.0) == 4.0, "an earlier session told none"
    quick = Measured()
    quick.add("upload", 0.0, 10**6)
    assert quick.foreseen("upload", 10**9, 7.0) == 0.0, "too quick for the clock"


def test_the_bandwidth_is_remembered_for_the_next_session_within_what_is_believed() -> None:
    first = Measured()
    first.add("upload", 4.0, 2_000_000)
    first.add("upload", 1.0, 2_000_000)
    first.add("restore", 2.0, 2_000_000)
    told = first.summary()
    assert (told["upload_bytes_s"], told["restore_bytes_s"]) == (500_000.0, 1_000_000.0)
    it = Budget(Limits(started=0.0, budget_s=1000.0), Measured(told, believed_s=BELIEVED * 1000))
    it.size = 4_000_000
    assert it.transfer() == pytest.approx(2 * 8.0)
    it.size = 4_000_000_000
    assert it.transfer() == pytest.approx(2 * BELIEVED * 1000), "no more is believed of another machine"
    odd = Measured(told | {"upload_bytes_s": -1.0, "restore_bytes_s": float("inf")})
    assert odd.foreseen("upload", 10**12, 0.0) == 2 * 4.0, "what makes no sense is not used"


def test_a_slower_line_than_the_last_machines_shows_when_the_checkpoint_is_fetched() -> None:
    measured = Measured({"upload_s": 1.0, "restore_s": 1.0}, believed_s=50.0)
    it = Budget(Limits(started=0.0, budget_s=1000.0), measured)
    assert it.transfer() == 2.0
    measured.add("restore", 80.0, 1_000_000)
    assert it.transfer() == 80.0, "sending is no faster than fetching was"
    measured.add("upload", 5.0, 1_000_000)
    assert it.transfer() == 10.0, "until it was measured here"


def test_a_session_measures_and_commits_its_bandwidth(lab: Lab) -> None:
    lab.run(lab.session(target_steps=20))
    metrics, head = lab.state().metrics, lab.state().head
    assert metrics["upload_bytes_s"] > 0 or metrics["upload_s"] == 0
    assert head is not None and head.bytes > 0


@pytest.mark.slow
def test_a_slow_machine_spoils_nobodys_budget(lab: Lab) -> None:
    slow = lab.session(workload=ToyWorkload(step_s=10.0), target_steps=40, every_steps=20, patience_s=9000)

    def crawl(verb: str, name: str) -> None:
        if verb == "put" and name.endswith("state.json"):
            slow.process.sleep(1600)

    slow.store.fail = crawl
    lab.run(slow)
    fast = lab.session("bob", workload=ToyWorkload(step_s=10.0), target_steps=100_000, every_steps=100, budget_s=3000)
    assert lab.run(fast).durable_step > 250
