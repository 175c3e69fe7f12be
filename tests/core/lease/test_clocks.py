"""No clock of any machine decides anything: hours wrong or jumping mid-run, the same lease and bits; only a warning."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from relay.app.machine.env import detect
from relay.app.machine.skew import skew, skew_text
from relay.core.clock import RealRuntime
from relay.core.errors import Exit
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.core.fake_runtime import World
from tests.core.lab import Lab
from tests.core.toy import ToyWorkload, hash_of, state_at

HOUR = 3600.0


@pytest.mark.parametrize("first", [-HOUR, HOUR])
@pytest.mark.parametrize("second", [-HOUR, 0.0, HOUR])
def test_machines_with_clocks_an_hour_fast_and_slow_hand_off_exactly(lab: Lab, first: float, second: float) -> None:
    assert lab.run(lab.session(target_steps=30, skew=first)).exit_code == Exit.OK
    done = lab.run(lab.session("bob", target_steps=60, skew=second))
    assert (done.exit_code, done.from_step, done.certified) == (Exit.OK, 30, "exact")
    state = lab.state()
    assert lab.held() == hash_of(60, state_at(60))
    assert abs(state.updated - lab.world.now) < 60, "times in the ledger are the store's"
    assert all(abs(link.started - lab.world.now) < 600 for link in state.links)


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
def test_a_living_holder_keeps_its_lease_whatever_hour_two_machines_think_it_is(lab: Lab, wrong: float) -> None:
    plan = {"target_steps": 60, "ttl_s": 60.0}
    holder = lab.session(skew=wrong, workload=ToyWorkload(step_s=5.0), **plan).start()
    challenger = lab.session("bob", skew=-wrong, wait_s=200.0, workload=ToyWorkload(step_s=5.0), **plan)
    lab.world.at(lab.world.now + 25.0, challenger.start)
    lab.world.run()
    assert (holder.outcome.exit_code, challenger.outcome.exit_code) == (Exit.OK, Exit.LEASE_HELD), holder.outcome
    assert lab.state().epoch == 1 and challenger.workload.trained == []


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_machines_clock_that_jumps_mid_run_changes_nothing(lab: Lab, jump: float) -> None:
    session = lab.session(target_steps=60, budget_s=600.0)
    for moment in (1.0, 3.0):
        lab.world.at(lab.world.now + moment, lambda: setattr(session.process, "skew", session.process.skew + jump))
    assert lab.run(session).exit_code == Exit.OK
    assert lab.held() == hash_of(60, state_at(60))
    assert session.process.skew == 2 * jump, "it jumped while the session ran"


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_stores_clock_that_jumps_takes_no_lease_from_a_living_holder(lab: Lab, jump: float) -> None:
    """A jump makes a fresh heartbeat look an hour old, or from the future: the next beat proves the holder alive."""
    ahead = [0.0]
    lab.shared._clock = lambda: lab.world.now + ahead[0]
    plan = {"target_steps": 60, "ttl_s": 60.0}
    holder = lab.session(workload=ToyWorkload(step_s=5.0), **plan).start()
    challenger = lab.session("bob", wait_s=200.0, workload=ToyWorkload(step_s=5.0), **plan)
    lab.world.at(lab.world.now + 25.0, challenger.start)
    lab.world.at(lab.world.now + 53.0, lambda: ahead.__setitem__(0, jump))
    lab.world.run()
    assert holder.outcome.exit_code == Exit.OK, holder.outcome
    assert challenger.outcome.exit_code == Exit.LEASE_HELD and challenger.workload.trained == []
    assert lab.state().epoch == 1
    assert lab.held() == hash_of(60, state_at(60))


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_stores_clock_that_jumps_locks_nobody_out_after_a_death(lab: Lab, jump: float) -> None:
    ahead = [0.0]
    lab.shared._clock = lambda: lab.world.now + ahead[0]
    dead = lab.session(target_steps=1000, ttl_s=60.0).start()
    lab.world.at(lab.world.now + 10.0, dead.process.kill)
    lab.world.run()
    ahead[0], before = jump, lab.world.now
    challenger = lab.session("bob", target_steps=200, ttl_s=60.0, wait_s=300.0)
    assert lab.run(challenger).exit_code == Exit.OK and lab.state().epoch == 2
    assert lab.world.now - before < 60 + 60, "one TTL of its own clock at most, and the training"
    assert lab.held() == hash_of(200, state_at(200))


class Slow(Wrapper):
    """A store whose clock answers slowly."""

    def __init__(self, inner: MemoryStore, world: World, seconds: float) -> None:
        super().__init__(inner)
        self.world, self.seconds = world, seconds

    def now(self) -> float:
        self.world.now += self.seconds / 2
        told = self.inner.now()
        self.world.now += self.seconds / 2
        return told


@pytest.mark.parametrize(
    ("ahead", "slow", "said"),
    [
        (0.0, 0.1, None),
        (59.0, 0.1, None),
        (-59.0, 0.1, None),
        (62.0, 0.1, "62 s ahead of"),
        (-62.0, 0.1, "62 s behind"),
        (HOUR, 0.1, "1 h 00 min ahead of"),
        (-3 * HOUR, 0.1, "3 h 00 min behind"),
        (0.0, 300.0, None),
        (61.0, 300.0, None),
    ],
)
def test_a_warning_comes_past_60_seconds_and_never_of_a_slow_answer(
    ahead: float, slow: float, said: str | None
) -> None:
    world = World()
    store = Slow(MemoryStore(clock=lambda: world.now), world, slow)
    text = skew_text(skew(store, world.process(skew=ahead)))
    assert said in text if said and text else text is said, text


@pytest.mark.parametrize(("wrong", "said"), [(HOUR, "ahead of"), (-HOUR, "behind"), (30.0, None)])
def test_run_and_doctor_say_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float, said: str | None
) -> None:
    monkeypatch.setattr(RealRuntime, "wall", lambda self: time.time() + wrong)
    desk = Desk(tmp_path / "desk")
    done = desk.train(3, "--json")
    lines = [line for line in done.err.splitlines() if "CLOCK" in line]
    assert done.json["durable_step"] == 3 and len(lines) == bool(said)
    assert not said or said in lines[0]
    (found,) = [f for f in desk("doctor", "--run", "r", "--json").json["findings"] if f["subject"] == "clock"]
    assert found["ok"] is (said is None) and (not said or said in found["text"])
    assert bool(found["advice"]) is bool(said)


class Remote(Wrapper):
    """A store with a clock that readers can use too, as a server's."""

    clock_is_local = False

    def now(self) -> float:
        return time.time()


