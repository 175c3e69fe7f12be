"""Checkpoints of a large table: a base, a journal, and the state that both give."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.trm.tables import PUZZLES, ManyPuzzles
from tests.trm.test_workload import small
from trm import sharedtable
from trm.export import export_folder
from trm.journal import Journal, replays
from trm.optim import sign_sgd_
from trm.refit import refit
from trm.sharedtable import JOURNAL, table_file
from trm.snapshot import Saved, Snapshot, state_hash
from trm.statefile import FILES, STATE, TABLE, load_document
from trm.train import EagerStep

BATCH = 8


class Shelf:
    """Where checkpoints lie, each with all the files that it needs, as the relay would bring them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lent: dict[str, Path] = {}

    def commit(self, workload: ManyPuzzles, last: bool = False, lent: bool = True) -> tuple[Path, Saved]:
        folder = self.root / f"step_{workload.step}"
        workload.lend(frozenset(self.lent if lent else ()), last)
        taken = workload.snapshot()
        folder.mkdir()
        saved = taken.save(folder)
        for name in saved.borrows:
            shutil.copy(self.lent[name], folder / name)
        self.lent |= {name: folder / name for name in saved.lends}
        return folder, saved


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture(autouse=True)
def no_small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharedtable, "SHARE", 10.0)


def begun(tmp_path: Path, **more: object) -> ManyPuzzles:
    workload = ManyPuzzles(tmp_path / "data", **more)
    workload.start()
    return workload


def go(workload: ManyPuzzles, steps: int) -> None:
    workload.advance(workload.step + steps, lambda: False, None)


def hash_of(workload: ManyPuzzles) -> str:
    return state_hash(workload.state.canonical(), workload.step, 0)


def test_i7_every_checkpoint_of_a_shared_table_is_the_state_and_goes_on_bit_for_bit(tmp_path, shelf) -> None:
    unbroken = begun(tmp_path)
    for number in range(4):
        go(unbroken, 3)
        folder, saved = shelf.commit(unbroken)
        assert saved.state_hash == hash_of(unbroken)
        assert (saved.lends, saved.borrows) == (((table_file(3),), ()) if number == 0 else ((), (table_file(3),)))
        assert sorted(saved.files) == list(saved.files) and set(saved.files) >= {*FILES, STATE}
        resumed = ManyPuzzles(tmp_path / "data")
        resumed.load(folder)
        assert hash_of(resumed) == saved.state_hash
        assert torch.equal(resumed.state.tensors()[TABLE], unbroken.state.tensors()[TABLE])
    relayed = resumed
    for _ in range(3):  # sessions that load, train, and hand on: the journal grows through all of them
        go(relayed, 4)
        folder, saved = shelf.commit(relayed)
        assert saved.borrows == (table_file(3),)
        relayed = ManyPuzzles(tmp_path / "data")
        relayed.load(folder)
    go(unbroken, 12)
    assert hash_of(relayed) == hash_of(unbroken)


def test_the_same_training_without_sharing_is_the_same_state(tmp_path, shelf) -> None:
    shared, plain = begun(tmp_path), begun(tmp_path, shared_from=1 << 30)
    for workload in (shared, plain):
        go(workload, 3)
        shelf.commit(shared) if workload is shared else None
        go(workload, 3)
    assert hash_of(shared) == hash_of(plain) and plain.state.journal is None


def test_a_small_table_is_saved_as_before(tmp_path) -> None:
    """Below the threshold, as each present preset is, nothing of this shows in any file."""
    workload = ManyPuzzles(tmp_path / "data", shared_from=sharedtable.SHARED_FROM)
    workload.start()
    go(workload, 2)
    workload.lend(frozenset({table_file(1)}), True)
    folders = [tmp_path / name for name in ("a", "b")]
    saved = []
    for folder, taken in zip(folders, (workload.snapshot(), Snapshot(*taken_plain(workload))), strict=True):
        folder.mkdir()
        saved.append(taken.save(folder))
    assert saved[0] == saved[1] and saved[0].files == tuple(sorted((*FILES, STATE)))
    for name in saved[0].files:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    assert "table" not in json.loads((folders[0] / STATE).read_text())
    assert TABLE in load_file(folders[0] / "weights.safetensors")


