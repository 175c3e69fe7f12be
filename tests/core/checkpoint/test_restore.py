"""Going back: damage is proved, named and survived; nothing is deleted, and a run never restarts at 0 (P7)."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from unittest.mock import Mock

import pytest

from relay.app.checks.verify import verify
from relay.core.checkpoint import restore as restoring
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.restore import Damaged, Unfit, fetch_unheld, read_manifest
from relay.core.errors import Exit, StoreUnreachable
from relay.core.ledger.ledger import RunLedger
from storage.base import Denied, Missing, Unavailable
from tests.core.lab import PROJECT, RUN, Lab, Session, down, said
from tests.core.story import manifest_of
from tests.core.toy import hash_of, state_at
from tests.facts import raising
from tests.rehash import held


def flip(data: bytes) -> bytes:
    return data[:7] + bytes([data[7] ^ 1]) + data[8:]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": flip,
    "truncated": lambda data: data[:-1],
    "emptied": lambda data: b"",
    "grown": lambda data: data + b" ",
    "missing": lambda data: None,
    "huge": lambda data: b"x" * 2_000_000,
}


@pytest.mark.parametrize("file", ["state.json", "ema.json", "manifest.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_i6_a_damaged_newest_checkpoint_is_left_by_a_rewind_with_evidence(lab: Lab, file: str, damage: str) -> None:
    lab.run(lab.session(target_steps=40))
    broken = lab.damage(f"step_40.e1/{file}", DAMAGES[damage])
    before = {stat.name for stat in lab.shared.list("checkpoints/")}
    outcome = lab.run(lab.session("bob", target_steps=60))
    assert outcome.exit_code == Exit.OK, said(outcome)
    state = lab.state()
    assert state.step == 60 and lab.held() == hash_of(60, state_at(60))
    assert "rewind" in lab.kinds()
    (incident,) = [i for i in state.incidents if i.cause == "rewind"]
    assert "step_40.e1" in incident.text
    assert before <= {stat.name for stat in lab.shared.list("checkpoints/")}, "nothing is deleted"
    assert [c.key for c in state.retained if c.damaged] == [(40, 1)]
    assert broken.endswith(file)


def test_reaching_the_damaged_step_again_compares_the_states(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    lab.damage("step_40.e1/state.json", flip)
    lab.run(lab.session("bob", target_steps=60))
    (incident,) = [i for i in lab.state().incidents if i.cause == "recomputed"]
    assert incident.step == 40 and "ANOTHER" not in incident.text


def test_a_full_disk_here_is_not_told_as_the_storages(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    lab.run(lab.session(target_steps=40))
    with monkeypatch.context() as patch:
        patch.setattr("storage.transfer._keep", full)
        outcome = lab.run(lab.session("bob", target_steps=60))
    assert outcome.exit_code == Exit.STORAGE_UNREACHABLE
    told = r"This machine's disk: /\S+ .* free \(No space left on device\).* \d+ kB"
    assert re.search(told, said(outcome)) and "sync_dir=FOLDER" in said(outcome)
    assert "Storage" not in said(outcome) and lab.shared.address not in said(outcome)
    assert lab.run(lab.session("bob", target_steps=60)).exit_code == Exit.OK


@pytest.mark.parametrize("named", ["key", "ref"])
def test_evidence_names_the_file_whichever_of_its_names_the_store_told(named: str) -> None:
    """Where names are not unique a Ref is another word than the key."""
    plain = manifest_of((40, 1))
    files = tuple(file.model_copy(update={"ref": f"id-{file.name}"}) for file in plain.files)
    file = files[1]
    damaged = restoring._damaged(plain.model_copy(update={"files": files}), Missing(f"store: {getattr(file, named)}"))
    assert (damaged.file, str(damaged)) == (file.key, f"{file.key} is missing")


def test_two_damaged_checkpoints_are_left_by_one_rewind(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    lab.damage("step_40.e1/state.json", flip)
    lab.damage("step_30.e1/manifest.json", flip)
    outcome = lab.run(lab.session("bob", target_steps=60))
    assert outcome.exit_code == Exit.OK and outcome.certified == "exact"
    assert lab.kinds().count("rewind") == 1
    assert lab.state().links[-1].from_step == 20


def test_i6_with_no_sound_checkpoint_it_never_restarts_at_0(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    for step in (20, 30, 40):
        lab.damage(f"step_{step}.e1/state.json", flip)
    second = lab.session("bob", target_steps=60)
    outcome = lab.run(second)
    assert outcome.exit_code == Exit.BAD_DATA
    assert all(f"step_{step}.e1" in said(outcome) for step in (20, 30, 40))
    assert not second.workload.trained and lab.state().step == 40
    assert "rewind" not in lab.kinds() and lab.state().holder is None


@pytest.mark.parametrize("error", [Denied("no"), Unavailable("later")])
def test_a_refusal_is_no_damage(lab: Lab, error: Exception) -> None:
    lab.run(lab.session(target_steps=40))
    second = lab.session("bob", target_steps=60)

    def fail(verb: str, name: str) -> None:
        if verb == "read_range" and "step_40" in name:
            raise error

    second.store.fail = fail
    outcome = lab.run(second)
    assert outcome.exit_code == Exit.STORAGE_UNREACHABLE
    assert "rewind" not in lab.kinds() and lab.state().holder is None


def test_wrong_bytes_read_only_once_are_no_damage(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    second = lab.session("bob", target_steps=60)
    lies = iter([b"", b"{}"])
    honest = second.store.read_range
    second.store.read_range = lambda ref, start, length: (
        next(lies, None) or honest(ref, start, length) if "state.json" in ref else honest(ref, start, length)
    )
    assert lab.run(second).exit_code == Exit.OK
    assert "rewind" not in lab.kinds()


def test_an_intact_checkpoint_that_does_not_fit_is_never_gone_back_from(lab: Lab) -> None:
    """Right bytes that this program cannot read are no damage: perhaps a newer version wrote them (P7)."""
    lab.run(lab.session(target_steps=40))
    second = lab.session("bob", target_steps=60)

    def load(folder: Path) -> None:
        raise ValueError("unknown tensor")

    second.workload.load = load
    outcome = lab.run(second)
    assert outcome.exit_code == Exit.BAD_DATA and "unknown tensor" in said(outcome)
    assert "rewind" not in lab.kinds() and lab.state().step == 40


def test_right_files_of_another_step_than_the_ledger_says_are_not_gone_on_from(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    second = lab.session("bob", target_steps=60)
    real = second.workload.load

    def load(folder: Path) -> None:
        real(folder)
        second.workload.step = 41

    second.workload.load = load
    outcome = lab.run(second)
    assert outcome.exit_code == Exit.BAD_DATA and isinstance(outcome.failure, Unfit)
    assert not second.workload.trained and lab.state().step == 40


def test_a_reader_without_the_lease_is_told_what_could_not_be_read(lab: Lab, tmp_path: Path) -> None:
    lab.run(lab.session(target_steps=40))
    state, ledger = lab.state(), RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    lab.shared.get = Mock(side_effect=Unavailable("down"))
    with raising(StoreUnreachable, "Step 40", RUN):
        fetch_unheld(state.head, ledger, state, lab.shared, LocalFolder(tmp_path))


def reads_of(session: Session, part: str) -> list[tuple[str, str]]:
    return [call for call in session.store.calls if call[0] == "read_range" and part in call[1]]


def test_the_stores_copy_is_read_even_where_this_machine_has_one(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40, machine="a"))
    second = lab.session("bob", target_steps=60, machine="a")
    lab.run(second)
    assert reads_of(second, "step_40.e1/state.json") and reads_of(second, "step_40.e1/ema.json")


def test_a_damaged_local_backup_is_replaced_by_the_stores_copy(lab: Lab) -> None:
    first = lab.session(target_steps=40, machine="a")
    lab.run(first)
    (first.ctx.local_folder.folder((40, 1)) / "state.json").write_text("{}")
    (first.ctx.local_folder.folder((40, 1)) / "stranger").write_text("!")
    outcome = lab.run(lab.session("bob", target_steps=60, machine="a"))
    assert outcome.exit_code == Exit.OK and "rewind" not in lab.kinds()


def test_a_download_that_fails_leaves_the_local_backup_as_it_was(lab: Lab) -> None:
    first = lab.session(target_steps=40, machine="a")
    lab.run(first)
    second = lab.session("bob", target_steps=60, machine="a")

    def fail(verb: str, name: str) -> None:
        if verb == "read_range" and name.endswith("step_40.e1/state.json"):
            raise Unavailable("later")

    second.store.fail = fail
    assert lab.run(second).exit_code == Exit.STORAGE_UNREACHABLE
    (packed,) = first.ctx.local_folder.all()
    assert packed.key == (40, 1) and first.ctx.local_folder.intact(packed)
    assert not list(first.ctx.local_folder.root.glob("incoming*"))


@pytest.mark.parametrize("file", ["state.json", "ema.json", "manifest.json"])
def test_a_damaged_head_is_committed_again_from_an_intact_local_copy(lab: Lab, file: str) -> None:
    lab.run(lab.session(target_steps=40, machine="a"))
    lab.damage(f"step_40.e1/{file}", flip)
    before = {stat.name for stat in lab.shared.list("checkpoints/")}
    second = lab.session("bob", target_steps=45, machine="a")
    assert lab.run(second).exit_code == Exit.OK, said(second.outcome)
    assert second.workload.trained[0] == 41, "nothing is trained again"
    kinds = lab.kinds()
    assert kinds[kinds.index("rewind") + 1] == "commit"
    state = lab.state()
    assert [(c.key, c.damaged) for c in state.retained[-3:]] == [((40, 1), True), ((40, 2), False), ((45, 2), False)]
    assert held(lab.shared, state.retained[-2]) == hash_of(40, state_at(40)) and state.retained[-2].next is not None
    assert {i.cause for i in state.incidents} == {"target", "rewind", "recomputed"}
    assert before <= {stat.name for stat in lab.shared.list("checkpoints/")}, "nothing is deleted"
    assert lab.run(lab.session("carol", target_steps=50)).certified == "exact"


def test_a_damaged_head_is_trained_again_where_the_local_copy_is_not_intact(lab: Lab) -> None:
    first = lab.session(target_steps=40, machine="a")
    lab.run(first)
    lab.damage("step_40.e1/state.json", flip)
    (first.ctx.local_folder.folder((40, 1)) / "ema.json").write_text("{}")
    second = lab.session("bob", target_steps=45, machine="a")
    assert lab.run(second).exit_code == Exit.OK
    assert second.workload.trained[0] == 31
    assert lab.held() == hash_of(45, state_at(45))


def test_a_copy_that_could_not_be_sent_again_is_sent_by_the_next_session(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40, machine="a"))
    lab.damage("step_40.e1/state.json", flip)
    second = lab.session("bob", target_steps=45, machine="a")

    def fail(verb: str, name: str) -> None:
        if verb == "put" and "step_40.e2" in name:
            raise Unavailable("later")

    second.store.fail = fail
    assert lab.run(second).exit_code == Exit.STORAGE_UNREACHABLE
    assert lab.state().step == 30
    third = lab.session("carol", target_steps=45, machine="a")
    assert lab.run(third).exit_code == Exit.OK
    assert third.workload.trained[0] == 41


def test_verify_holds_damage_against_a_run_only_until_it_is_marked(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    lab.damage("step_40.e1/state.json", flip)
    ledger = lab.session().ctx.ledger
    assert not verify(ledger, lab.shared).ok
    lab.run(lab.session("bob", target_steps=45))
    found = verify(ledger, lab.shared)
    assert found.ok and [(c.step, c.ok) for c in found.checkpoints if not c.ok] == [(40, False)]


def test_i3_an_entry_that_points_elsewhere_is_not_followed(lab: Lab) -> None:
    """A Ref that is not its own key's is damage, even if it can be read."""
    lab.run(lab.session(target_steps=40))
    state = lab.state()
    wrong = state.head.model_copy(update={"ref": "runs/toys/chain/ledger/00000000000000000000.json"})
    with pytest.raises(Damaged, match="somewhere else"):
        read_manifest(wrong, state, lab.shared, lab.session().ctx.names)


