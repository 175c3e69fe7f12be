"""Which checkpoint is the newest, and which go: by the ledger and by number, never by how a name sorts or looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.app.checks.verify import verify
from relay.core.checkpoint.restore import read_manifest
from relay.core.checkpoint.retention import Keep
from relay.core.errors import Exit
from relay.core.ledger.ledger import RunLedger
from tests.app.cli import Desk
from tests.core.lab import PROJECT, RUN, Lab
from tests.core.toy import ToyWorkload, hash_of, state_at


class Far(ToyWorkload):
    """A toy that begins at a step far on, so that numbers grow a digit while it trains."""

    begins = 0

    def start(self) -> None:
        super().start()
        self.step = self.begins


def far(step: int) -> ToyWorkload:
    made = Far()
    made.begins = step
    return made


def whole(lab: Lab) -> bool:
    return verify(RunLedger(lab.shared, PROJECT, RUN, lab.world.process()), lab.shared).ok


def stored_steps(lab: Lab) -> set[int]:
    folders = {stat.name.split("/")[3] for stat in lab.shared.list(f"checkpoints/{PROJECT}/{RUN}/")}
    return {int(name.removeprefix("step_").split(".")[0]) for name in folders if name.startswith("step_")}


@pytest.mark.parametrize(("begins", "every"), [(9_700, 100), (400, 100), (1_500, 500), (99_700, 100)])
def test_steps_are_ordered_by_number_where_they_grow_a_digit(lab: Lab, begins: int, every: int) -> None:
    end = begins + 6 * every
    lab.run(lab.session(target_steps=end, every_steps=every, keep=Keep(2), workload=far(begins)))
    lab.world.now += 7200
    lab.run(lab.session("bob", target_steps=end + 2 * every, every_steps=every, keep=Keep(2)))
    state = lab.state()
    assert [c.step for c in state.retained] == [end + every, end + 2 * every]
    assert state.head.step == end + 2 * every == max(stored_steps(lab))
    assert min(stored_steps(lab)) >= end - every, "the numerically oldest went"
    assert whole(lab)


@pytest.mark.parametrize("name", ["step_900.e2", "step_100.e1", "step_99999.e1", "latest", "step_0900.e1"])
def test_a_folder_that_looks_newest_is_nothing_without_an_entry(lab: Lab, name: str) -> None:
    lab.run(lab.session(target_steps=40))
    for file in ("state.json", "ema.json", "manifest.json"):
        stored = f"checkpoints/{PROJECT}/{RUN}/"
        lab.shared.put(f"{stored}{name}/{file}", lab.shared.get(lab.shared.ref(f"{stored}step_20.e1/{file}")))
    if name.endswith(".e2"):  # a session of the next epoch that died before its commit
        dead = lab.session("carol", target_steps=90)
        dead.start()
        lab.world.at(lab.world.now + 1.0, dead.process.kill)
        lab.world.run()
        lab.world.now += 1000
    done = lab.run(lab.session("bob", target_steps=60, wait_s=600.0))
    assert (done.exit_code, done.from_step) == (Exit.OK, 40)
    assert lab.held() == hash_of(60, state_at(60))


@pytest.mark.parametrize("nth", range(1, 7))
def test_a_kill_between_retire_and_the_last_delete_harms_no_retained_checkpoint(lab: Lab, nth: int) -> None:
    lab.run(lab.session(target_steps=40, keep=Keep(9)))
    lab.run(lab.session("bob", target_steps=60, keep=Keep(2)))
    lab.world.now += 7200
    session = lab.session("carol", target_steps=100, keep=Keep(2))
    deleted: list[str] = []

    def die(verb: str, name: str) -> None:
        if verb == "after-delete" and name.startswith("checkpoints"):
            deleted.append(name)
            if len(deleted) == nth:
                session.process.kill()

    session.store.fail = die
    session.start()
    lab.world.run()
    assert len(deleted) == nth, "it was killed in the middle of deleting"
    state = lab.state()
    for checkpoint in state.undamaged:
        read_manifest(checkpoint, state, lab.shared, session.ctx.names)
    lab.world.now += 1000
    assert lab.run(lab.session("dave", target_steps=120, keep=Keep(2), wait_s=600.0)).exit_code == Exit.OK
    assert whole(lab) and lab.held() == hash_of(120, state_at(120))


def test_two_runs_in_one_folder_never_touch_each_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    keep = ("checkpoint.keep_last=2", "evaluation.every_commits=0")
    desk.train(9, *keep, run="one")
    store = desk.folder / "relay_store"
    mine = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and "one" in path.parts}
    for target in (3, 6, 12, 15):
        desk.train(target, *keep, run="two")
    desk("gc", "--run", "two", "--full")
    assert {path: path.read_bytes() for path in mine} == mine
    desk.train(12, *keep, run="one")
    for run, step in (("one", 12), ("two", 15)):
        assert desk.held(run) == hash_of(step, state_at(step))
        assert desk("verify", "--run", run, "--json").json["ok"]


def test_going_back_and_saving_a_lower_step_breaks_no_pruning(lab: Lab) -> None:
    lab.run(lab.session(target_steps=60, keep=Keep(2)))
    lab.damage("step_60.e1/state.json", lambda data: None)
    bob = lab.session("bob", target_steps=100, keep=Keep(2), every_steps=2)
    lab.world.at(lab.world.now + 0.8, lambda: bob.ctx.signal.ask("stop"))
    assert lab.run(bob).exit_code == Exit.HANDOFF
    state = lab.state()
    assert 50 < state.step < 60 and state.head == state.undamaged[-1]
    assert [c.step for c in state.retained if c.damaged] == [60]
    lab.world.now += 7200
    done = lab.run(lab.session("carol", target_steps=80, keep=Keep(2)))
    assert done.exit_code == Exit.OK and lab.held() == hash_of(80, state_at(80))
    assert whole(lab)