@pytest.mark.parametrize(("wrong", "said"), [(HOUR, "1 h 00 min ahead of"), (-HOUR, "1 h 00 min behind"), (50.0, None)])
def test_status_says_it_beside_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float, said: str | None
) -> None:
    desk = Desk(tmp_path / "desk")
    desk.train(3)
    wrap_stores(monkeypatch, Remote)
    monkeypatch.setattr(RealRuntime, "wall", lambda self: time.time() + wrong)
    told = desk("status", "--run", "r")
    assert told.err.count("CLOCK") == bool(said) and (not said or said in told.err)
    assert "step 3/" in told.out and "CLOCK" not in told.out
    assert desk("status", "--run", "r", "--json").json["step"] == 3


def test_a_clock_that_cannot_be_asked_is_no_reason_to_warn(tmp_path: Path) -> None:
    """A read-only store gives this machine's own time, which proves nothing."""
    desk = Desk(tmp_path / "desk")
    desk.train(3)
    world = World()
    local = MemoryStore("local", read_only=True, clock=lambda: world.now + HOUR)
    local.clock_is_local = True
    assert skew(local, world.process()) is None


def test_a_slow_clock_makes_no_job_younger_than_its_own_process(tmp_path: Path) -> None:
    """Otherwise a Slurm job with a clock an hour behind would plan past its end."""
    stat = tmp_path / "proc" / "self" / "stat"
    stat.parent.mkdir(parents=True)
    stat.write_text("7 (python) S " + " ".join(["0"] * 18) + " 100 0")
    (tmp_path / "proc" / "uptime").write_text("601.0 1.0")
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_START_TIME": "10000", "SLURM_JOB_END_TIME": "13600"}
    assert detect(environ, 10_000.0 - HOUR, tmp_path).age_s == pytest.approx(600.0)
    assert detect(environ, 10_900.0, tmp_path).age_s == pytest.approx(900.0)
