"""A fork is a copy under its own prefix that goes on from the same state."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.app.checks.verify import verify
from relay.core.checkpoint.restore import RetiredDuringDownload
from relay.core.checkpoint.retention import Keep
from relay.core.errors import BadData, Exit
from relay.core.ledger.ledger import RunLedger, View
from relay.core.names import Names
from relay.core.runs.fork import Branch, ForkTaken, copy_checkpoint
from tests.core.lab import PROJECT, RUN, Lab, genesis
from tests.core.toy import ToyWorkload, hash_of, state_at


def fork(lab: Lab, step: int, tmp: Path, run: str = RUN, view: View | None = None) -> None:
    ledger = RunLedger(lab.shared, PROJECT, run, lab.world.process())
    view = view or ledger.read()
    target = genesis("branch")
    branch = Branch(lab.shared, Names(PROJECT, "branch"), target.run_id, "1", tmp / "scratch", lab.world.process())
    head, origin = copy_checkpoint(ledger, view, (step, 1), branch)
    begun = target.model_copy(update={"head": head, "origin": origin})
    RunLedger(lab.shared, PROJECT, "branch", lab.world.process()).begin(begun, session="0" * 32)


def test_a_fork_trains_on_exactly_and_needs_nothing_of_its_parent(lab: Lab, tmp_path: Path) -> None:
    lab.run(lab.session(target_steps=40, keep=Keep(9)))
    fork(lab, 20, tmp_path)
    for stat in list(lab.shared.list(f"checkpoints/{PROJECT}/{RUN}/")):
        lab.shared.delete(stat.ref)
    outcome = lab.run(lab.session("bob", run="branch", target_steps=60))
    assert (outcome.exit_code, outcome.from_step, outcome.certified) == (Exit.OK, 20, "exact")
    state = lab.state("branch")
    assert lab.held("branch") == hash_of(60, state_at(60))
    assert (state.origin.run, state.origin.step) == (RUN, 20)
    assert not list((tmp_path / "scratch").glob("step_*"))


def test_only_what_is_retained_and_sound_can_be_forked(lab: Lab, tmp_path: Path) -> None:
    lab.run(lab.session(target_steps=40))
    with pytest.raises(BadData, match=r"20, 30, 40"):
        fork(lab, 25, tmp_path)
    lab.damage("step_30.e1/ema.json", lambda data: data + b" ")
    with pytest.raises(BadData, match="damaged"):
        fork(lab, 30, tmp_path)


def test_of_two_forks_to_one_name_the_second_touches_nothing(lab: Lab, tmp_path: Path) -> None:
    lab.begin("other")
    lab.run(lab.session(target_steps=40))
    lab.run(lab.session("bob", run="other", target_steps=40, workload=ToyWorkload(seed=7)))
    fork(lab, 40, tmp_path)
    for run, step in (("other", 40), (RUN, 30)):
        with pytest.raises(ForkTaken):
            fork(lab, step, tmp_path, run)
    fork(lab, 40, tmp_path)  # one that broke off is made again: the same bytes
    assert verify(RunLedger(lab.shared, PROJECT, "branch", lab.world.process()), lab.shared).ok
    assert lab.held("branch") == hash_of(40, state_at(40))


def test_a_step_retired_while_it_was_read_is_not_called_damaged(lab: Lab, tmp_path: Path) -> None:
    lab.run(lab.session(target_steps=40, keep=Keep(9)))
    before = RunLedger(lab.shared, PROJECT, RUN, lab.world.process()).read()
    lab.run(lab.session("bob", target_steps=100, keep=Keep(2)))
    lab.world.now += 7200
    lab.run(lab.session("bob", target_steps=120, keep=Keep(2)))
    with pytest.raises(RetiredDuringDownload) as refused:
        fork(lab, 10, tmp_path, view=before)
    assert refused.value.retained == (110, 120)
