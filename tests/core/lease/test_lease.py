"""The next writer: takeover timing, one winner, fencing, with any reading of the clocks."""

from __future__ import annotations

from itertools import pairwise

import pytest

from relay.core.errors import Exit, Fenced
from relay.core.lease.blockers import CLOSE_S, POLL_S, SOON_S, Held, HeldBy, Watch
from relay.core.lease.heartbeat import request_stop
from relay.core.lease.lease import Lease, LeaseRequest
from relay.core.ledger.frozen import ASKED_TO_STOP, SILENT
from relay.core.ledger.state import Holder
from relay.core.session.context import Context, Outcome
from relay.core.session.session import run_session
from storage.base import QuotaExceeded
from tests.core.lab import PROJECT, FakeLocks, Lab, Session, down, said
from tests.core.making import Client, begun
from tests.core.toy import ToyWorkload, hash_of, state_at
from tests.rehash import held

TTL = 180.0


def holder(**changes: object) -> Holder:
    usual = Holder(session="a" * 32, account="alice", epoch=3, since=1000.0, ttl_s=TTL, latest_end=None, target_steps=9)
    return usual.model_copy(update=changes)


def test_a_holder_is_dead_only_after_ttl_of_store_time_and_a_third_of_our_own() -> None:
    watch = Watch()
    assert isinstance(watch.look(holder(), 1000.0, 1100.0, 0.0), Held)
    assert isinstance(watch.look(holder(), 1000.0, 1181.0, 59.0), Held), "old enough, but not watched for TTL/3"
    assert watch.look(holder(), 1000.0, 1182.0, 60.0) is None


def test_any_sign_of_life_starts_the_watch_again() -> None:
    watch = Watch()
    watch.look(holder(), 1000.0, 1500.0, 0.0)
    held = watch.look(holder(), 1400.0, 1590.0, 90.0)
    assert isinstance(held, Held) and not held.confirming, "it was seen to move: alive"
    assert watch.look(holder(), 1400.0, 1650.0, 150.0) is None


def test_a_holder_that_is_new_has_not_been_seen_to_move() -> None:
    watch = Watch()
    watch.look(holder(), 1000.0, 1100.0, 0.0)
    held = watch.look(holder(epoch=4), 1100.0, 1500.0, 30.0)
    assert isinstance(held, Held) and held.confirming, "a sign of another one is none of its life"


def test_past_its_latest_end_heartbeats_do_not_help() -> None:
    late = holder(latest_end=2000.0)
    assert isinstance(Watch().look(late, 2055.0, 2059.0, 0.0), Held)
    assert Watch().look(late, 2060.0, 2061.0, 0.0) is None


def test_of_two_started_at_once_one_trains_and_the_other_exits_73(lab: Lab) -> None:
    one, two = lab.session("alice").start(), lab.session("bob").start()
    lab.world.run()
    codes = sorted([one.outcome.exit_code, two.outcome.exit_code])
    assert codes == [Exit.OK, Exit.LEASE_HELD]
    loser = one if one.outcome.exit_code == Exit.LEASE_HELD else two
    assert not loser.workload.trained
    assert not [call for call in loser.store.calls if call[0] in ("put", "delete")], "it touched nothing"
    held = loser.outcome.failure
    assert isinstance(held, HeldBy) and (held.project, held.run) == (PROJECT, "chain")
    assert held.account == ("bob" if loser is one else "alice") and "--wait" in said(loser.outcome)


def test_with_wait_the_second_goes_on_where_the_first_ended(lab: Lab) -> None:
    seen: list[Held] = []
    one = lab.session("alice", target_steps=50).start()
    two = lab.session("bob", wait_s=600.0)
    two.ctx.listener.held = seen.append
    lab.world.at(lab.world.now + 1, lambda: two.start())
    lab.world.at(lab.world.now + 2, lambda: None)
    lab.world.run()
    lab.world.run()
    assert (one.outcome.exit_code, two.outcome.exit_code) == (Exit.OK, Exit.OK)
    assert two.outcome.from_step == 50
    assert seen and seen[0].holder.account == "alice" and seen[0].left_s > 0