@pytest.mark.parametrize(("said", "wanted"), [(None, True), ("1", True), ("0", False)], ids=["unsaid", "1", "0"])
def test_large_tables_are_shared_unless_somebody_declines(monkeypatch, said, wanted) -> None:
    monkeypatch.delenv("TRM_SHARED_TABLE", raising=False)
    if said is not None:
        monkeypatch.setenv("TRM_SHARED_TABLE", said)
    monkeypatch.setattr(sharedtable, "replays", lambda device: True)
    for device in ("cpu", "cuda"):
        assert sharedtable.sharing(sharedtable.SHARED_FROM, torch.device(device)) == (wanted, ())
        assert sharedtable.sharing(sharedtable.SHARED_FROM - 1, torch.device(device)) == (False, ())
        assert sharedtable.sharing(10, torch.device(device), least=10) == (True, ())


def fused(table: torch.Tensor, ids: torch.Tensor, grads: torch.Tensor, lr: float, decay: float) -> torch.Tensor:
    """`sign_sgd_` where product and difference are rounded once together."""
    before = table.double()
    sign = sign_sgd_(table, ids, grads, lr, decay)
    keep, rate = torch.tensor([1 - float(lr) * decay, float(lr)]).double()
    table[ids.long()] = (before[ids.long()] * keep - rate * sign.double()).float()
    return sign


def flushed(table: torch.Tensor, ids: torch.Tensor, grads: torch.Tensor, lr: float, decay: float) -> torch.Tensor:
    """`sign_sgd_` where what is subnormal is zero."""
    sign = sign_sgd_(table, ids, grads, lr, decay)
    table[table.abs() < torch.finfo(torch.float32).tiny] = 0
    return sign


@pytest.mark.parametrize("step", [fused, flushed])
def test_where_a_replay_would_not_give_the_bits_the_table_is_sent_whole_and_people_are_told(
    tmp_path, monkeypatch, step
) -> None:
    assert replays(torch.device("cpu"))
    monkeypatch.setattr("trm.journal.sign_sgd_", step)
    workload = begun(tmp_path)
    assert workload.remarks == (sharedtable.ROUNDS_OTHERWISE,) and workload.state.journal is None


def taken_plain(workload: ManyPuzzles) -> tuple[object, ...]:
    document = workload._about_run.model_copy(update={"step": workload.step})
    return workload.state, document, workload._loss_since_snapshot


@pytest.mark.parametrize("parts", [1, 3])
def test_micro_batches_journal_the_signs_of_the_whole_batch(tmp_path, shelf, parts) -> None:
    workload = begun(tmp_path, step=EagerStep(parts))
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 3)
    folder, saved = shelf.commit(workload)
    resumed = ManyPuzzles(tmp_path / "data")
    resumed.load(folder)
    assert saved.borrows and hash_of(resumed) == saved.state_hash


@pytest.mark.parametrize("queues", [False, True])
def test_a_snapshot_of_a_journal_holds_what_was_then_and_on_a_gpu_copies_no_table(
    tmp_path, shelf, monkeypatch, queues
) -> None:
    monkeypatch.setattr("trm.snapshot._queues", lambda device: queues)
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 2)
    expected = hash_of(workload)
    workload.lend(frozenset(shelf.lent), False)
    taken = workload.snapshot()
    assert (TABLE in taken._tensors) is not queues
    go(workload, 3)
    folder = tmp_path / "later"
    folder.mkdir()
    assert taken.save(folder).state_hash == expected
    shutil.copy(shelf.lent[table_file(2)], folder / table_file(2))
    resumed = ManyPuzzles(tmp_path / "data")
    resumed.load(folder)
    assert hash_of(resumed) == expected


@pytest.mark.parametrize("queues", [False, True])
def test_a_table_that_is_not_finite_is_seen_though_it_is_not_copied(tmp_path, shelf, monkeypatch, queues) -> None:
    monkeypatch.setattr("trm.snapshot._queues", lambda device: queues)
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    workload.state.tensors()[TABLE][5, 1] = float("nan")
    workload.lend(frozenset(shelf.lent), False)
    finite = workload.snapshot().finite
    assert not finite.ok and TABLE in finite.reason


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


def test_weights_that_are_exported_hold_the_table_as_it_is(tmp_path, shelf) -> None:
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 3)
    folder, _ = shelf.commit(workload)
    (tensors, _) = export_folder(folder, tmp_path / "out", {})
    assert torch.equal(load_file(tensors)["model.inner.puzzle_emb.weights"], workload.state.tensors()[TABLE])


def test_a_fork_under_other_settings_takes_the_table_along(tmp_path, shelf) -> None:
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 3)
    folder, _ = shelf.commit(workload)
    out = tmp_path / "refitted"
    out.mkdir()
    config = small(batch_size=4)
    saved = refit(folder, out, config, config.plain())
    assert saved.borrows == () and TABLE in load_file(out / "weights.safetensors")
    assert torch.equal(load_file(out / "weights.safetensors")[TABLE], workload.state.tensors()[TABLE])
    ManyPuzzles(tmp_path / "data", batch_size=4).load(out)


