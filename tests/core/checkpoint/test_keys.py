"""Keys are never overwritten, even if a rule has failed: if its folder is taken, a checkpoint gets one with a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from relay.app.checks.verify import verify
from relay.core.checkpoint.manifest import FileEntry
from relay.core.checkpoint.retention import GRACE_S, Keep
from relay.core.clock import RealRuntime
from relay.core.errors import BadData, Exit
from relay.core.ledger.entry import FORMAT
from relay.core.ledger.frozen import SHARING, USUAL
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Checkpoint, Origin
from relay.core.names import TOKEN, Names
from relay.core.runs.fork import Branch, copy_checkpoint
from relay.core.runs.opening import record
from storage.base import Ref, Store, Unavailable, open_store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, wrap_stores
from tests.core.checkpoint.test_lending import all_restorable, share
from tests.core.lab import PROJECT, RUN, Lab, Session, genesis, said
from tests.core.story import NAMES
from tests.core.toy import hash_of, state_at
from tests.storage.s3.servers import ENVIRONMENT, UNWANTED, server

pytestmark = pytest.mark.slow

FOLDER = NAMES.checkpoint(20, 1)
OTHER = b'{"somebody": "else"}'


def plant(lab: Lab, session: Session, when: tuple[str, str], file: str) -> None:
    """Another writer puts a file into the folder of step 20 just before the session's first call of that kind there."""
    name = FOLDER + file

    def act(verb: str, called: str) -> None:
        if (verb, called) == (when[0], FOLDER + when[1]) and not lab.shared._shelf.objects.get(name):
            lab.shared.put(name, OTHER)

    session.store.fail = act


MOMENTS = {
    "its manifest before": (("stat", "manifest.json"), "manifest.json"),
    "a file before": (("stat", "ema.json"), "ema.json"),
    "a file while it is sent": (("put", "ema.json"), "ema.json"),
    "its manifest while files are sent": (("put", "ema.json"), "manifest.json"),
    "its manifest while it is sent": (("put", "manifest.json"), "manifest.json"),
}


def names(lab: Lab, part: str = "") -> set[str]:
    listed = (stat.name for stat in lab.shared.list(NAMES.checkpoints))
    return {name.removeprefix(NAMES.checkpoints) for name in listed if part in name}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_checkpoint_whose_folder_is_taken_goes_to_one_with_a_token(lab: Lab, moment: str) -> None:
    session = lab.session(target_steps=20)
    when, file = MOMENTS[moment]
    plant(lab, session, when, file)
    assert lab.run(session).exit_code == Exit.OK, said(session.outcome)
    token = session.ctx.session[:TOKEN]
    state = lab.state()
    assert [c.manifest for c in state.retained] == [NAMES.manifest(10, 1), NAMES.manifest(20, 1, token)]
    assert lab.shared.get(lab.shared.ref(FOLDER + file)) == OTHER
    assert names(lab, f".{token}/") == {f"step_20.e1.{token}/{n}" for n in ("ema.json", "manifest.json", "state.json")}
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    found = verify(ledger, lab.shared)
    assert found.ok and found.intact == [10, 20]
    bob = lab.session("bob", target_steps=40)
    assert lab.run(bob).certified == "exact"
    assert [path.name for path in bob.ctx.local_folder.root.glob("step_20*")] == [], "the backup is the newest alone"
    assert lab.held() == hash_of(40, state_at(40))


def test_it_stays_in_its_folder_when_it_is_tried_again(lab: Lab) -> None:
    """No answer for the manifest in the second folder: the third attempt is not a third copy."""
    session, lost = lab.session(target_steps=20), list[str]()
    plant(lab, session, ("put", "ema.json"), "ema.json")
    planted = session.store.fail

    def fail(verb: str, name: str) -> None:
        planted(verb, name)
        if verb == "after-put" and name.endswith("manifest.json") and ".e1." in name and not lost:
            lost.append(name)
            raise Unavailable("the answer was lost")

    session.store.fail = fail
    assert lab.run(session).exit_code == Exit.OK
    assert lost == [lab.state().head.manifest]
    sent = [name for verb, name in session.store.calls if verb == "put" and ".e1." in name]
    assert sorted(sent).count(lost[0]) == 2 and len(sent) == 4, "each file once, the manifest twice"


