"""Storage and disk trouble while training: nothing stops, nothing is lost, memory stays bounded (P6)."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable

import pytest

from relay.core.checkpoint.committer import CommitterDied, Item
from relay.core.errors import Exit
from relay.core.events import Trouble
from relay.core.session.ending import NotKept
from relay.core.session.report import Recorded
from relay.core.session.session import push
from storage.base import Denied, QuotaExceeded, StoreError, Unavailable
from tests.core.fake_runtime import Killed
from tests.core.lab import Lab, Session, down, said
from tests.core.toy import ToySnapshot, ToyWorkload, hash_of, state_at


def break_between(lab: Lab, session: Session, start: float, end: float, how: Callable[[str, str], None] = down) -> None:
    """The store fails for `session` from `start` to `end` seconds from now."""
    was = session.store.fail
    lab.world.at(lab.world.now + start, lambda: setattr(session.store, "fail", how))
    lab.world.at(lab.world.now + end, lambda: setattr(session.store, "fail", was))


def refuses(error: StoreError) -> Callable[[str, str], None]:
    def fail(verb: str, name: str) -> None:
        if not verb.startswith("after-"):
            raise error

    return fail


@pytest.mark.parametrize("error", [Unavailable("down"), Denied("no permission"), QuotaExceeded("full")])
def test_training_goes_on_while_the_store_fails_and_commits_catch_up(lab: Lab, error: StoreError) -> None:
    session = lab.session(target_steps=4000, every_steps=100)
    break_between(lab, session, 25, 225, refuses(error))
    began = lab.world.now
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.OK and lab.state().step == 4000
    assert outcome.train_s == pytest.approx(400, rel=0.02)
    assert lab.world.now - began < 440, "training never waited for the store"
    assert outcome.replaced >= 8, "snapshots coalesced"
    assert any("Storage trouble" in line for line in session.told)
    assert lab.held() == hash_of(4000, state_at(4000))


def test_at_most_three_snapshots_are_alive_while_the_store_is_down(lab: Lab) -> None:
    alive: weakref.WeakSet[object] = weakref.WeakSet()
    most = 0

    class Counting(ToyWorkload):
        def snapshot(self) -> ToySnapshot:
            nonlocal most
            taken = super().snapshot()
            alive.add(taken)
            most = max(most, len(alive))
            return taken

    session = lab.session(workload=Counting(), target_steps=900, every_steps=10)
    break_between(lab, session, 5, 60)
    lab.run(session)
    assert 2 <= most <= 3


def test_local_copies_stay_bounded_while_the_store_is_down(lab: Lab) -> None:
    session = lab.session(target_steps=2000, every_steps=10)
    break_between(lab, session, 5, 150)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, len(session.ctx.local_folder.all()))

    for second in range(10, 150, 5):
        lab.world.at(lab.world.now + second, look)
    lab.run(session)
    assert most <= 3
    assert [packed.step for packed in session.ctx.local_folder.all()] == [2000], "the newest one's backup stays"


def test_an_hour_without_the_store_costs_no_memory_and_no_step(lab: Lab) -> None:
    """Alive at most: three snapshots, three local copies, and one printed line for each kind of trouble."""
    alive: weakref.WeakSet[object] = weakref.WeakSet()
    most = {"snapshots": 0, "copies": 0}

    class Counting(ToyWorkload):
        def snapshot(self) -> ToySnapshot:
            taken = super().snapshot()
            alive.add(taken)
            most["snapshots"] = max(most["snapshots"], len(alive))
            return taken

    session = lab.session(workload=Counting(step_s=2.0), target_steps=2000, every_steps=10)
    break_between(lab, session, 100, 3700)

    def look() -> None:
        most["copies"] = max(most["copies"], len(session.ctx.local_folder.all()))

    for second in range(100, 3700, 60):
        lab.world.at(lab.world.now + second, look)
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.OK and lab.state().step == 2000
    assert outcome.train_s == pytest.approx(4000, rel=0.02), "training never waited"
    assert outcome.replaced >= 60, "snapshots coalesced"
    assert most["snapshots"] <= 3 and most["copies"] <= 3
    assert len([line for line in session.told if "trouble" in line]) <= 3
    assert lab.held() == hash_of(2000, state_at(2000))


def test_a_failed_final_upload_is_74_and_the_next_run_there_commits_it(lab: Lab) -> None:
    session = lab.session("alice", machine="a", budget_s=40, target_steps=1000, every_steps=50)
    break_between(lab, session, 20, 100_000)
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.UPLOAD_FAILED
    assert outcome.unsent is not None and (outcome.unsent / "state.json").exists()
    assert str(outcome.unsent) in said(outcome) and "push --run chain" in said(outcome)
    assert lab.state().links[-1].end == "open", "nothing could be said any more"
    kept = int(outcome.unsent.name.split("_")[1].split(".")[0])
    assert kept > outcome.durable_step
    lab.world.now += 1000
    after = lab.run(lab.session("alice", machine="a", target_steps=500))
    assert after.exit_code == Exit.OK
    ends = {link.epoch: (link.from_step, link.to_step) for link in lab.state().links}
    assert ends[2] == (outcome.durable_step, 500)
    assert lab.held() == hash_of(500, state_at(500))
    assert any(f"Committed step {kept:,}" in line for line in lab.told), lab.told


def test_push_commits_an_unsent_checkpoint_without_training(lab: Lab) -> None:
    session = lab.session("alice", machine="a", budget_s=40, target_steps=1000, every_steps=50)
    break_between(lab, session, 20, 100_000)
    kept = lab.run(session)
    lab.world.now += 1000
    pusher = lab.session("alice", machine="a").start(push)
    lab.world.run()
    assert pusher.outcome.exit_code == Exit.OK and not pusher.workload.trained
    assert f"step_{lab.state().step}.e1" == kept.unsent.name
    assert lab.state().head.epoch == 2 and lab.state().holder is None


def test_an_unsent_checkpoint_is_kept_but_not_committed_once_the_run_went_on(lab: Lab) -> None:
    session = lab.session("alice", machine="a", budget_s=40, target_steps=1000, every_steps=50)
    break_between(lab, session, 20, 100_000)
    kept = lab.run(session).unsent
    lab.world.now += 1000
    lab.run(lab.session("bob", target_steps=lab.state().step + 20))
    between = lab.state().step
    outcome = lab.run(lab.session("alice", machine="a", target_steps=between + 30))
    assert outcome.exit_code == Exit.OK and lab.state().links[-1].from_step == between
    assert kept.exists(), "kept for fork"


def test_a_full_disk_while_training_is_waited_out(lab: Lab) -> None:
    full = {"now": False}

    def before_save() -> None:
        if full["now"]:
            raise OSError(errno.ENOSPC, "No space left on device")

    session = lab.session(workload=ToyWorkload(before_save=before_save), target_steps=600)
    lab.world.at(lab.world.now + 5, lambda: full.update(now=True))
    lab.world.at(lab.world.now + 30, lambda: full.update(now=False))
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.OK and lab.state().step == 600
    assert any("No space left" in line for line in session.told)


def test_a_disk_full_to_the_end_is_74_and_says_what_is_lost(lab: Lab) -> None:
    def before_save() -> None:
        if lab.world.now > began + 5:
            raise OSError(errno.ENOSPC, "No space left on device")

    began = lab.world.now
    session = lab.session(workload=ToyWorkload(before_save=before_save), budget_s=30, target_steps=9999)
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.UPLOAD_FAILED and outcome.unsent is None
    lost = outcome.failure
    assert isinstance(lost, NotKept) and lost.durable == outcome.durable_step
    assert lost.disk is not None and lost.disk.errno == errno.ENOSPC
    assert lab.world.now - began < 30


@pytest.mark.parametrize("verb", ["put_if_absent", "after-put_if_absent"])
def test_an_append_of_unknown_outcome_lands_once(lab: Lab, verb: str) -> None:
    session = lab.session(target_steps=60)
    lost = iter(range(3))

    def fail(this: str, name: str) -> None:
        if this == verb and lab.world.now > began + 2 and next(lost, None) is not None:
            raise Unavailable("no reply")

    began, session.store.fail = lab.world.now, fail
    assert lab.run(session).exit_code == Exit.OK
    commits = [kind for kind in lab.kinds() if kind == "commit"]
    assert len(commits) <= 6 and lab.state().step == 60


def test_i9_a_non_finite_state_never_becomes_head_and_halts_the_run_the_second_time(lab: Lab) -> None:
    first = lab.run(lab.session("alice", workload=ToyWorkload(nan_at=44)))
    assert first.exit_code == Exit.BAD_DATA and first.durable_step == 40
    assert isinstance(first.failure, Recorded) and "nan" in said(first) and "50" in said(first)
    second = lab.run(lab.session("bob", workload=ToyWorkload(nan_at=44)))
    assert second.exit_code == Exit.BAD_DATA and "halted" in said(second)
    state = lab.state()
    assert state.step == 40 and state.halted and "learning rate" in state.halted
    third = lab.session("carol", workload=ToyWorkload(nan_at=44))
    assert lab.run(third).exit_code == Exit.BAD_DATA
    assert not third.workload.trained and lab.state().epoch == 2


def test_another_failure_between_does_not_halt(lab: Lab) -> None:
    lab.run(lab.session("alice", workload=ToyWorkload(nan_at=44)))
    lab.run(lab.session("bob", workload=ToyWorkload(nan_at=44, environment={"device": "other"})))
    assert lab.state().halted is None


def test_a_crash_of_the_training_loop_is_recorded_and_twice_halts(lab: Lab) -> None:
    class OutOfMemoryError(RuntimeError):
        """As an accelerator's library names it."""

    for account in ("alice", "bob"):
        session = lab.session(account, workload=ToyWorkload(crash={44: OutOfMemoryError("at /home/someone")}))
        session.start()
        with pytest.raises(OutOfMemoryError):
            lab.world.run()
    state = lab.state()
    assert state.incidents[-1].cause == "out-of-memory" and "home" not in state.incidents[-1].text
    assert state.halted and "memory" in state.halted
    assert state.holder is None, "the lease was given back"


