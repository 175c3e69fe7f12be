"""A table is shared where it is large, a replay gives its bits and nobody declines; a load needs none of it."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from relay.torch.statefile import STATE
from tests.trm.tables import ManyPuzzles, begun, go, hash_of
from trm import sharedtable
from trm.checkpoint import FILES, TABLE, TrmSnapshot, load_document, table_file
from trm.journal import replays
from trm.optim import sign_sgd_

pytestmark = pytest.mark.usefixtures("no_small_limit")


def test_a_small_table_is_saved_as_before(tmp_path) -> None:
    """Below the threshold, as each present preset is, nothing of this shows in any file."""
    workload = ManyPuzzles(tmp_path / "data", shared_from=sharedtable.SHARED_FROM)
    workload.start()
    go(workload, 2)
    workload.lend(frozenset({table_file(1)}), True)
    folders = [tmp_path / name for name in ("a", "b")]
    saved = []
    for folder, taken in zip(folders, (workload.snapshot(), TrmSnapshot(*taken_plain(workload))), strict=True):
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
    document = workload.about_run.model_copy(update={"step": workload.step})
    return workload.state, document, workload._loss_since_snapshot


def test_a_shared_checkpoint_needs_no_shared_workload(tmp_path, shelf) -> None:
    """The threshold decides what is written, never what can be read."""
    workload = begun(tmp_path)
    go(workload, 2)
    shelf.commit(workload)
    go(workload, 3)
    checkpoint, _ = shelf.commit(workload)
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
