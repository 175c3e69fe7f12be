"""What a resumed session computes: the same batches, weights, averages and moments, at once and in the same memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from relay.torch import statefile
from relay.torch.snapshot import state_hash
from tests.trm.conftest import SIZES
from trm.checkpoint import FILES, Document, TrmSnapshot, load_document
from trm.data.dataset import Dataset
from trm.interop import import_weights
from trm.train import EagerStep, TrainState

NO_LOSS = torch.zeros((), dtype=torch.float64)
EPOCH = 3
"""Steps of one epoch: 18 rows in batches of 6."""


def snapshot(state: TrainState) -> TrmSnapshot:
    return TrmSnapshot(state, Document(step=state.step, seed=0, config={}, code="0", fingerprint={}), NO_LOSS)


def hash_of(state: TrainState) -> str:
    return state_hash(state.canonical(), state.step, 0)


def resumed(state: TrainState, into: TrainState, folder: Path) -> TrainState:
    folder.mkdir()
    snapshot(state).save(folder)
    into.step = load_document(folder).step
    statefile.load_tensors(folder, FILES, into.tensors())
    return into


@pytest.mark.parametrize("cut", [EPOCH - 1, EPOCH, EPOCH + 1, 2 * EPOCH])
def test_a_resume_around_the_end_of_an_epoch_skips_and_repeats_nothing(make: Any, tmp_path: Path, cut: int) -> None:
    tokens = torch.arange(6 * EPOCH * SIZES.seq_len).reshape(6 * EPOCH, -1).remainder(4).to(torch.uint8) + 1
    asked: list[int] = []

    def go(state: TrainState, until: int) -> TrainState:
        data = Dataset(tokens, tokens, vocab_size=SIZES.vocab_size)
        while state.step < until:
            asked.append(state.step)
            EagerStep()(state, data.batch_at(0, state.step, 6))
        return state

    unbroken, first = go(make(0), 2 * EPOCH + 2), go(make(0), cut)
    asked.clear()
    again = go(resumed(first, make(0), tmp_path / "a"), 2 * EPOCH + 2)
    assert hash_of(again) == hash_of(unbroken)
    assert asked == list(range(cut, 2 * EPOCH + 2)), "each step's batch once, and none before"


def test_snapshots_taken_back_to_back_and_saved_late_keep_their_own_step(make: Any, run: Any, tmp_path: Path) -> None:
    state = make(2)
    taken = []
    for step in (3, 4, 5):
        run(state, step)
        taken.append((snapshot(state), hash_of(state)))
    run(state, 9)
    for number, (held, then) in enumerate(reversed(taken)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert held.save(folder).state_hash == then


def test_a_snapshot_shares_no_memory_with_what_trains_on(make: Any) -> None:
    state = make(3)
    live = {value.untyped_storage().data_ptr() for value in state.tensors().values()}
    held = {value.untyped_storage().data_ptr() for value in snapshot(state)._tensors.values()}
    assert live.isdisjoint(held)


def test_every_byte_overwritten_after_the_hand_over_leaves_the_snapshot(make: Any, tmp_path: Path) -> None:
    state = make(3)
    held, then = snapshot(state), hash_of(state)
    for value in state.tensors().values():
        value.zero_()
    assert held.save(tmp_path).state_hash == then


def test_weights_averages_and_moments_each_come_back_as_themselves(make: Any, run: Any, tmp_path: Path) -> None:
    """Hashed apart: neither is ever taken for the other, and neither begins anew."""
    unbroken = make(6)
    again = resumed(unbroken, make(0), tmp_path / "a")
    run(unbroken, 9), run(again, 9)
    kinds: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in unbroken.canonical().items():
        kinds.setdefault(name.partition("/")[0], {})[name] = value
    assert {"raw", "ema"} <= set(kinds) and len(kinds) >= 4
    mine = again.canonical()
    for kind, tensors in kinds.items():
        found = {name: mine[name] for name in tensors}
        assert state_hash(found, 9, 0) == state_hash(tensors, 9, 0), kind
    assert state_hash(kinds["raw"], 9, 0) != state_hash({f"raw{n[3:]}": v for n, v in kinds["ema"].items()}, 9, 0)


def test_a_resumed_optimizer_is_of_the_same_kind_and_place(make: Any, tmp_path: Path) -> None:
    """Same types, strides and buffers as a fresh one: nothing that would put its step on a slower path."""
    fresh = make(0)
    layout = {
        name: (value.dtype, value.device, value.stride(), value.data_ptr()) for name, value in fresh.tensors().items()
    }
    resumed(make(4), fresh, tmp_path / "a")
    after = {
        name: (value.dtype, value.device, value.stride(), value.data_ptr()) for name, value in fresh.tensors().items()
    }
    assert after == layout and isinstance(fresh.step, int)


def test_weights_under_a_compilers_names_come_back_and_none_is_left_random(make: Any, tmp_path: Path) -> None:
    state, path = make(5), tmp_path / "w.safetensors"
    wrapped = {f"_orig_mod.model.{name}": value.clone() for name, value in state.model.state_dict().items()}
    save_file(wrapped, path)
    fresh = make(0, seed=9)
    import_weights(fresh, path)
    assert torch.equal(fresh.params.buffer, state.params.buffer)
    for missing in list(wrapped)[:3]:
        save_file({name: value for name, value in wrapped.items() if name != missing}, path)
        with pytest.raises(ValueError, match=missing.rpartition("inner.")[2].replace(".", r"\.")):
            import_weights(make(0), path)