@pytest.mark.parametrize("how", ["landed", "never sent"])
def test_a_manifest_whose_answer_was_lost_is_sent_again_and_known_as_ours(lab: Lab, how: str) -> None:
    session, lost = lab.session(target_steps=20), list[str]()

    def fail(verb: str, name: str) -> None:
        if verb == ("after-put" if how == "landed" else "put") and name == FOLDER + "manifest.json" and len(lost) < 2:
            lost.append(name)
            raise Unavailable("no answer")

    session.store.fail = fail
    assert lab.run(session).exit_code == Exit.OK
    assert lost and lab.state().head.manifest == FOLDER + "manifest.json"
    assert not names(lab, ".e1."), "no second folder"
    assert lab.run(lab.session("bob", target_steps=30)).certified == "exact"


def test_a_manifest_that_lands_after_the_commit_changes_nothing(lab: Lab) -> None:
    """It went to the plain folder, had no answer, and the next attempt found that folder taken by then."""
    session, late = lab.session(target_steps=20), list[Callable[[], object]]()
    real = session.store.put_new

    def put_new(name: str, data: bytes | Path) -> object:
        if name == FOLDER + "manifest.json" and not late:
            late.append(lambda: lab.shared.put_new(name, data))
            lab.shared.put(FOLDER + "ema.json", OTHER)  # so that the next attempt goes elsewhere
            raise Unavailable("no answer")
        return real(name, data)

    session.store.put_new = put_new
    assert lab.run(session).exit_code == Exit.OK
    late[0]()
    assert lab.state().head.aside and names(lab, "step_20.e1/manifest.json")
    assert lab.run(lab.session("bob", target_steps=30)).certified == "exact"
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    assert verify(ledger, lab.shared).ok


def formats(lab: Lab) -> list[int]:
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    return [slot.entry.format for slot in ledger.entries(0, ledger.read().seq + 1)]


def with_token(lab: Lab, target: int = 20) -> str:
    """A run to `target` whose checkpoint of step 20 lies in a folder with this token."""
    session = lab.session(target_steps=target)
    plant(lab, session, ("put", "ema.json"), "ema.json")
    assert lab.run(session).exit_code == Exit.OK
    assert next(c for c in lab.state().retained if c.step == 20).aside
    return session.ctx.session[:TOKEN]


def test_only_such_a_state_needs_the_newest_format(lab: Lab) -> None:
    with_token(lab, 30)
    kinds = lab.kinds()
    second = [n for n, kind in enumerate(kinds) if kind == "commit"][1]
    assert formats(lab) == [FORMAT if n >= second else USUAL for n in range(len(kinds))]


