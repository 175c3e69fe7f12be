"""A run whose checkpoints share a table, through many sessions and mishaps, is the run that nothing interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.core.checkpoint.retention import GRACE_S, Keep
from relay.core.errors import Exit
from relay.core.workload import Borrower
from relay.torch.snapshot import state_hash
from tests.core.checkpoint.test_restore import flip
from tests.core.lab import Lab, Session
from tests.trm.small import small_arc
from tests.trm.tables import ManyPuzzles
from trm import sharedtable
from trm.checkpoint import table_file
from trm.workload import TrmWorkload

pytestmark = pytest.mark.slow
Made = Callable[[Path], TrmWorkload]


@pytest.fixture(autouse=True)
def a_base_every_twenty_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharedtable, "REPLAYED", 20)
    monkeypatch.setattr(sharedtable, "SHARE", 1e9)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


class Tasks(TrmWorkload):
    """ARC tasks: a row of the table for each variant."""

    def __init__(self, root: Path) -> None:
        super().__init__(small_arc(), root, "cpu", shared_from=0)


def session(lab: Lab, target: int, account: str = "alice", made: Made = ManyPuzzles, **more: object) -> Session:
    workload = made(lab.tmp / "data")
    assert isinstance(workload, Borrower)
    once = workload._train_once

    def paced() -> None:
        workload.sleep(0.1)  # type: ignore[attr-defined]  # set by the lab: a step takes time in the world of the test
        once()

    workload._train_once = paced  # type: ignore[method-assign]
    plan = {"target_steps": target, "every_steps": 5, "keep": Keep(2)}
    return lab.session(account, workload=workload, **plan | more)


def unbroken(lab: Lab, steps: int, made: Made = ManyPuzzles) -> str:
    workload = made(lab.tmp / "data")
    workload.start()
    workload.advance(steps, lambda: False, None)
    return state_hash(workload.state.canonical(), steps, 0)


@pytest.mark.parametrize("made", [ManyPuzzles, Tasks])
def test_i7_through_bases_journals_a_kill_a_clean_up_and_damage_it_is_the_unbroken_run(lab: Lab, made: Made) -> None:
    assert lab.run(session(lab, 20, made=made)).exit_code == Exit.OK
    assert [(c.step, c.base and c.base[0]) for c in lab.state().retained] == [(5, 5), (10, 10), (15, 10), (20, 10)]
    lab.world.now += 2 * GRACE_S
    killed = session(lab, 60, "bob", made)

    def die_between_base_and_append(verb: str, name: str) -> None:
        if verb == "put" and name.endswith("manifest.json") and "step_35" in name:
            killed.process.kill()

    killed.store.fail = die_between_base_and_append
    killed.start()
    lab.world.run()
    left = {stat.name.rpartition("/")[2] for stat in lab.shared.list("checkpoints/") if "step_35." in stat.name}
    assert table_file(35) in left and lab.state().step == 30, "a base was stored, and nothing names it"
    lab.world.now += 2 * GRACE_S
    assert lab.run(session(lab, 45, "cyd", made)).exit_code == Exit.OK
    lab.world.now += 2 * GRACE_S
    assert lab.run(session(lab, 70, "alice", made)).exit_code == Exit.OK
    newest = lab.state().head.base
    lab.damage(f"step_{newest[0]}.e{newest[1]}/{table_file(newest[0])}", flip)
    assert lab.run(session(lab, 80, "bob", made)).exit_code == Exit.OK
    assert "rewind" in lab.kinds()
    lab.world.now += 2 * GRACE_S
    assert lab.run(session(lab, 90, "cyd", made)).exit_code == Exit.OK
    state = lab.state()
    assert state.head.borrows and lab.held() == unbroken(lab, 90, made)
    assert [link.certified for link in state.links] == ["unknown", *["exact"] * 5]
    sizes = {c.step: c.bytes for c in state.retained}
    assert min(sizes.values()) < max(sizes.values())


def test_a_fork_holds_its_own_table(lab: Lab) -> None:
    from relay.core.ledger.ledger import RunLedger
    from relay.core.names import Names
    from relay.core.runs.fork import Branch, copy_checkpoint
    from tests.core.lab import PROJECT, genesis

    lab.run(session(lab, 20))
    ledger = RunLedger(lab.shared, PROJECT, "chain", lab.world.process())
    view = ledger.read()
    names, run_id = Names(PROJECT, "branch"), genesis("branch").run_id
    branch = Branch(lab.shared, names, run_id, "test", lab.tmp / "scratch", lab.world.process())
    head, origin = copy_checkpoint(ledger, view, view.state.head.key, branch)
    assert head.lends and head.bytes > view.state.head.bytes
    made = RunLedger(lab.shared, PROJECT, "branch", lab.world.process())
    made.begin(genesis("branch").model_copy(update={"head": head, "origin": origin}), session="0" * 32)
    assert lab.run(session(lab, 35, run="branch")).exit_code == Exit.OK
    state = lab.state("branch")
    assert lab.held("branch") == unbroken(lab, 35)
    assert {c.base[0] for c in state.retained} == {20, 25}, "one copied table, and one of its own, before any is lent"
