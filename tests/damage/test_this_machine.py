"""Damage to this machine's `sync/`: a checkpoint is sent only if it is intact, and damage never blocks a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.core.checkpoint.local import LocalFolder
from relay.core.errors import Exit
from relay.core.ledger.verified import FileMark, VerifiedUpTo
from tests.core.lab import Lab, down, said
from tests.core.toy import hash_of, state_at
from tests.damage.harms import HARMS, HOSTILE_JSON, PICKLE, Harm, flipped

UNSENT = (40, 1)
FILES = ("step_40.e1.json", "step_40.e1/state.json", "step_40.e1/ema.json")


def stranded(lab: Lab) -> LocalFolder:
    """Step 40 is on the machine `m` only: the store went down before anything was committed."""
    first = lab.session(target_steps=40, every_steps=1000, machine="m", patience_s=20).start()
    lab.world.at(lab.world.now + 2, lambda: setattr(first.store, "fail", down))
    lab.world.run()
    assert first.outcome.exit_code == Exit.UPLOAD_FAILED and first.ctx.local_folder.folder(UNSENT).is_dir()
    return first.ctx.local_folder


def hurt(path: Path, how: Harm) -> None:
    changed = how(path.read_bytes())
    if changed is None:
        path.unlink()
    else:
        path.write_bytes(changed)


def goes_on(lab: Lab) -> None:
    """The next session on that machine ends well, and every committed step holds its own state."""
    session = lab.session("bob", target_steps=60, machine="m", wait_s=900)
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.OK, said(outcome)
    for one in lab.state().undamaged:
        assert one.state_hash == hash_of(one.step, state_at(one.step)), one.key
    assert lab.held() == hash_of(60, state_at(60))
    assert lab.state().step == 60


@pytest.mark.parametrize("file", FILES[:2])
@pytest.mark.parametrize("harm", HARMS)
def test_i9_an_unsent_checkpoint_that_is_damaged_is_not_sent(lab: Lab, file: str, harm: str) -> None:
    local_folder = stranded(lab)
    hurt(local_folder.root / file, HARMS[harm])
    goes_on(lab)
    assert 40 not in {link.from_step for link in lab.state().links}


def test_i9_no_flipped_bit_of_a_description_gives_a_state_a_wrong_name(lab: Lab) -> None:
    """A flip can turn one digit of a hash into another, so that the description is whole and wrong."""
    path = stranded(lab).root / "step_40.e1.json"
    data = path.read_bytes()
    at = data.index(b'"state_hash"') + 20
    path.write_bytes(data[:at] + (b"0" if data[at : at + 1] != b"0" else b"1") + data[at + 1 :])
    goes_on(lab)


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_description_is_skipped(lab: Lab, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    local_folder = stranded(lab)
    monkeypatch.chdir(lab.tmp)
    (local_folder.root / "step_40.e1.json").write_bytes(HOSTILE_JSON[what])
    assert local_folder.all() == [] and local_folder.pushable(lab.state()) is None
    goes_on(lab)
    assert not (lab.tmp / "pickled_marker").exists()


LEAVING = ("../state.json", "/etc/passwd", "C:state.json", "STATE.json", "state\x00.json", "s" * 5_000, ".hidden", "")


@pytest.mark.parametrize("name", LEAVING, ids=lambda name: repr(name)[:20])
def test_i3_a_description_that_names_a_file_elsewhere_is_skipped(lab: Lab, name: str) -> None:
    local_folder = stranded(lab)
    path = local_folder.root / "step_40.e1.json"
    described = json.loads(path.read_bytes())
    described["files"][0]["name"] = name
    path.write_text(json.dumps(described))
    assert local_folder.pushable(lab.state()) is None
    goes_on(lab)


def links(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def folders(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [links, folders])
@pytest.mark.parametrize("file", FILES)
def test_a_link_or_a_folder_in_place_of_a_file_does_no_harm(lab: Lab, file: str, harm: Callable[[Path], None]) -> None:
    harm(stranded(lab).root / file)
    goes_on(lab)


def test_a_pickle_in_place_of_an_unsent_file_is_not_sent_and_not_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    local_folder = stranded(lab)
    monkeypatch.chdir(lab.tmp)
    (local_folder.folder(UNSENT) / "state.json").write_bytes(PICKLE)
    goes_on(lab)
    assert not list(lab.tmp.rglob("pickled_marker"))


@pytest.mark.parametrize("harm", ["middle", "half", "huge", "missing"])
def test_a_damaged_backup_of_the_head_is_replaced(lab: Lab, harm: str) -> None:
    first = lab.session(target_steps=40, machine="m")
    lab.run(first)
    hurt(first.ctx.local_folder.folder(UNSENT) / "state.json", HARMS[harm])
    goes_on(lab)


@pytest.mark.parametrize("harm", [flipped(0.3), *HARMS.values()], ids=["digest", *HARMS])
def test_a_damaged_mark_only_costs_reads(tmp_path: Path, harm: Harm) -> None:
    mark = FileMark(tmp_path / "judged.json")
    mark.keep(VerifiedUpTo(seq=7, digest="a" * 64))
    hurt(tmp_path / "judged.json", harm)
    found = mark.recall()
    assert found is None or isinstance(found, VerifiedUpTo)


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_mark_is_ignored(lab: Lab, tmp_path: Path, what: str) -> None:
    (tmp_path / "judged.json").write_bytes(HOSTILE_JSON[what])
    session = lab.session(target_steps=20)
    session.ctx.ledger.chain.mark = FileMark(tmp_path / "judged.json")
    assert lab.run(session).exit_code == Exit.OK
    assert session.ctx.ledger.chain.mark.recall() is not None, "it was written again"


@pytest.mark.parametrize("seq", [0, 1, 2, 5, 999, 2**53 - 1])
def test_a_mark_of_another_entry_shows_that_the_store_was_rolled_back(lab: Lab, tmp_path: Path, seq: int) -> None:
    lab.run(lab.session(target_steps=20))
    entries = len(lab.kinds())
    FileMark(tmp_path / "judged.json").keep(VerifiedUpTo(seq=seq, digest="0" * 64, step=77))
    session = lab.session("bob", target_steps=40)
    session.ctx.ledger.chain.mark = FileMark(tmp_path / "judged.json")
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.BAD_DATA and "step 77" in said(outcome) and "step 20" in said(outcome)
    assert len(lab.kinds()) == entries, "nothing was written"


def test_a_mark_of_the_first_version_proves_nothing(lab: Lab, tmp_path: Path) -> None:
    lab.run(lab.session(target_steps=20))
    (tmp_path / "judged.json").write_text(f'{{"digest":"{"0" * 64}","seq":999}}')
    session = lab.session("bob", target_steps=40)
    session.ctx.ledger.chain.mark = FileMark(tmp_path / "judged.json")
    assert lab.run(session).exit_code == Exit.OK


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_no_damage_of_a_mark_is_taken_for_a_rolled_back_store(lab: Lab, tmp_path: Path, harm: Harm) -> None:
    mark = FileMark(tmp_path / "judged.json")
    session = lab.session(target_steps=20)
    session.ctx.ledger.chain.mark = mark
    assert lab.run(session).exit_code == Exit.OK
    hurt(tmp_path / "judged.json", harm)
    session = lab.session("bob", target_steps=40)
    session.ctx.ledger.chain.mark = mark
    assert lab.run(session).exit_code == Exit.OK


@pytest.mark.parametrize("marked", [True, False], ids=["by its mark", "by its checkpoint"])
@pytest.mark.parametrize("fetched", [True, False], ids=["fetched", "made here"])
def test_a_store_that_was_rolled_back_is_refused_by_a_machine_that_knows_better(
    lab: Lab, tmp_path: Path, marked: bool, fetched: bool
) -> None:
    """Another machine cannot know, and uses the next epoch again; this one names both steps and writes nothing."""
    lab.run(lab.session(target_steps=20))
    older = {stat.name: lab.shared.get(stat.ref) for stat in lab.shared.list("")}
    for name, target in (("elsewhere" if fetched else "here", 40), ("here", 50)):
        session = lab.session("bob", machine=name, target_steps=target)
        session.ctx.ledger.chain.mark = FileMark(tmp_path / name / "judged.json")
        assert lab.run(session).exit_code == Exit.OK
    for stat in list(lab.shared.list("")):
        lab.shared.delete(stat.ref)
    for name, data in older.items():
        lab.shared.put(name, data)
    session = lab.session("bob", machine="here", target_steps=60)
    if marked:
        session.ctx.ledger.chain.mark = FileMark(tmp_path / "here" / "judged.json")
    outcome = lab.run(session)
    assert outcome.exit_code == Exit.BAD_DATA, said(outcome)
    assert "rolled back" in said(outcome) and "step 50" in said(outcome) and "step 20" in said(outcome)
    assert {stat.name: lab.shared.get(stat.ref) for stat in lab.shared.list("")} == older


def test_two_sessions_of_one_machine_never_call_each_others_work_a_rolled_back_store(lab: Lab, tmp_path: Path) -> None:
    """One reads the tail, then the other appends and moves the mark that both share."""
    lab.run(lab.session(target_steps=20))
    mark = FileMark(tmp_path / "judged.json")
    first, second = lab.session("bob", target_steps=40), lab.session("carol", target_steps=40)
    first.ctx.ledger.chain.mark = second.ctx.ledger.chain.mark = mark
    tail = first.ctx.ledger.chain.log.tail

    def slow(hint: int | None = None) -> int:
        found = tail(hint)
        first.process.sleep(400.0)
        return found

    first.ctx.ledger.chain.log.tail = slow  # type: ignore[method-assign]
    first.start()
    second.start()
    lab.world.run()
    assert {first.outcome.exit_code, second.outcome.exit_code} == {Exit.OK}