def test_a_wait_looks_more_often_only_as_the_holder_s_budget_ends(lab: Lab) -> None:
    """The lease was free for up to 15 s, while two GPUs waited for it."""
    slow = {"target_steps": 10**6, "every_steps": 10**6}
    one = lab.session("alice", budget_s=200, workload=ToyWorkload(step_s=2.0), **slow).start()
    two = lab.session("bob", budget_s=260, workload=ToyWorkload(step_s=2.0), wait_s=600.0, **slow)
    looks: list[float] = []
    reads: list[int] = []

    def called(verb: str, name: str) -> None:
        if verb == "now":
            looks.append(lab.world.now - began)
        if verb == "put_if_absent" and "ledger" in name:
            reads.append(sum(verb == "get" for verb, _ in two.store.calls))

    two.store.fail = called
    began = lab.world.now
    lab.world.at(began + 1, two.start)
    lab.world.run()
    lab.world.run()
    free, taken = began + one.outcome.total_s, lab.state().links[1].started
    waiting = [at for at in looks if at < free - began]
    assert len(waiting) > 10 and min(b - a for a, b in pairwise(waiting)) >= POLL_S, "as often as ever"
    assert reads[0] - len(waiting) <= CLOSE_S / SOON_S + 10, "and the log alone, at the end"
    assert one.outcome.exit_code == two.outcome.exit_code == Exit.HANDOFF
    assert 0 <= taken - free < SOON_S + 1
    assert two.outcome.waited_s == pytest.approx(taken - began - 1, abs=3)
    assert two.outcome.start_s < 3 and two.outcome.goodput > 0.9


def kill_mid_way(lab: Lab, **options: object) -> Session:
    session = lab.session("alice", **options).start()
    lab.world.at(lab.world.now + 5.5, session.process.kill)
    lab.world.run()
    return session


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_a_dead_holder_is_superseded_in_time_under_a_clock_one_hour_wrong(lab: Lab, skew: float) -> None:
    kill_mid_way(lab, skew=-skew)
    died = lab.world.now
    two = lab.session("bob", wait_s=3600.0, skew=skew).start()
    began: list[float] = []
    two.workload.sleep = lambda s: (began.append(lab.world.now), two.process.sleep(s))
    lab.world.run()
    assert two.outcome.exit_code == Exit.OK
    assert TTL - 40 < began[0] - died < TTL + 40
    assert lab.state().links[0].end == SILENT


def test_without_wait_a_fresh_silence_is_no_death(lab: Lab) -> None:
    kill_mid_way(lab)
    before = lab.world.now
    outcome = lab.run(lab.session("bob"))
    assert outcome.exit_code == Exit.LEASE_HELD
    assert lab.world.now - before < 5


def test_without_wait_a_long_silence_is_confirmed_and_taken_over(lab: Lab) -> None:
    kill_mid_way(lab)
    lab.world.now += 1000
    before = lab.world.now
    two = lab.session("bob").start()
    lab.world.run()
    assert two.outcome.exit_code == Exit.OK
    assert lab.world.now - before > TTL / 3, "two looks, a third of the TTL apart"


def test_a_dead_process_of_the_same_machine_is_superseded_at_once(lab: Lab) -> None:
    locks = FakeLocks()
    one = lab.session("alice")
    one.ctx.locks = locks.of(one.process)
    one.start()
    lab.world.at(lab.world.now + 5.5, one.process.kill)
    lab.world.run()
    two = lab.session("alice")
    two.ctx.locks = locks.of(two.process)
    before = lab.world.now
    assert lab.run(two).exit_code == Exit.OK
    assert lab.world.now - before < 15
    assert lab.state().epoch == 2, "every process takes a new epoch"


@pytest.mark.parametrize("times", [1, 2])
def test_a_lease_that_was_not_given_back_does_not_keep_its_own_machine_waiting(lab: Lab, times: int) -> None:
    """A second Ctrl-C waits for nothing, so the ledger may name a holder that is gone: its lock must show that."""
    locks = FakeLocks()
    one = lab.session("alice", delay_s=5.0 if times == 2 else 0.01, target_steps=10_000, every_steps=200)
    one.ctx.locks = locks.of(one.process)
    one.start()
    for n in range(times):
        lab.world.at(lab.world.now + 120 + n, lambda: one.ctx.signal.ask("sigint"))
    lab.world.at(lab.world.now + (122 if times == 2 else 1000), one.process.kill)
    lab.world.run()
    assert (lab.state().holder is not None) == (one.ctx.session in locks.held) == (times == 2)
    two = lab.session("alice", target_steps=lab.state().step + 10)
    two.ctx.locks = locks.of(two.process)
    before = lab.world.now
    assert lab.run(two).exit_code == Exit.OK and lab.world.now - before < 15


