"""Metrics between two commits: bounded, in the ledger, of the commit's own steps only, and never lost with a commit."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from relay.core.errors import Exit
from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit, Refused, parse_change
from relay.core.ledger.frozen import MAX_COLUMNS, MAX_ROWS
from relay.core.ledger.keeping import commit as rule
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.sessionreport import GATHERED, MAX_STATE, Gathered, MetricsRow, Samples, table, thinned
from relay.core.session.session import push
from storage.base import Unavailable
from tests.core.lab import PROJECT, RUN, Lab
from tests.core.making import checkpoint
from tests.core.rulings import by, committed, leased, new
from tests.core.toy import ToyWorkload

ROWS = st.lists(st.integers(1, 5000), min_size=1, max_size=400, unique=True).map(
    lambda steps: [MetricsRow(step, float(step), {"loss": 1 / step}) for step in sorted(steps)]
)


def told(lab: Lab) -> list[tuple[int, int, tuple[MetricsRow, ...]]]:
    """(step, epoch, rows) of every commit in the ledger."""
    ledger = RunLedger(lab.shared, PROJECT, RUN, lab.world.process())
    found = []
    for slot in ledger.entries(0, ledger.read().seq + 1):
        if slot.entry and slot.entry.kind == "commit":
            change = parse_change("commit", slot.entry.change)
            assert isinstance(change, Commit)
            rows = tuple(change.samples.rows()) if change.samples else ()
            found.append((change.checkpoint.step, change.checkpoint.epoch, rows))
    return found


@given(ROWS, st.integers(0, 5000), st.integers(0, 5000))
def test_a_table_is_bounded_and_of_its_own_steps(rows: list[MetricsRow], after: int, up_to: int) -> None:
    own = [row.step for row in rows if after < row.step <= up_to]
    made = table(rows, after, up_to)
    assert (made is None) == (not own)
    if made:
        assert len(made.steps) <= MAX_ROWS and set(made.steps) <= set(own)
        assert made.steps[-1] == own[-1], "the newest row has the commit's own metrics"
        assert len(own) > MAX_ROWS or list(made.steps) == own
        assert Samples.model_validate_json(dumps(made.model_dump(mode="json"))) == made


@given(ROWS, st.integers(2, 40))
def test_what_is_kept_depends_on_the_steps_alone(rows: list[MetricsRow], most: int) -> None:
    kept = thinned(rows, most)
    assert len(kept) <= most and kept[-1] == rows[-1]
    strides = {n for n in range(14) if [r.step for r in kept[:-1]] == [r.step for r in rows[:-1] if r.step % 2**n == 0]}
    assert strides


def test_a_day_without_a_commit_takes_no_more_memory_and_what_is_not_finite_is_left_out() -> None:
    gathered = Gathered()
    for step in range(1, 50_000):
        gathered.add(step, float(step), {"loss": math.nan if step % 2 else 1.0, "lr": 0.1, "x": math.inf})
    rows = gathered.since(0)
    assert GATHERED // 4 < len(rows) <= GATHERED
    assert all(row.values.keys() == ({"lr"} if row.step % 2 else {"loss", "lr"}) for row in rows)
    gathered.add(40_000, 0.0, {"loss": 7.0})
    assert [row.step for row in gathered.since(39_999)] == [40_000], "a step that is done again counts once"
    assert gathered.since(40_000) == ()


def test_numbers_are_short_and_columns_few() -> None:
    made = table([MetricsRow(1, 2.9, {f"m{n}": 1 / 3 for n in range(40)}), MetricsRow(2, 1.0, {"m0": 2e-9 / 3})], 0, 2)
    assert made and len(made.columns) == MAX_COLUMNS
    assert made.columns["m0"] == (0.33333, 6.6667e-10) and made.columns["m1"] == (0.33333, None)
    most = sys.float_info.max
    edges = table([MetricsRow(1, 0.0, {"x": most, "y": -most, "z": 5e-324})], 0, 1)
    assert edges and edges.columns == {"x": (most,), "y": (-most,), "z": (5e-324,)}, "rounded up they are infinite"
    assert made.seconds == (2, 2), "a clock that falls is held"
    assert [row.values.keys() for row in made.rows()] == [{f"m{n}" for n in range(MAX_COLUMNS)}, {"m0"}]


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": [20, 20]},
        {"steps": [25, 21]},
        {"steps": [21]},
        {"steps": [], "seconds": [], "columns": {"loss": []}},
        {"seconds": [5, 4]},
        {"seconds": [1]},
        {"seconds": [-1, 4]},
        {"columns": {}},
        {"columns": {"loss": [1.0]}},
        {"columns": {"loss": [1.0, "2"]}},
        {"columns": {"lo\u202ess": [1.0, 2.0]}},
        {"columns": {"x" * 65: [1.0, 2.0]}},
        {"columns": {f"m{n}": [1.0, 2.0] for n in range(MAX_COLUMNS + 1)}},
        {"steps": list(range(21, 22 + MAX_ROWS)), "seconds": [1] * (MAX_ROWS + 1),
         "columns": {"loss": [1.0] * (MAX_ROWS + 1)}},
        {"more": 1},
    ],
)  # fmt: skip
def test_a_table_of_a_stranger_is_a_table_or_refused(fields: dict[str, Any]) -> None:
    good = {"steps": [21, 25], "seconds": [4, 5], "columns": {"loss": [1.0, None]}}
    Samples.model_validate_json(dumps(good))
    with pytest.raises(ValidationError):
        Samples.model_validate_json(dumps(good | fields))


@pytest.mark.parametrize(
    ("steps", "seconds", "why"),
    [((20, 25), 5, "steps outside 21 to 30"), ((21, 31), 5, "steps"), ((21, 30), 99, "time")],
)
def test_nobody_draws_into_another_s_commit(steps: tuple[int, int], seconds: int, why: str) -> None:
    state = committed(leased(new()), 10, 20)
    samples = Samples(steps=steps, seconds=(0, seconds), columns={"loss": (1.0, 2.0)})
    with pytest.raises(Refused, match=why):
        rule(state, Commit(checkpoint=checkpoint(30, 1), seconds=60.0, samples=samples), by(1))


def test_a_commit_without_any_is_written_as_before() -> None:
    assert "samples" not in Commit(checkpoint=checkpoint(30, 1)).model_dump(mode="json")


def test_every_step_that_was_told_is_in_one_commit_of_a_relay(lab: Lab) -> None:
    for account, target in (("ana", 35), ("ben", 60), ("ana", 95)):
        assert lab.run(lab.session(account, target_steps=target)).exit_code == Exit.OK
    commits, last = told(lab), 0
    for step, _, rows in commits:
        assert all(last < row.step <= step for row in rows)
        assert all(one.at <= other.at for one, other in pairwise(rows))
        last = step
    steps = [row.step for _, _, rows in commits for row in rows]
    extra = [step + 1 for step, _, _ in commits]  # P9's extra step during the upload is not reported
    assert steps == [step for step in range(1, 96) if step not in extra or step in (36, 61)]
    assert all(row.values["loss"] == pytest.approx(1 / row.step, rel=1e-4) for _, _, rows in commits for row in rows)


def test_what_was_told_before_a_commit_that_failed_is_in_the_next_one(lab: Lab) -> None:
    session = lab.session(target_steps=40, every_s=1e9)
    failing = iter(range(6))

    def fail(verb: str, name: str) -> None:
        if verb == "put" and "step_10." in name and next(failing, None) is not None:
            raise Unavailable("the store is away")

    session.workload.step_s, session.store.fail = 0.4, fail
    assert lab.run(session).exit_code == Exit.OK
    commits = told(lab)
    steps = [row.step for _, _, rows in commits for row in rows]
    assert steps == sorted(set(steps)) and {1, 9, 10, 20, 40} <= set(steps)


def test_a_checkpoint_that_is_sent_later_brings_what_was_told(lab: Lab) -> None:
    session = lab.session("ana", machine="hers", target_steps=10)
    session.store.fail = refuse_files
    session.start()
    lab.world.run()
    assert session.outcome.unsent is not None and not told(lab)
    assert lab.session("ana", machine="hers", target_steps=20).start(push) and lab.world.run() is None
    ((step, _, rows),) = told(lab)
    assert step == 10 and [row.step for row in rows] == list(range(1, 11)) and {row.at for row in rows} == {0.0}


def refuse_files(verb: str, name: str) -> None:
    if "checkpoints/" in name and verb == "put":
        raise Unavailable("the store is away")


def test_a_state_that_fills_its_entry_leaves_no_room(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_STATE < 256_000 - 20_000
    monkeypatch.setattr("relay.core.checkpoint.commit.MAX_STATE", 10)
    assert lab.run(lab.session(target_steps=20, workload=ToyWorkload())).exit_code == Exit.OK
    assert [rows for _, _, rows in told(lab)] == [(), ()]
