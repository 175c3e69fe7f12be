"""Checkpoints of a large table: a base, a journal, and the state that both give."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file

from relay.torch.statefile import STATE
from tests.trm.small import small
from tests.trm.tables import ManyPuzzles, begun, go, hash_of
from trm.checkpoint import FILES, TABLE, table_file
from trm.interop import export_folder
from trm.refit import refit
from trm.train import EagerStep

pytestmark = pytest.mark.usefixtures("no_small_limit")


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
    monkeypatch.setattr("trm.checkpoint._queues", lambda device: queues)
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
    monkeypatch.setattr("trm.checkpoint._queues", lambda device: queues)
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    workload.state.tensors()[TABLE][5, 1] = float("nan")
    workload.lend(frozenset(shelf.lent), False)
    finite = workload.snapshot().finite
    assert not finite.ok and TABLE in finite.reason


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
