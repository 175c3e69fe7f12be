"""A loaded state must be the one that the ledger names: intact files of another state count as damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relay.app.checks.verify import verify
from relay.core.checkpoint.restore import Damaged, FaultyMachine, NoneLoads
from relay.core.errors import BadConfig, Exit
from relay.core.ledger.ledger import RunLedger
from relay.core.workload import Saved, StepDigest
from tests.app.cli import Desk
from tests.core.borrowing import SharingSnapshot, SharingToy
from tests.core.lab import PROJECT, RUN, Lab, Session, said
from tests.core.toy import ToySnapshot, hash_of, state_at
from tests.rehash import held, rehash


def another_hash(snapshot: ToySnapshot, folder: Path, real: Saved) -> Saved:
    """A writer that computes the hash wrongly, or lies about it."""
    return replace(real, state_hash="0" * 64)


def another_state(snapshot: ToySnapshot, folder: Path, real: Saved) -> Saved:
    """A writer that names the true hash, and stores another state."""
    text = (folder / "state.json").read_text()
    (folder / "state.json").write_text(text.replace(str(snapshot.values[0]), str(snapshot.values[0] ^ 1)))
    return real


FORGERIES = [another_hash, another_state]


def forge(monkeypatch: pytest.MonkeyPatch, how, steps: range, of: type[ToySnapshot] = ToySnapshot) -> None:
    """Each checkpoint of these steps is forged before it is hashed and sent."""
    real = of.save

    def save(snapshot: ToySnapshot, folder: Path) -> Saved:
        saved = real(snapshot, folder)
        return how(snapshot, folder, saved) if snapshot.step in steps else saved

    monkeypatch.setattr(of, "save", save)


@pytest.mark.parametrize("how", FORGERIES)
def test_i9_a_head_that_is_another_state_is_left_by_a_rewind_that_says_so(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, how
) -> None:
    with monkeypatch.context() as patch:
        forge(patch, how, range(40, 41))
        lab.run(lab.session(target_steps=40))
    before = {stat.name for stat in lab.shared.list("checkpoints/")}
    bob = lab.session("bob", target_steps=60)
    assert lab.run(bob).exit_code == Exit.OK, said(bob.outcome)
    assert bob.workload.trained[0] == 31 and lab.held() == hash_of(60, state_at(60))
    state = lab.state()
    assert [c.key for c in state.retained if c.damaged] == [(40, 1)]
    (incident,) = [i for i in state.incidents if i.cause == "rewind"]
    assert incident.text.startswith("step_40.e1: ")
    assert before <= {stat.name for stat in lab.shared.list("checkpoints/")}, "nothing is deleted"


def test_the_machine_that_made_it_does_not_send_the_same_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        forge(patch, another_hash, range(40, 41))
        lab.run(lab.session(target_steps=40, machine="one"))
    again = lab.session(target_steps=60, machine="one")
    assert lab.run(again).exit_code == Exit.OK
    assert again.workload.trained[0] == 31 and lab.held() == hash_of(60, state_at(60))


def test_i6_where_every_checkpoint_is_another_state_it_stops(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        forge(patch, another_state, range(100))
        lab.run(lab.session(target_steps=40))
    bob = lab.session("bob", target_steps=60)
    assert lab.run(bob).exit_code == Exit.BAD_DATA and not bob.workload.trained
    assert isinstance(bob.outcome.failure, NoneLoads)
    assert [key for key, _ in bob.outcome.failure.found] == [(40, 1), (30, 1), (20, 1)]
    assert "rewind" not in lab.kinds() and lab.state().step == 40


def test_a_checkpoint_that_borrows_is_judged_by_its_own_state(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def session(account: str, target: int) -> Session:
        return lab.session(account, workload=SharingToy(), target_steps=target)

    with monkeypatch.context() as patch:
        forge(patch, another_hash, range(40, 41), SharingSnapshot)
        lab.run(session("alice", 40))
    assert lab.state().head.borrows
    assert lab.run(session("bob", 60)).exit_code == Exit.OK
    assert [c.key for c in lab.state().retained if c.damaged] == [(40, 1)]
    assert lab.held() == hash_of(60, state_at(60))


def test_a_machine_that_reads_two_states_from_the_same_files_proves_no_damage(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    bob = lab.session("bob", target_steps=60)
    hashes = iter(["1" * 64, hash_of(40, state_at(40))])
    bob.workload.digest = lambda: StepDigest(40, "toy", next(hashes))
    outcome = lab.run(bob)
    assert outcome.exit_code == Exit.BAD_DATA and isinstance(outcome.failure, FaultyMachine)
    assert "rewind" not in lab.kinds() and lab.state().holder is None
    assert lab.run(lab.session("bob", target_steps=60)).exit_code == Exit.OK


@pytest.mark.parametrize("how", FORGERIES)
def test_the_one_helper_of_all_tests_sees_it(lab: Lab, monkeypatch: pytest.MonkeyPatch, how) -> None:
    with monkeypatch.context() as patch:
        forge(patch, how, range(40, 41))
        lab.run(lab.session(target_steps=40))
    with pytest.raises(AssertionError, match="another state"):
        lab.held()
    assert held(lab.shared, lab.state().retained[0]) == hash_of(20, state_at(20))


@pytest.mark.slow
@pytest.mark.parametrize("how", FORGERIES)
def test_verify_deep_names_the_step_and_plain_verify_cannot(desk: Desk, monkeypatch: pytest.MonkeyPatch, how) -> None:
    desk.train(10)
    with monkeypatch.context() as patch:
        forge(patch, how, range(20, 21))
        desk.train(20)
    plain = desk("verify", "--run", "r", "--json").json
    assert plain["ok"] and [row["loaded"] for row in plain["checkpoints"]] == [False, False]
    found = desk("verify", "--run", "r", "--deep", "--json", code=65).json
    rows = {row["step"]: row for row in found["checkpoints"]}
    assert (rows[10]["ok"], rows[10]["loaded"]) == (True, True)
    assert not rows[20]["ok"] and rows[20]["reason"] and rows[20]["files"] == [], "no single file is damaged"
    assert "10" in rows[20]["meaning"], "the next session goes back to step 10"
    desk("verify", "--run", "r", "--deep", code=65)
    assert "Step 20" in desk("evaluate", "--run", "r", code=65).err
    desk.train(30)
    assert desk.held() == hash_of(30, state_at(30))
    after = desk("verify", "--run", "r", "--deep", "--json").json
    assert after["ok"] and [row["known"] for row in after["checkpoints"] if row["step"] == 20] == [True]


def test_verify_deep_says_what_is_missing_to_load_and_what_works_without(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.train(10)

    def build(*_: object) -> object:
        raise BadConfig("No module named 'torch'. Training needs more packages: `pip install x`.")

    monkeypatch.setattr(desk.plugin, "build", build, raising=False)
    refused = desk("verify", "--run", "r", "--deep", code=78)
    assert "--deep" in refused.err and "'torch'" in refused.err, "the option and the missing module"
    assert refused.advised("verify") == [["verify", "--run", "r"]], "the command that works without"
    assert desk("verify", "--run", "r", "--json").json["ok"]


def test_verify_deep_writes_nothing_and_leaves_nothing_here(desk: Desk) -> None:
    desk.train(10)
    before = {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()}
    desk("verify", "--run", "r", "--deep")
    after = {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()}
    assert {path for path in after if before.get(path) != after[path]} <= {p for p in after if p.suffix == ".log"}


DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("number", [1, 2])
def test_states_that_the_first_versions_saved_have_the_hash_that_they_were_given(number: int) -> None:
    """How a state is hashed never changes: a program that hashed otherwise would take every older one for damage."""
    folders = [path.parent for path in (DATA / f"run_format_{number}" / "store").rglob("step_*/manifest.json")]
    assert len(folders) == 2
    for folder in folders:
        assert f'"state_hash": "{rehash(folder)}"' in (folder / "manifest.json").read_text()


def test_verify_deep_of_a_checkpoint_that_was_retired_meanwhile_is_no_damage(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())

    def deep(checkpoint: object, state: object) -> None:
        lab.run(lab.session("bob", target_steps=lab.state().step + 40))
        raise Damaged("it is missing")

    found = verify(ledger, lab.shared, deep=deep)
    assert found.ok and not found.checkpoints