def test_the_committing_thread_dying_ends_the_session(lab: Lab) -> None:
    def explode(item: Item) -> None:
        raise ZeroDivisionError

    session = lab.session(target_steps=100_000)
    session.workload.before_save = lambda: explode(None)
    session.start()
    with pytest.raises(ZeroDivisionError):
        lab.world.run()


def test_a_committing_thread_that_dies_is_a_crash_and_twice_halts(lab: Lab) -> None:
    """The same snapshot kills it each time: without an entry of the ledger sessions would come and go for ever."""

    def die() -> None:
        raise Killed

    for account in ("alice", "bob"):
        session = lab.session(account, target_steps=100_000)
        session.workload.before_save = die
        assert lab.run(session).exit_code == Exit.BUG
        assert isinstance(session.outcome.failure, CommitterDied)
    state = lab.state()
    assert [(i.cause, i.step) for i in state.incidents if i.cause == "crash"] == [("crash", 10)] * 2
    assert state.halted and state.holder is None


def test_an_error_of_cleaning_ends_no_session(lab: Lab) -> None:
    """The commit has landed by then."""
    session = lab.session(target_steps=60)

    def fail(verb: str, name: str) -> None:
        if verb == "list" and name.startswith("checkpoints/") and lab.state().step > 0:
            raise ZeroDivisionError

    session.store.fail = fail
    assert lab.run(session).exit_code == Exit.OK and lab.state().step == 60
    assert next(event.doing for event in session.heard.events if isinstance(event, Trouble)) == "cleaning"
    assert lab.state().halted is None and lab.state().failures == ()


def test_a_file_that_rots_on_this_disk_before_it_is_sent_is_never_committed(lab: Lab) -> None:
    session = lab.session(target_steps=60, every_steps=10)

    def rot(verb: str, name: str) -> None:
        if verb == "put" and name.endswith("step_20.e1/state.json"):
            path = session.ctx.local_folder.folder((20, 1)) / "state.json"
            path.write_text(path.read_text().replace("1", "2"))

    session.store.fail = rot
    assert lab.run(session).exit_code == Exit.OK
    assert any("state.json" in line and "step 20 " in line for line in session.told)
    assert lab.state().step == 60 and 20 not in {c.step for c in lab.state().retained}
    assert lab.held() == hash_of(60, state_at(60))