def test_i5_a_session_suspended_and_superseded_is_fenced_and_changes_nothing(lab: Lab) -> None:
    one = lab.session("alice", target_steps=100_000, machine="a").start()
    lab.world.at(lab.world.now + 5.55, lambda: one.process.suspend(2000))
    two = lab.session("bob", wait_s=1000.0, target_steps=100)
    lab.world.at(lab.world.now + 10, lambda: two.start())
    lab.world.run()
    if two.process.outcome is None:
        lab.world.run()
    assert one.outcome.exit_code == Exit.FENCED
    assert two.outcome.exit_code == Exit.OK
    state = lab.state()
    assert (state.step, state.epoch, state.links[-1].account) == (100, 2, "bob")
    assert "bob" in said(one.outcome) or "epoch" in said(one.outcome)
    assert [held(lab.shared, c) for c in state.retained] == [hash_of(c.step, state_at(c.step)) for c in state.retained]


def test_a_look_at_the_tail_tells_that_the_lease_was_taken() -> None:
    store, client = begun()
    wish = LeaseRequest(session=client.session, account=client.account, ttl_s=TTL, target_steps=9)
    mine = Lease(client.ledger, client.runtime, wish, client.ledger.read(), 0.0)
    assert not mine.superseded() and mine.lost is None
    Client(store, 2).lease()
    mine.refresh()  # as a clean-up does, which does not ask whether the lease is over
    assert isinstance(mine.lost, Fenced) and mine.superseded()


def test_a_session_suspended_past_its_lease_goes_on_if_nobody_took_it(lab: Lab) -> None:
    one = lab.session("alice").start()
    lab.world.at(lab.world.now + 5.55, lambda: one.process.suspend(5000))
    lab.world.run()
    assert one.outcome.exit_code == Exit.OK
    assert lab.state().step == 100 and lab.state().epoch == 1


def test_a_hung_session_can_be_superseded(lab: Lab) -> None:
    workload = ToyWorkload()
    one = lab.session("alice", workload=workload, target_steps=100)
    normal = workload.sleep
    workload.sleep = lambda s: normal(1e6 if workload.step == 55 else s)
    one.start()
    two = lab.session("bob", wait_s=3600.0)
    lab.world.at(lab.world.now + 60, lambda: two.start())
    lab.world.at(lab.world.now + 5000, one.process.kill)
    lab.world.run()
    assert two.outcome.exit_code == Exit.OK and lab.state().links[-1].account == "bob"


def test_a_slow_step_is_no_hang(lab: Lab) -> None:
    one = lab.session("alice", workload=ToyWorkload(step_s=100.0), target_steps=8, every_steps=2).start()
    two = lab.session("bob", wait_s=700.0)
    lab.world.at(lab.world.now + 20, lambda: two.start())
    lab.world.run()
    assert (one.outcome.exit_code == Exit.OK and lab.state().epoch == 1) or two.outcome.epoch == 2
    assert one.outcome.exit_code == Exit.OK


def test_a_stop_request_ends_the_holder_as_planned(lab: Lab) -> None:
    one = lab.session("alice", target_steps=10_000, every_steps=200).start()
    lab.world.at(lab.world.now + 50, lambda: request_stop(lab.shared, one.ctx.names, 1, "bob asks"))
    lab.world.run()
    assert one.outcome.exit_code == Exit.HANDOFF and one.ctx.signal.note == "bob asks"
    assert lab.state().links[-1].end == ASKED_TO_STOP


def test_losing_heartbeats_only_matters_if_somebody_takes_over(lab: Lab) -> None:
    one = lab.session("alice", target_steps=6000, every_steps=5000)
    one.store.fail = lambda verb, name: down(verb, name) if "heartbeat" in name else None
    outcome = lab.run(one)
    assert outcome.exit_code == Exit.OK and lab.state().step == 6000