def change(file: str, how: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / file)
        how(tensors)
        save_file(tensors, folder / file)

    return damage


def note(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = json.loads((folder / STATE).read_text())
        content["table"] |= changes
        (folder / STATE).write_text(json.dumps(content))

    return damage


BASE = table_file(2)
DAMAGE: dict[str, Callable[[Path], None]] = {
    "no base": lambda folder: (folder / BASE).unlink(),
    "no journal": lambda folder: (folder / JOURNAL).unlink(),
    "a journal that is no file of tensors": lambda folder: (folder / JOURNAL).write_bytes(b"x" * 100),
    "a huge journal": lambda folder: os.truncate(folder / JOURNAL, 2**40),
    "a sign changed": change(JOURNAL, lambda t: t["signs"].__setitem__((0, 0), t["signs"][0, 0] ^ 1)),
    "a rate changed": change(JOURNAL, lambda t: t["rates"].__setitem__((0, 1), 0.5)),
    "rates that overflow": change(JOURNAL, lambda t: t["rates"].fill_(1e300)),
    "another row": change(JOURNAL, lambda t: t["rows"].__setitem__(0, min({*range(60)} - {*t["rows"].tolist()}))),
    "a row outside": change(JOURNAL, lambda t: t["rows"].__setitem__(0, PUZZLES)),
    "a step less": change(JOURNAL, lambda t: t.update(counts=t["counts"][:-1].clone(), rates=t["rates"][:-1].clone())),
    "one tensor more": change(JOURNAL, lambda t: t.update(more=torch.zeros(1))),
    "another type": change(JOURNAL, lambda t: t.update(rows=t["rows"].long())),
    "another base": change(BASE, lambda t: t[TABLE].add_(1)),
    "a base of another shape": change(BASE, lambda t: t.update({TABLE: t[TABLE][:-1].clone()})),
    "a base later than the step": note(base=99),
    "a base below 0": note(base=-1),
    "a base long ago": note(base=1),
    "another state's digest": note(state_hash="0" * 64),
    "no digest": note(state_hash=""),
    "a note with more in it": note(path="../x"),
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path, shelf) -> Path:
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 3)
    return shelf.commit(workload)[0]


@pytest.mark.parametrize("what", DAMAGE)
def test_what_does_not_lead_to_the_state_is_refused_and_changes_nothing(tmp_path, checkpoint, what) -> None:
    workload = begun(tmp_path)
    before = hash_of(workload)
    DAMAGE[what](checkpoint)
    with pytest.raises(ValueError, match=r"journal|table|state\.json") as refused:
        workload.load(checkpoint)
    assert "\n" not in str(refused.value) and hash_of(workload) == before


ODD: dict[str, Callable[[Path], None]] = {
    "signs that are none": change(JOURNAL, lambda t: t.update(signs=t["signs"].float())),
    "rows of another type": change(JOURNAL, lambda t: t.update(rows=t["rows"].float())),
    "rates of another type": change(JOURNAL, lambda t: t.update(rates=t["rates"].long())),
    "a table of whole numbers": change(BASE, lambda t: t.update({TABLE: t[TABLE].int()})),
    "a table of half numbers": change(BASE, lambda t: t.update({TABLE: t[TABLE].bfloat16()})),
    "a table of one dimension": change(BASE, lambda t: t.update({TABLE: t[TABLE].flatten()})),
    "two tables": change(BASE, lambda t: t.update(more=torch.zeros(1))),
}


@pytest.mark.parametrize("what", ODD)
def test_who_reads_the_weights_alone_refuses_odd_files_too(tmp_path, checkpoint, what) -> None:
    """An export and a fork under other settings know no live state to compare with."""
    ODD[what](checkpoint)
    (tmp_path / "refitted").mkdir()
    for read in (
        lambda: export_folder(checkpoint, tmp_path / "out", {}),
        lambda: refit(checkpoint, tmp_path / "refitted", small(batch_size=4), small(batch_size=4).plain()),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            read()


def test_a_shared_checkpoint_needs_no_shared_workload(tmp_path, checkpoint) -> None:
    """The threshold decides what is written, never what can be read."""
    plain = ManyPuzzles(tmp_path / "data", shared_from=1 << 30)
    plain.load(checkpoint)
    assert load_document(checkpoint).table.state_hash == hash_of(plain)
    folder = tmp_path / "plain"
    folder.mkdir()
    saved = plain.snapshot().save(folder)
    assert (saved.lends, saved.borrows) == ((), ())
    back = ManyPuzzles(tmp_path / "data")
    back.load(folder)
    assert hash_of(back) == hash_of(plain)
