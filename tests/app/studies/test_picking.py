"""Which run comes next, why the others are left, and what it costs to find out."""

from __future__ import annotations

import pytest

from relay.app.studies.picking import Passed, Seen, Why, turns
from relay.core.errors import BadData, Exit
from relay.core.ledger.changes import Genesis
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Holder, RunState
from relay.core.runs.registered import RegisteredRun, listed_runs
from storage.memory import MemoryStore
from tests.app.studies.made import design, registered, run, seen, state
from tests.core.making import Client, genesis, id_of, pair_of
from tests.core.rulings import NOW
from tests.storage.counting import CountingStore

TOYS = design()
RUNS = TOYS.runs(TOYS.points.values())
HELD = Holder(session=id_of(1), account="ben", epoch=1, since=NOW, ttl_s=60.0, latest_end=None, target_steps=40)


def free(found: Seen, passed: Passed | None = None) -> list[str]:
    return [turn.run.name for turn in turns(TOYS, RUNS, found, passed or Passed()).free]


def test_runs_that_have_begun_come_first_then_the_order_of_the_study() -> None:
    assert free(seen()) == ["base-s1", "big-s1", "huge-s1", "base-s2", "big-s2", "huge-s2"]
    begun = seen(state(TOYS, "huge-s2", 3), state(TOYS, "big-s1", 0))
    assert free(begun) == ["big-s1", "huge-s2", "base-s1", "huge-s1", "base-s2", "big-s2"]


def test_a_continuation_waits_for_its_run_and_comes_before_those_that_are_compared_with_it() -> None:
    waiting = {left.run.name: (left.why, left.detail) for left in turns(TOYS, RUNS, seen(), Passed()).left}
    assert waiting == {f"longer-s{seed}": (Why.WAITS, f"base-s{seed}") for seed in (1, 2)}
    done = seen(state(TOYS, "base-s1", 40))
    assert "longer-s1" in free(done) and "longer-s2" not in free(done)
    assert "longer-s1" in free(seen(), Passed(done={"base-s1": 40}))


@pytest.mark.parametrize(
    ("change", "why", "code"),
    [
        ({"holder": HELD}, Why.HELD, Exit.LEASE_HELD),
        ({"halted": "nan"}, Why.HALTED, Exit.BAD_DATA),
        ({"archived": NOW}, Why.ARCHIVED, Exit.OK),
        ({"deleted": NOW}, Why.ARCHIVED, Exit.OK),
        ({"step": 40}, Why.DONE, Exit.OK),
    ],
)
def test_a_run_is_passed_by_and_named(change: dict[str, object], why: Why, code: Exit) -> None:
    found = turns(TOYS, [run(TOYS, "base-s1")], seen(state(TOYS, "base-s1", 5).model_copy(update=change)), Passed())
    assert not found.free and [(one.run.name, one.why) for one in found.left] == [("base-s1", why)]
    assert found.exit_code == code


def at_target(name: str, *readings: str, target: int = 40) -> RunState:
    """A run at step 40 with the results of these readings."""
    return state(TOYS, name, 40, {f"{one}/exact_accuracy": 0.5 for one in readings}, target_steps=target)


def test_a_run_that_lacks_its_test_comes_after_all_that_can_be_trained() -> None:
    """`base` has a second reading. A session of a run whose target was raised would train it further."""
    assert TOYS.tests(run(TOYS, "base-s1")) == ["test", "test_raw"] and TOYS.tests(run(TOYS, "big-s1")) == ["test"]
    found = seen(
        at_target("base-s1", "test"),
        at_target("base-s2", "test", "test_raw"),
        at_target("big-s1"),
        at_target("big-s2", "test"),
        at_target("huge-s1", target=50),
    )
    assert free(found) == ["longer-s1", "longer-s2", "huge-s2", "base-s1", "big-s1"]
    passed = Passed()
    last = turns(TOYS, RUNS, found, passed).free
    assert [turn.trained for turn in last] == [False, False, False, True, True]
    assert set(passed.done) == {"base-s2", "big-s2", "huge-s1"}