def crawl(session: Session, verb: str, seconds: float) -> None:
    """Every object of a checkpoint takes this long."""

    def slow(called: str, name: str) -> None:
        if called == verb and name.endswith(".json") and "/step_" in name and "manifest" not in name:
            session.process.sleep(seconds)

    session.store.fail = slow


def test_a_restore_that_leaves_no_time_to_train_is_given_up(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    session = lab.session("bob", target_steps=80, budget_s=60)
    crawl(session, "read_range", 29)
    began = lab.world.now
    outcome = lab.run(session)
    assert (outcome.exit_code, outcome.durable_step) == (Exit.HANDOFF, 40)
    assert lab.world.now - began < 60 + 29, "no new piece is asked for"
    assert not session.workload.trained and lab.state().holder is None


@pytest.mark.parametrize(("reason", "code"), [("sigterm", 143), ("sigint", 130), ("stop", 75)])
def test_a_signal_ends_a_restore(lab: Lab, reason: str, code: int) -> None:
    lab.run(lab.session(target_steps=40))
    session = lab.session("bob", target_steps=80)
    crawl(session, "read_range", 20)
    session.start()
    began = lab.world.now
    lab.world.at(began + 5, lambda: session.ctx.signal.ask(reason))
    lab.world.run()
    assert session.outcome.exit_code == code and lab.world.now - began < 25


def test_a_signal_ends_the_sending_of_an_unsent_checkpoint_which_stays(lab: Lab) -> None:
    first = lab.session(target_steps=40, every_steps=1000, machine="m", patience_s=20).start()
    lab.world.at(lab.world.now + 2, lambda: setattr(first.store, "fail", down))
    lab.world.run()
    assert first.outcome.unsent is not None
    session = lab.session("bob", target_steps=80, machine="m", wait_s=900)
    crawl(session, "put", 200)
    session.start()
    lab.world.at(lab.world.now + 300, lambda: session.ctx.signal.ask("sigterm"))
    lab.world.run()
    assert session.outcome.exit_code == Exit.SIGTERM and session.outcome.durable_step == 0
    lab.run(lab.session("carol", target_steps=80, machine="m", wait_s=900))
    assert any("Committed step 40" in line for line in lab.told)