def test_an_older_program_stops_with_78_while_one_is_retained(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with_token(lab)
    older = lab.session("bob", target_steps=60, keep=Keep(2))
    with monkeypatch.context() as patch:
        patch.setattr("relay.core.ledger.entry.FORMAT", SHARING)
        assert lab.run(older).exit_code == Exit.BAD_CONFIG and "`git pull`" in said(older.outcome)
    assert lab.run(lab.session("bob", target_steps=60, keep=Keep(2))).exit_code == Exit.OK
    assert not any(c.aside for c in lab.state().retained) and formats(lab)[-2:] == [USUAL, USUAL]


def test_i8_clean_up_takes_the_other_folder_and_never_the_retained_one(lab: Lab) -> None:
    token = with_token(lab, 40)
    lab.world.now += 2 * GRACE_S
    lab.run(lab.session("bob", target_steps=50, keep=Keep(9)))
    assert not names(lab, "step_20.e1/"), "left by an epoch that is over"
    assert len(names(lab, f"step_20.e1.{token}/")) == 3
    lab.world.now += 2 * GRACE_S
    lab.run(lab.session("carol", target_steps=80, keep=Keep(2)))
    lab.world.now += 2 * GRACE_S
    lab.run(lab.session("dave", target_steps=90, keep=Keep(2)))
    assert not names(lab, "step_20.e1")
    lab.run(lab.session("erin", target_steps=130, keep=Keep(2)))
    assert (20, 1) not in {r.key for r in lab.state().retired}, "and is known to be gone"


def test_a_rewind_to_a_checkpoint_with_a_token_and_away_from_one(lab: Lab) -> None:
    token = with_token(lab, 30)
    lab.damage("step_30.e1/state.json", lambda data: b"{}")
    outcome = lab.run(lab.session("bob", target_steps=40, every_steps=40))
    assert outcome.exit_code == Exit.OK and lab.state().links[-1].from_step == 20
    lab.damage("step_40.e2/state.json", lambda data: b"{}")
    lab.damage(f"step_20.e1.{token}/state.json", lambda data: b"{}")
    outcome = lab.run(lab.session("carol", target_steps=50))
    assert outcome.exit_code == Exit.OK and lab.state().links[-1].from_step == 10
    told = next(i.text for i in lab.state().incidents if i.epoch == 3 and i.cause == "rewind")
    assert f"step_20.e1.{token}" in told, "the evidence names the very folder"


def test_this_machines_copy_of_one_with_a_token_is_sent_again(lab: Lab) -> None:
    session = lab.session(target_steps=20, machine="one")
    plant(lab, session, ("put", "ema.json"), "ema.json")
    lab.run(session)
    lab.damage(f"{session.ctx.session[:TOKEN]}/state.json", lambda data: b"{}")
    second = lab.session(target_steps=30, machine="one")
    assert lab.run(second).exit_code == Exit.OK and second.workload.trained[0] == 21
    assert [(c.key, c.damaged) for c in lab.state().retained][1:3] == [((20, 1), True), ((20, 2), False)]


def test_what_borrows_names_the_files_in_the_lenders_own_folder(lab: Lab) -> None:
    session = share(lab, target_steps=60)
    plant(lab, session, ("put", "ema.json"), "ema.json")
    assert lab.run(session).exit_code == Exit.OK
    lender = next(c for c in lab.state().retained if c.key == (20, 1))
    assert lender.aside and any(c.base == lender.key != c.key for c in lab.state().retained)
    all_restorable(lab)
    assert not [name for name in names(lab, "step_20.e1/") if "table" in name]
    lab.world.now += 2 * GRACE_S
    assert lab.run(share(lab, "bob", target_steps=80)).exit_code == Exit.OK
    all_restorable(lab)


def test_nothing_is_borrowed_from_the_other_folder_of_the_lenders_key(lab: Lab) -> None:
    """An unsent checkpoint of this machine borrows from a folder of the lender's key that is not the lender's."""
    lab.run(share(lab, target_steps=40, machine="one"))
    away = share(lab, target_steps=60, machine="one")
    away.store.fail = lambda verb, name: _refuse(verb, name)
    lab.run(away)
    (packed,) = [p for p in away.ctx.local_folder.all() if p.step == 60]
    moved = list[FileEntry]()
    for file in packed.borrowed:
        key = file.key.replace("step_20.e1/", f"step_20.e1.{'0' * TOKEN}/")
        lab.shared.put(key, lab.shared.get(file.ref))
        moved.append(file.model_copy(update={"key": key, "ref": key}))
    away.ctx.local_folder.seal(packed.model_copy(update={"borrowed": tuple(moved)}))
    assert moved
    outcome = lab.run(share(lab, "bob", target_steps=60, machine="one"))
    assert outcome.exit_code == Exit.OK, said(outcome)
    assert not lab.state().head.borrows and lab.state().step == 60
    all_restorable(lab)


def _refuse(verb: str, name: str) -> None:
    if verb == "put" and "step_" in name:
        raise Unavailable("no")


PROJECT_OF_DESK = "sudoku_pretrain_multiaccount"


def aside_at_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run `r` at step 20 whose checkpoint of step 10 found its folder taken; where it lies."""
    store = desk.folder / "relay_store"
    taken = store / "checkpoints" / PROJECT_OF_DESK / "r" / "step_10.e1" / "ema.json"

    class Meddling(Wrapper):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            if name.endswith("step_10.e1/ema.json") and not taken.exists():
                self.inner.put(name, OTHER)
            return self.inner.put_new(name, data)

    with monkeypatch.context() as patch:
        wrap_stores(patch, Meddling)
        desk.train(10)
    (folder,) = taken.parent.parent.glob("step_10.e1.*")
    desk.train(20)
    assert taken.read_bytes() == OTHER
    return folder


def test_every_command_finds_the_folder_with_the_token(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = aside_at_desk(desk, monkeypatch)
    assert desk("verify", "--run", "r", "--json").json["ok"]
    exported = desk("export", "--run", "r", "--step", "10", "--json").json
    assert exported["step"] == 10 and Path(exported["files"][0]).read_bytes() == (folder / "ema.json").read_bytes()
    assert desk("evaluate", "--run", "r", "--step", "10", "--rows", "4", "--json").json["step"] == 10
    shown = desk("gc", "--run", "r", "--dry-run", "--json").json
    stays = {row["name"]: row["why"] for row in shown["stays"]}
    assert folder.name in stays and folder.name not in {row["name"] for row in shown["goes"]}
    assert "epoch 1" in stays["step_10.e1"] and "1 h 00 min" in stays["step_10.e1"]
    desk("fork", "--run", "r", "--to", "branch", "--from-step", "10")
    desk.train(20, run="branch")
    assert desk.status("branch")["step"] == 20 and desk("verify", "--run", "branch", "--json").json["ok"]
    assert desk("doctor", "--run", "r", code=None).code in (0, 65, 69)
    (folder / "state.json").write_bytes(b"{}")
    found = desk("verify", "--run", "r", "--json", code=65).json
    assert any(folder.name in name for row in found["checkpoints"] for name in row["files"])


@pytest.mark.parametrize("backend", ["memory", "local", pytest.param("s3-ministack", marks=pytest.mark.slow)])
@pytest.mark.parametrize("alike", [True, False], ids=["the same files", "other files"])
def test_of_two_writers_with_one_key_neither_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, alike: bool
) -> None:
    """Two ledgers lead to one checkpoint store, and the check for that is broken: both use epoch 1."""
    monkeypatch.setattr(RunLedger, "check_unused", lambda *_: None)
    monkeypatch.setattr(RunLedger, "check_epochs", lambda ledger, _: ledger.read())
    address, before = address_of(backend, tmp_path, monkeypatch), dict[str, bytes]()
    store, desks, ledgers = open_store(address), list[Desk](), list[str]()
    record(store)  # tests/storage has the self-test of each, which takes longer than all of this
    for number in (1, 2):
        ledgers.append((tmp_path / f"ledger-{number}").as_uri())
        desks.append(Desk(tmp_path / f"desk-{number}", {"RELAY_STORE": address, "RELAY_LEDGER_STORE": ledgers[-1]}))
    for step in (6, 9):
        for number, desk in enumerate(desks, 1):
            desk.train(step, *(() if alike else (f"seed={number}",)), account=f"account_{number}")
            after = content(store)
            assert {name: after.get(name) for name in before} == before, "nothing of the other's was touched"
            before = after
    for number, ledger in enumerate(ledgers, 1):
        state = RunLedger(open_store(ledger), PROJECT_OF_DESK, "r", RealRuntime()).read().state
        assert [(c.key, c.aside) for c in state.retained] == [((6, 1), number == 2), ((9, 2), number == 2)]
        for checkpoint in state.retained:
            values = json.loads(store.get(store.ref(checkpoint.folder + "state.json")))["values"]
            assert tuple(values) == state_at(checkpoint.step, seed=1 if alike else number)
        assert desks[number - 1]("verify", "--run", "r", "--json").json["ok"]


def address_of(backend: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if backend == "memory":
        return f"memory://keys-{next(_number)}"
    if backend == "local":
        return (folder / "shared").as_uri()
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return server("ministack").address(f"keys-{next(_number)}")


_number = count()


def content(store: Store) -> dict[str, bytes]:
    return {stat.name: store.get(stat.ref) for stat in store.list("checkpoints/")}


def test_a_folder_with_a_token_of_a_later_epoch_proves_a_lost_entry_too(lab: Lab) -> None:
    lab.run(lab.session(target_steps=20))
    lab.shared.put(NAMES.checkpoint(30, 9, "0123456789abcdef") + "state.json", OTHER)
    with pytest.raises(BadData, match=r"step_30\.e9\.0123456789abcdef/state\.json"):
        RunLedger(lab.shared, PROJECT, RUN, lab.world.process()).check_epochs(lab.shared)


def test_a_fork_whose_earlier_try_left_files_that_came_to_harm_leaves_them(lab: Lab, tmp_path: Path) -> None:
    lab.run(lab.session(target_steps=40))
    ledger, target = RunLedger(lab.shared, PROJECT, RUN, lab.world.process()), genesis("branch")

    def copied() -> tuple[Checkpoint, Origin]:
        branch = Branch(
            lab.shared, Names(PROJECT, "branch"), target.run_id, "1", tmp_path / "scratch", lab.world.process()
        )
        return copy_checkpoint(ledger, ledger.read(), (40, 1), branch)

    copied()
    name = lab.damage("branch/step_40.e0/state.json", lambda data: b"{}")
    head, origin = copied()
    assert head.manifest == Names(PROJECT, "branch").manifest(40, 0, target.run_id[:TOKEN])
    assert lab.shared.get(lab.shared.ref(name)) == b"{}"
    branch = RunLedger(lab.shared, PROJECT, "branch", lab.world.process())
    branch.begin(target.model_copy(update={"head": head, "origin": origin}), session="0" * 32)
    assert verify(branch, lab.shared).ok
    assert lab.run(lab.session("bob", run="branch", target_steps=50)).exit_code == Exit.OK
    assert lab.held("branch") == hash_of(50, state_at(50))