def test_a_damaged_run_is_named_too() -> None:
    damaged = Seen({"base-s1": RegisteredRun("toys", "base-s1", 0, trouble=BadData("slot 3 is empty"))}, NOW)
    found = turns(TOYS, [run(TOYS, "base-s1")], damaged, Passed())
    assert [(one.why, one.detail) for one in found.left] == [(Why.UNREADABLE, "slot 3 is empty")]
    assert found.exit_code == Exit.BAD_DATA


def test_a_lease_that_expired_or_whose_session_died_here_does_not_keep_a_run() -> None:
    held = state(TOYS, "base-s1", 5).model_copy(update={"holder": HELD})
    for now, dead, expected in ((NOW + 59, False, Why.HELD), (NOW + 61, False, None), (NOW, True, None)):
        found = Seen({"base-s1": registered(held)}, now, lambda session, dead=dead: dead)
        left = turns(TOYS, [run(TOYS, "base-s1")], found, Passed()).left
        assert [one.why for one in left] == ([expected] if expected else [])


def test_the_code_of_what_is_left_is_73_while_others_train() -> None:
    states = [state(TOYS, one.name, one.point.steps) for one in RUNS[2:]]
    halted = state(TOYS, "base-s1", 5, halted="nan")
    held = state(TOYS, "big-s1", 5).model_copy(update={"holder": HELD})
    assert turns(TOYS, RUNS, seen(*states, halted, held), Passed()).exit_code == Exit.LEASE_HELD
    whole = state(TOYS, "big-s1", 40)
    assert turns(TOYS, RUNS, seen(*states, halted, whole), Passed()).exit_code == Exit.BAD_DATA
    assert turns(TOYS, RUNS, seen(*states, state(TOYS, "base-s1", 40), whole), Passed()).exit_code == Exit.OK
    changed = Passed(changed={"base-s1": "lr"})
    assert turns(TOYS, RUNS, seen(*states, state(TOYS, "base-s1", 5), whole), changed).exit_code == Exit.BAD_CONFIG


class Named(Client):
    """A session of a run of the study's project."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        super().__init__(store, 1)
        self.ledger = RunLedger(store, "toys", name, self.runtime)

    def begin_named(self, told: Genesis) -> None:
        self.ledger.begin(told, session=self.session)
        self.lease()


def test_sixty_runs_cost_one_listing_and_two_reads_each() -> None:
    store = MemoryStore(clock=lambda: NOW)
    names = [f"point{n}-s0" for n in range(60)]
    for name in names:
        Named(store, name).begin_named(genesis("toys", name))
    Named(store, "other").ledger.begin(genesis("toys", "other"), session=id_of(3))
    counting = CountingStore(store)
    found = listed_runs(pair_of(counting), "toys")
    assert set(found) == {*names, "other"}
    assert [name for name, one in found.items() if not (one.found and one.found.state.holder)] == ["other"]
    assert counting.reads <= 2 * len(found) and counting.counts["list"] == 1
    before = counting.reads
    listed_runs(pair_of(counting), "toys", leave_out=names)
    assert counting.reads - before <= 2
    assert listed_runs(pair_of(MemoryStore()), "toys") == {}


def test_a_listing_s_heartbeat_is_the_sign_of_life() -> None:
    now = [NOW]
    store = MemoryStore(clock=lambda: now[0])
    Named(store, "base-s1").begin_named(genesis("toys", "base-s1"))
    now[0] += 500
    store.put("runs/toys/base-s1/heartbeat.1", b"{}")
    (one,) = listed_runs(pair_of(store), "toys").values()
    assert one.found and one.found.training(now[0] + 59) == "account_1" and one.found.training(now[0] + 300) is None
