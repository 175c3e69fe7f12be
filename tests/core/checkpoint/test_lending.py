"""Checkpoints that share files: which are borrowed, which stay, and that each retained checkpoint can be restored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from relay.app.checks.verify import verify
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.manifest import BadManifest
from relay.core.checkpoint.restore import Damaged, Route, fetch, read_manifest
from relay.core.checkpoint.retention import GRACE_S, Keep
from relay.core.checkpoint.sharedfiles import LENT
from relay.core.errors import Exit
from relay.core.ledger.frozen import SHARING, USUAL
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from relay.core.session.session import push
from storage.base import Unavailable
from tests.core.borrowing import SharingToy, table
from tests.core.checkpoint.test_restore import flip
from tests.core.lab import Lab, Session, said
from tests.core.toy import hash_of, state_at
from tests.facts import raising


def share(lab: Lab, account: str = "alice", **plan: Any) -> Session:
    defaults = {"target_steps": 100, "every_steps": 10, "keep": Keep(2)}
    return lab.session(account, workload=SharingToy(), **defaults | plan)


def bases(state: RunState) -> dict[int, int | None]:
    """Step of each retained checkpoint, and of the one it borrows from."""
    return {c.step: c.base and c.base[0] for c in state.retained}


def all_restorable(lab: Lab) -> None:
    """Every retained and sound checkpoint, into the state that an unbroken run has there."""
    for number, checkpoint in enumerate(lab.state().undamaged):
        session = share(lab)
        local_folder = LocalFolder(lab.tmp / f"all-{lab.count}-{number}")
        fetch(checkpoint, lab.state(), Route(lab.shared, session.ctx.names, local_folder))
        session.workload.load(local_folder.folder(checkpoint.key))
        assert (session.workload.step, session.workload.values) == (checkpoint.step, state_at(checkpoint.step))


def names(lab: Lab) -> set[str]:
    return {stat.name.removeprefix("checkpoints/toys/chain/") for stat in lab.shared.list("checkpoints/")}


def test_a_table_is_written_twice_before_anything_is_borrowed_and_then_rarely(lab: Lab) -> None:
    assert lab.run(session := share(lab)).exit_code == Exit.OK
    assert session.workload.taken == [
        (10, 10), (20, 20), (30, 20), (40, 20), (50, 50), (60, 50), (70, 50), (80, 80), (90, 80), (100, 80),
    ]  # fmt: skip
    assert bases(lab.state()) == {50: 50, 70: 50, 80: 80, 90: 80, 100: 80}
    all_restorable(lab)


def test_i8_sessions_go_on_from_what_is_borrowed_and_nothing_it_needs_is_deleted(lab: Lab) -> None:
    for n in range(1, 9):
        outcome = lab.run(share(lab, "bob" if n % 2 else "alice", target_steps=35 * n, every_steps=10))
        assert outcome.exit_code == Exit.OK, said(outcome)
        lab.world.now += 2 * GRACE_S
        all_restorable(lab)
    state = lab.state()
    assert lab.held() == hash_of(280, state_at(280))
    assert {link.certified for link in state.links[1:]} == {"exact"}
    tables = {name for name in names(lab) if "table-" in name}
    assert len(tables) <= 4, "tables without borrowers are deleted"
    assert verify(RunLedger(lab.shared, "toys", "chain", lab.world.process()), lab.shared).ok


def test_a_borrowing_checkpoint_sends_no_table(lab: Lab) -> None:
    lab.run(session := share(lab, target_steps=40))
    assert [n for n in names(lab) if "step_40.e1" in n and "table" in n] == []
    folder = session.ctx.local_folder.folder((40, 1))
    assert (folder / table(20)).is_file(), "on this machine it is complete"
    sizes = {c.step: c.bytes for c in lab.state().retained}
    assert sizes[40] < sizes[20]


def test_i3_a_manifest_names_files_of_no_other_checkpoint_than_the_ledger_says(lab: Lab) -> None:
    lab.run(share(lab, target_steps=40))
    state = lab.state()
    head = state.head
    manifest = read_manifest(head, state, lab.shared, share(lab).ctx.names)
    assert {f.key.split("/")[-2] for f in manifest.borrowed()} == {"step_20.e1"}
    for base in (None, (10, 1), head.key):
        with raising(Damaged, head.manifest) as damaged:
            other = head.model_copy(update={"base": base})
            read_manifest(other, state, lab.shared, share(lab).ctx.names)
        cause = damaged.value.__cause__
        assert isinstance(cause, BadManifest) and re.fullmatch(r"files\.\d+\.key", cause.field)


def test_damage_of_a_table_is_damage_of_all_that_borrow_it_and_an_older_table_carries_on(lab: Lab) -> None:
    lab.run(share(lab, target_steps=70))
    assert bases(lab.state()) == {20: 20, 40: 20, 50: 50, 60: 50, 70: 50}
    lab.damage(f"step_50.e1/{table(50)}", flip)
    gets = lambda s: sum(verb == "read_range" and table(50) in name for verb, name in s.store.calls)  # noqa: E731
    outcome = lab.run(session := share(lab, "bob", target_steps=80))
    assert outcome.exit_code == Exit.OK, said(outcome)
    assert gets(session) <= 4, "a file found damaged is not read again for each that shares it"
    state = lab.state()
    assert [c.key for c in state.retained if c.damaged] == [(50, 1), (70, 1)], "a damaged checkpoint keeps its lender"
    assert "rewind" in lab.kinds() and lab.held() == hash_of(80, state_at(80))
    assert session.workload.taken[0] == (50, 50), "one sound table is not enough"
    all_restorable(lab)


def test_this_machines_copy_of_a_head_whose_table_is_damaged_is_sent_whole(lab: Lab) -> None:
    lab.run(share(lab, target_steps=70, machine="one"))
    lab.damage(f"step_50.e1/{table(50)}", lambda data: None)
    lab.run(share(lab, target_steps=80, machine="one"))
    again = next(c for c in lab.state().retained if c.key == (70, 2))
    assert again.lends and f"step_70.e2/{table(50)}" in names(lab)
    all_restorable(lab)


def test_an_unsent_checkpoint_is_pushed_and_borrows_if_it_still_may(lab: Lab) -> None:
    lab.run(share(lab, target_steps=40, machine="one"))
    away = share(lab, target_steps=60, machine="one")
    away.store.fail = down_for("step_")
    assert lab.run(away).exit_code == Exit.UPLOAD_FAILED
    process = share(lab, machine="one")
    process.start(push)
    lab.world.run()
    assert process.outcome.exit_code == Exit.OK, said(process.outcome)
    assert lab.state().step == 60 and lab.state().head.base == (20, 1)
    all_restorable(lab)


def test_a_session_that_begins_with_an_unsent_checkpoint_keeps_no_tables_of_earlier_ones(lab: Lab) -> None:
    """A kill while one was copied may have left half of it."""
    lab.run(share(lab, target_steps=40, machine="one"))
    away = share(lab, target_steps=60, machine="one")
    away.store.fail = down_for("step_")
    lab.run(away)
    half = away.ctx.local_folder.root / LENT / "step_20.e1" / table(20)
    half.unlink()
    half.write_text("{")
    assert lab.run(share(lab, target_steps=80, machine="one")).exit_code == Exit.OK
    assert not half.exists()


def down_for(part: str) -> Callable[[str, str], None]:
    def fail(verb: str, name: str) -> None:
        if verb == "put" and part in name:
            raise Unavailable("no")

    return fail


def test_an_unsent_checkpoint_whose_table_is_gone_is_sent_whole(lab: Lab) -> None:
    lab.run(share(lab, target_steps=40, machine="one"))
    away = share(lab, target_steps=60, machine="one")
    away.store.fail = down_for("step_")
    lab.run(away)
    state = lab.state()
    writer_state = state.model_copy(
        update={"retained": tuple(c.model_copy(update={"base": None}) for c in state.retained)}
    )
    packed = away.ctx.local_folder.pushable(writer_state)
    assert packed and packed.borrowed
    alone = packed.alone()
    assert alone.own == alone.files and alone.base == alone.key and alone.lends == (table(20),)


def test_a_table_that_goes_after_the_manifest_was_sent_ends_no_thread_and_the_step_is_sent_whole_later(
    lab: Lab,
) -> None:
    """The manifest of one key is never sent with other bytes, and nothing is committed that is not there."""
    lab.run(share(lab, target_steps=40, machine="one"))
    session, lost = share(lab, target_steps=50, machine="one"), list[str]()

    def fail(verb: str, name: str) -> None:
        if verb == "put" and name.endswith("step_50.e2/manifest.json") and not lost:
            lost.append(lab.damage(f"step_20.e1/{table(20)}", lambda data: None))
            raise Unavailable("no answer")

    session.store.fail = fail
    outcome = lab.run(session)
    assert lost and outcome.exit_code == Exit.UPLOAD_FAILED, said(outcome)
    assert lab.run(share(lab, target_steps=60, machine="one")).exit_code == Exit.OK
    assert (50, 3) in {c.key for c in lab.state().retained if c.lends}
    assert lab.run(share(lab, "bob", target_steps=70)).exit_code == Exit.OK


def test_nothing_is_borrowed_as_long_as_a_second_table_is_only_on_its_way(lab: Lab) -> None:
    session = share(lab, target_steps=60)
    session.store.fail = down_for("step_20.e1/")
    assert lab.run(session).exit_code == Exit.OK
    assert (30, 10) in session.workload.taken, "planned while the second table was on its way"
    ledger = RunLedger(lab.shared, "toys", "chain", lab.world.process())
    for slot in ledger.entries(0, ledger.read().seq + 1):
        state = RunState.model_validate_json(json.dumps(slot.entry.state))
        assert not any(c.borrows for c in state.retained) or len(state.bases) > 1
    all_restorable(lab)


def test_a_run_that_shares_nothing_is_written_as_before(lab: Lab) -> None:
    lab.run(lab.session(target_steps=40))
    ledger = RunLedger(lab.shared, "toys", "chain", lab.world.process())
    for slot in ledger.entries(0, ledger.read().seq + 1):
        assert slot.entry.format == USUAL and b'"base":[' not in json.dumps(slot.entry.state).encode()


def test_an_older_client_stops_with_78_as_long_as_files_are_shared(lab: Lab, monkeypatch) -> None:
    lab.run(share(lab, target_steps=40))
    older = lab.session("bob", target_steps=60)
    with monkeypatch.context() as patch:
        patch.setattr("relay.core.ledger.entry.FORMAT", SHARING - 1)  # a client that knows nothing of shared files
        outcome = lab.run(older)
        assert outcome.exit_code == Exit.BAD_CONFIG and "`git pull`" in said(outcome)
    assert lab.run(share(lab, "bob", target_steps=60)).exit_code == Exit.OK
