"""A journal stays short: when a new base is written, and what ends a journal that no base follows."""

from __future__ import annotations

import pytest

from tests.trm.tables import BATCH, PUZZLES, ManyPuzzles, begun, go, hash_of
from trm import sharedtable
from trm.checkpoint import table_file
from trm.journal import Journal

pytestmark = pytest.mark.usefixtures("no_small_limit")


def test_a_new_base_is_written_when_the_journal_is_long_but_not_at_the_end(tmp_path, shelf, monkeypatch) -> None:
    each = BATCH * (4 + 4) + 20
    monkeypatch.setattr(sharedtable, "SHARE", 5.5 * each / (PUZZLES * 16 * 4))
    workload = begun(tmp_path)
    found = []
    for number in range(8):
        go(workload, 2)
        saved = shelf.commit(workload, last=number == 3)[1]
        found.append(saved.lends or saved.borrows)
    steps = [int(name.removeprefix("table-").partition(".")[0]) for (name,) in found]
    assert steps[:3] == [2, 2, 2] and steps[3] == 2 and steps[4] == 10, steps
    assert steps[5:] == [10, 10, steps[7]]


def test_a_base_that_is_never_committed_costs_nothing_but_the_journal(tmp_path, shelf) -> None:
    """What a lost upload would have lent is not lent: the journal still leads from the older base."""
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 2)
    folder, saved = shelf.commit(workload, lent=False)
    assert saved.lends == (table_file(4),)
    del shelf.lent[table_file(4)]
    for _ in range(2):
        go(workload, 2)
        folder, saved = shelf.commit(workload)
        assert saved.borrows == (table_file(2),)
    resumed = ManyPuzzles(tmp_path / "data")
    resumed.load(folder)
    assert hash_of(resumed) == hash_of(workload)


@pytest.mark.parametrize("lent", [0, 1])
def test_a_journal_ends_where_no_newer_base_is_ever_committed(tmp_path, shelf, monkeypatch, lent) -> None:
    """Else memory grows for ever, and what is committed at last is more than any load takes."""
    each = BATCH * (4 + 4) + 20
    monkeypatch.setattr(sharedtable, "SHARE", 5.5 * each / (PUZZLES * 16 * 4))
    monkeypatch.setattr("trm.journal.BUFFER_BYTES", 1)  # 16 slots
    workload, steps = begun(tmp_path), []
    for number in range(14):
        go(workload, 4 if number else 2)
        workload.lend(frozenset({table_file(2)} if lent else ()), last=False)
        plan = workload.snapshot()._plan
        steps.append(sum(chunk.record.steps for chunk in plan.chunks))
        assert len(workload._table._bases) <= 8 and sum(c.record.steps for c in workload._table._chunks) <= 44
    assert max(steps) == 20 * lent and steps[-6:] == [0] * 6


def test_the_buffer_is_emptied_whenever_it_is_full(tmp_path, shelf, monkeypatch) -> None:
    monkeypatch.setattr("trm.journal.BUFFER_BYTES", 1)  # 16 slots
    workload = begun(tmp_path)
    assert isinstance(workload.state.journal, Journal) and workload.state.journal.room == 16
    go(workload, 1)
    shelf.commit(workload)
    go(workload, 40)
    folder, saved = shelf.commit(workload)
    resumed = ManyPuzzles(tmp_path / "data")
    resumed.load(folder)
    assert saved.borrows and hash_of(resumed) == saved.state_hash
