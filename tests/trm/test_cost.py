"""Memory: the prediction against what torch keeps and what GPUs needed; batches split where they do not fit."""

from __future__ import annotations

import pytest
import torch

from relay.core.resources import FreeMemory
from relay.torch import memory
from relay.torch.faults import TaskError
from relay.torch.memory import CAP, SLACK, free_bytes
from tests.facts import raising
from trm.config import Arch, TrainConfig
from trm.cost import fit, need
from trm.model import Sizes
from trm.presets import preset
from trm.train import EagerStep, TrainState

SUDOKU = Sizes(seq_len=81, vocab_size=11, num_identifiers=1)
GIB = 2**30


ARC = TrainConfig(task="arc", batch_size=192, arch=Arch(L_cycles=4), puzzle_emb_lr=1e-2)
"""As benchmarks/step_time.py has it."""


@pytest.mark.parametrize(("method", "measured_gib"), [("eager", 40.2), ("compiled", 29.7)])
def test_predictions_match_the_peaks_measured_on_a_gpu(method, measured_gib: float) -> None:
    """docs/records/2026-11-28_step_time: sudoku, batch 768, one H100."""
    predicted = need(preset("sudoku"), SUDOKU, method).peak(768) / GIB
    assert measured_gib <= predicted < 1.06 * measured_gib


@pytest.mark.parametrize(
    ("config", "sizes", "measured_gib"),
    [
        (preset("sudoku"), SUDOKU, 13.2),
        (preset("sudoku_att"), SUDOKU, 17.4),
        (ARC, Sizes(seq_len=900, vocab_size=12, num_identifiers=876_406), 31.4),
    ],
    ids=["sudoku", "sudoku_att", "arc"],
)
def test_predictions_match_the_fused_steps_peaks(config: TrainConfig, sizes: Sizes, measured_gib: float) -> None:
    """docs/LOG.md, 2026-11-28: benchmarks/step_time.py on one H200."""
    predicted = need(config, sizes, "fused").peak(config.batch_size) / GIB
    assert measured_gib <= predicted < 1.03 * measured_gib


@pytest.mark.parametrize("mlp_t", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_row_is_said_to_need_is_what_torch_keeps(batch_at, mlp_t: bool, dtype: str) -> None:
    """Counted by hooks on everything autograd saves, each storage once; weights and batch-wide tensors apart."""
    arch = Arch(
        hidden_size=64, num_heads=4, L_layers=2, H_cycles=1, L_cycles=2, puzzle_emb_ndim=64, puzzle_emb_len=1,
        mlp_t=mlp_t, pos_encodings="none" if mlp_t else "rope", forward_dtype=dtype,
    )  # fmt: skip
    sizes = Sizes(seq_len=7, vocab_size=5, num_identifiers=3)
    kept, counted = [], []
    for rows in (8, 24):
        config = TrainConfig(task="tiny", arch=arch, batch_size=rows, threads=1)
        state = TrainState(config, sizes)
        kept.append(_saved_by_autograd(state, batch_at(0, rows)))
        counted.append(need(config, sizes, "eager"))
    a_row = (kept[1] - kept[0]) / 16
    assert a_row <= counted[0].per_row < 1.25 * a_row


def _saved_by_autograd(state: TrainState, batch) -> int:
    storages: dict[int, int] = {}
    held = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # or its address would be used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        EagerStep()(state, batch)
    return sum(storages.values())


def test_a_batch_is_split_into_the_fewest_parts_that_fit() -> None:
    config = preset("sudoku")
    needed = need(config, SUDOKU, "eager")
    assert fit(config, SUDOKU, "eager", None).parts == 1
    assert fit(config, SUDOKU, "eager", int(80e9)).remark is None
    found = fit(config, SUDOKU, "eager", int(15e9))
    assert found.parts == 4
    assert 1.05 * needed.session(768 // 4) < 15e9 < 1.05 * needed.session(768 // 3)
    assert found.peak < found.needed < found.unsplit
    for fact in ("768", "45.2 GB", "15.0 GB", "4", "192"):
        assert fact in str(found.remark)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_device_that_holds_no_single_row_is_refused_with_what_would_fit(kind: str) -> None:
    config = preset("sudoku")
    with raising(TaskError, "0.1 GB", "No task"):
        fit(config, SUDOKU, "eager", int(6e7), kind=kind)
    with raising(TaskError, "task=sudoku4"):
        fit(config, SUDOKU, "eager", int(4e8), kind=kind)
    smaller = need(config.model_copy(update={"batch_size": 100}), SUDOKU, "eager", kind=kind)
    with raising(TaskError, "batch_size=100 "):
        fit(config, SUDOKU, "eager", int(SLACK * smaller.session(1)) + 1, kind=kind)


def test_processes_share_the_memory_of_a_cpu_but_not_of_gpus() -> None:
    config, free = preset("sudoku"), int(30e9)
    for kind, share in (("cpu", free // 2), ("cuda", free)):
        found = fit(config, SUDOKU, "eager", free, processes=2, kind=kind)
        assert found.free == share and SLACK * found.needed <= share
        assert (found.parts > 1) is (kind == "cpu")


def test_an_evaluation_needs_its_memory_however_small_the_parts_are() -> None:
    found = need(preset("sudoku"), SUDOKU, "eager", kind="cpu")
    assert found.session(1) == found.session(2) > found.peak(1) + found.beside
    assert found.session(768) == pytest.approx(found.peak(768) + found.beside)


def test_memory_can_be_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv(CAP, raising=False)
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    assert free_bytes(cpu) is None
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(4 * GIB, "the container's memory limit"))
    assert free_bytes(cpu) == 4 * GIB
    with raising(TaskError, "the container's memory limit"):
        fit(preset("sudoku"), SUDOKU, "eager", int(1e8), kind="cpu")
    monkeypatch.setenv(CAP, "1.5")
    assert free_bytes(cpu) == 1_500_000_000
    for nonsense in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv(CAP, nonsense)
        with pytest.raises(TaskError, match="TRM_MEMORY_GB"):
            free_bytes(cpu)


def test_a_cap_on_a_gpu_is_enforced_and_less_free_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    enforced: list[tuple[float, int]] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(9e9), int(80e9)))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: int(1e9))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: enforced.append(given))
    monkeypatch.delenv(CAP, raising=False)
    assert free_bytes(torch.device("cuda")) == 10e9
    monkeypatch.setenv(CAP, "8")
    assert free_bytes(torch.device("cuda")) == 8e9
    assert enforced == [(0.1, 0)]  # torch takes no "cuda" without a number here
    monkeypatch.setenv(CAP, "40")
    assert free_bytes(torch.device("cuda")) == 10e9