@pytest.mark.parametrize(("reason", "code"), [("sigterm", 143), ("sigint", 130), ("stop", 75)])
def test_a_signal_ends_the_wait_within_a_second_and_without_a_lease(lab: Lab, reason: str, code: int) -> None:
    one = lab.session(target_steps=10_000, every_steps=500)
    one.start()
    two = lab.session("bob", wait_s=3600.0)
    ended: list[float] = []

    def run(ctx: Context) -> Outcome:
        outcome = run_session(ctx)
        ended.append(lab.world.now)
        return outcome

    lab.world.at(lab.world.now + 5, lambda: two.start(run))
    asked = lab.world.now + 40.3
    lab.world.at(asked, lambda: two.ctx.signal.ask(reason))
    lab.world.at(asked + 60, one.process.kill)
    lab.world.run()
    assert two.outcome.exit_code == code, said(two.outcome)
    assert ended[0] - asked < 1.0
    assert lab.state().epoch == 1 and not two.workload.trained


def test_a_wait_never_outlasts_the_budget(lab: Lab) -> None:
    one = lab.session(target_steps=10_000, every_steps=500)
    one.start()
    two = lab.session("bob", wait_s=3600.0, budget_s=100.0)
    began, ended = lab.world.now, []
    lab.world.at(began + 5, lambda: two.start(lambda ctx: (run_session(ctx), ended.append(lab.world.now))[0]))
    lab.world.at(began + 200, one.process.kill)
    lab.world.run()
    assert two.outcome.exit_code == Exit.LEASE_HELD
    assert ended[0] - began <= 101


def test_a_sign_from_the_future_counts_for_one_ttl_of_our_own_clock() -> None:
    watch = Watch()
    held = watch.look(holder(), 37000.0, 1100.0, 0.0)
    assert held is not None and (held.left_s, held.silent_s, held.confirming) == (TTL, 0.0, True)
    assert watch.look(holder(), 37000.0, 1279.0, 179.0) is not None
    moved = watch.look(holder(), 1280.0, 1280.0, 180.0)
    assert moved is not None and not moved.confirming, "the holder beats on under the corrected clock"
    again = Watch()
    again.look(holder(), 37000.0, 1100.0, 0.0)
    assert again.look(holder(), 37000.0, 1280.0, 180.0) is None


@pytest.mark.parametrize("wait_s", [0.0, 3600.0])
def test_a_clock_that_was_ahead_and_was_corrected_locks_nobody_out(lab: Lab, wait_s: float) -> None:
    kill_mid_way(lab)
    lab.world.now -= 36_000
    before = lab.world.now
    assert lab.run(lab.session("bob", wait_s=wait_s)).exit_code == Exit.OK
    assert TTL < lab.world.now - before < TTL + 60
    link = lab.state().links[0]
    assert link.end == SILENT and link.seconds < 6


def test_a_heartbeat_decades_ahead_is_no_crash_at_the_latest_end(lab: Lab) -> None:
    kill_mid_way(lab, budget_s=300)
    lab.shared._shelf.objects[f"runs/{PROJECT}/chain/heartbeat.1"] = (b"{}", lab.world.now + 2e9)
    lab.world.now += 86_400
    assert lab.run(lab.session("bob")).exit_code == Exit.OK
    assert lab.state().links[0].seconds < 2 * 86_400


def test_i7_what_a_superseded_session_keeps_never_continues_the_steps_of_its_successor(lab: Lab) -> None:
    """It read the ledger for clean-up, then saved a snapshot: that named the successor's head as what it follows."""
    one = lab.session("alice", target_steps=21, machine="a")
    one.workload.step_s = 1.0
    two = lab.session("bob", wait_s=1000.0, target_steps=15)

    def full(verb: str, name: str) -> None:
        if verb == "put" and name.endswith("step_20.e1/manifest.json"):
            lab.world.at(lab.world.now, lambda: one.process.suspend(2000))
            lab.world.at(lab.world.now + 1, two.start)
            one.process.sleep(1)
        if two.process.outcome is not None and verb == "put" and name.startswith("checkpoints/"):
            raise QuotaExceeded("full")

    one.store.fail = full
    one.start()
    lab.world.run(to_the_end=True)
    assert one.outcome.exit_code == Exit.FENCED and lab.state().head.key == (15, 2)
    kept = [packed for packed in one.ctx.local_folder.all() if packed.step > 15]
    assert kept and all(packed.parent == (10, 1) for packed in kept)
    assert one.ctx.local_folder.pushable(lab.state()) is None
