"""The workload: any cut of a run gives the same bytes; what is measured, shown and exported of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lm import workload as training
from lm.config import TOKENIZER_FILE, LmConfig
from lm.cost import need, parameter_count, step_flops, token_flops
from lm.evaluate import evaluate, marks
from lm.interop import export
from lm.presets import MEASURES, PRESETS, SPLITS, preset, target_steps
from lm.train import RefiningStep, TrainState
from lm.workload import LmWorkload, strategy
from relay.core.workload import Progress, Reading
from relay.torch import device as devices
from relay.torch.faults import DataError, TaskError
from relay.torch.memory import CAP
from tests.facts import raising
from tests.lm.small import VOCABULARY, batch_at, moved, small

pytestmark = pytest.mark.slow

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "step": {"steps": 3, "loops": 1, "weight_base": 1, "gradient": "step"},
    "through": {"steps": 3, "loops": 1, "weight_base": 10, "reward": 2, "gradient": "through"},
    "bpe": {"steps": 2, "gradient": "through", "tokenizer": "generated", "vocab_size": 300},
    "falling": {"lr_warmup_steps": 3, "decay_share": 0.5, "total_steps": 12},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def made(root: Path, **changes: Any) -> LmWorkload:
    return LmWorkload(small(size_mb=1, **changes), root, "cpu")


def go(workload: LmWorkload, until: int) -> list[Progress]:
    seen: list[Progress] = []
    workload.advance(until, lambda: False, seen.append)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_any_cut_of_a_run_gives_the_same_bytes(root: Path, tmp_path: Path, kind: str) -> None:
    whole = made(root, **KINDS[kind])
    whole.start()
    go(whole, 12)
    before: LmWorkload | None = None
    for number, until in enumerate((2, 3, 7, 12)):
        part = made(root, **KINDS[kind])
        if before is None:
            part.start()
        else:
            folder = tmp_path / str(number)
            folder.mkdir()
            saved = before.snapshot().save(folder)
            part.load(folder)
            assert part.digest().digest == saved.state_hash and set(saved.files) >= {*training.FILES, "state.json"}
            assert (TOKENIZER_FILE in saved.files) is (kind == "bpe")
        go(part, until)
        before = part
    assert before is not None and before.digest() == whole.digest()


def test_a_snapshot_stays_and_is_refused_if_it_does_not_fit(root: Path, tmp_path: Path) -> None:
    work = made(root, tokenizer="generated", vocab_size=300)
    work.start()
    go(work, 2)
    taken, digest = work.snapshot(), work.digest().digest
    go(work, 4)
    saved = taken.save(tmp_path)
    assert saved.state_hash == digest and taken.finite.ok and taken.step == 2
    with pytest.raises(ValueError, match=r"embed|head"):
        made(root).load(tmp_path)
    (tmp_path / TOKENIZER_FILE).write_bytes(b"{}")
    with raising(ValueError, TOKENIZER_FILE):
        work.load(tmp_path)
    assert work.step == 4, "the state stays"
    work.state.params.views["head"][0, 0] = torch.nan
    assert not work.snapshot().finite.ok


def test_progress_names_every_loss_and_not_the_objective_as_one(root: Path) -> None:
    work = made(root, **KINDS["through"])
    work.start()
    (first, last) = go(work, 21)
    assert (first.step, last.step) == (20, 21)
    losses = {"token_loss", "token_loss_1", "token_loss_2"}
    assert set(first.metrics) == losses | {"objective", "grad_norm", "lr", "epochs"}
    assert first.metrics["token_loss"] < math.log(256) and first.metrics["objective"] != first.metrics["token_loss"]
    assert set(MEASURES.first) <= set(first.metrics)


def test_what_a_run_pins(root: Path) -> None:
    plain = made(root).config()
    assert plain["data"]["train"].startswith("sha256:") and plain["data"]["valid"] == "" and "total_steps" not in plain
    assert json.loads(json.dumps(plain)) == plain
    falling, bpe = made(root, **KINDS["falling"]).config(), made(root, **KINDS["bpe"]).config()
    assert falling["total_steps"] == 12 and falling["data"] == plain["data"]
    assert bpe["data"]["tokenizer"].startswith("sha256:") and bpe["data"]["train"] != plain["data"]["train"]
    assert LmConfig.model_validate(plain).plain() == {**plain, "total_steps": None}


def test_bits_per_byte(root: Path, tmp_path: Path) -> None:
    work = made(root, steps=2, lr_matrix=0.02)
    work.start()
    before = work.digest().digest
    seen: list[int] = []
    first = work.evaluate("valid", 40, lambda share: seen.append(share.done))
    assert [first[name] for name in ("bpb", "bpb_1", "uniform_bpb", "n")] == pytest.approx([8, 8, 8, 40], rel=1e-6)
    assert 3 < first["unigram_bpb"] < 5 and seen[0] == 2 and seen[-1] == 40
    assert work.digest().digest == before and len(work.statement()) == 2 and "unigram" not in work.statement()[0]
    go(work, 40)
    work.reading = Reading(recursions=5)
    later = work.evaluate("valid", 40)
    assert later["bpb_2"] < 7 and {"bpb_1", "bpb_4"} <= set(later) and "bpb_5" not in later
    assert later["bpb_2"] == pytest.approx(made_from(work, root, tmp_path).evaluate("valid", 40)["bpb"], rel=1e-9)


def made_from(work: LmWorkload, root: Path, folder: Path) -> LmWorkload:
    """Another workload with its exported weights."""
    checkpoint, out = folder / "checkpoint", folder / "out"
    checkpoint.mkdir()
    work.snapshot().save(checkpoint)
    export(checkpoint, out, work.config())
    other = LmWorkload(work._config, root, "cpu")
    assert other.start_from(out / "model.safetensors")
    return other


def test_bits_per_byte_of_bpe_count_bytes(root: Path) -> None:
    """An untrained model of V tokens needs log2 V bits a token, whatever a token is worth."""
    work = made(root, **KINDS["bpe"])
    work.start()
    found = work.evaluate("test", None)
    extent = work.text.extents["test"]
    tokens = len(work.text.parts["test"].tokens) - extent.documents
    assert found["bpb"] == pytest.approx(math.log2(300) * tokens / extent.bytes, rel=0.01)
    assert found["bpb"] == pytest.approx(found["uniform_bpb"], rel=1e-6)


def test_hops_are_judged_by_their_number(root: Path) -> None:
    work = made(root, text="hops", context=64)
    work.start()
    found = work.evaluate("valid", 30)
    assert {f"right_{p}" for p in (1, 2, 3, 4)} <= set(found) and found["bpb"] == pytest.approx(8)
    rows = work.text.parts["valid"]
    batch = rows.rows(0, 30)
    answer = int(batch.targets[batch.targets > 0].mode().values)
    work.state.params.views["embed"].zero_()
    work.state.params.views["embed"][ord("="), 0] = 1.0
    work.state.params.views["head"][answer, 0] = 1.0
    right = work.evaluate("valid", 30)
    row, place = (batch.targets > 0).nonzero(as_tuple=True)
    for p in (1, 2, 3, 4):
        of_p = batch.inputs[row, place - 1] == ord(str(p))
        share = float((batch.targets[row, place][of_p] == answer).float().mean())
        assert right[f"right_{p}"] == pytest.approx(share)


def test_values_that_letter_counts_beat_are_named() -> None:
    (mark,) = marks({"bpb": 3.0, "bpb_1": 5.0, "unigram_bpb": 4.0})
    assert "bpb_1" in mark and "4.0000" in mark and not marks({"bpb": 3.0, "unigram_bpb": 4.0})


def test_a_text_that_is_read_often_is_named(root: Path) -> None:
    work = made(root)
    work.start()
    work.state.step = 5 * work.text.train.windows // 4
    assert "5.0 times" in work.statement()[0]


@pytest.mark.parametrize("kind", ["plain", "bpe"])
def test_examples_are_the_same_everywhere(root: Path, kind: str) -> None:
    work = made(root, **KINDS[kind])
    work.start()
    go(work, 3)
    (one,), (two,) = (work.examples("test", [2]) for _ in range(2))
    assert one == two and one.row == 2 and one.greedy and one.drawn != one.greedy
    assert len(one.steps) == work._config.refine.steps
    assert all([guess.chance for guess in step] == sorted((g.chance for g in step), reverse=True) for step in one.steps)
    with raising(ValueError, "1,000,000,000"):
        work.examples("test", [10**9])


def test_weights_of_another_tokenizer_are_refused(root: Path, tmp_path: Path) -> None:
    work = made(root, **KINDS["bpe"])
    work.start()
    other = made_from(work, root, tmp_path)
    assert torch.equal(other.state.params.buffer, work.state.params.buffer) and other.step == 0
    (tmp_path / "out" / TOKENIZER_FILE).write_bytes(b"{}")
    with raising(ValueError, "data.tokenizer"):
        other.start_from(tmp_path / "out" / "model.safetensors")
    (tmp_path / "out" / TOKENIZER_FILE).unlink()
    with pytest.raises(ValueError, match=r"head|embed"):
        made(root).start_from(tmp_path / "out" / "model.safetensors")


@pytest.mark.parametrize(("steps", "loops", "gradient"), [(1, 0, "step"), (3, 1, "step"), (3, 1, "through")])
def test_what_a_row_is_said_to_need_is_what_torch_keeps(steps: int, loops: int, gradient: str) -> None:
    """Counted by hooks on everything autograd saves, each storage once."""
    kept, config = [], small()
    for rows in (8, 24):
        config = small(steps=steps, loops=loops, gradient=gradient, batch_size=rows, context=32, width=64, heads=2)
        kept.append(saved(config))
    a_row, own = (kept[1] - kept[0]) / 16, 20 * 64 * 4 * 32  # the backward pass's own, which no hook sees
    assert 0.9 * a_row <= need(config, kind="cpu").per_row - own < 1.1 * a_row


def saved(config: LmConfig) -> int:
    storages: dict[int, int] = {}
    held, state = [], TrainState(config, VOCABULARY)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # or its address would be used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        RefiningStep()(state, batch_at(0, config))
    return sum(storages.values())


def test_arithmetic_and_sizes_of_the_tasks() -> None:
    """reference/lm.md, section G."""
    plain = {name: PRESETS[name].model_copy(update={"refine": small().refine}) for name in PRESETS}
    assert [round(token_flops(plain[name]) / 1e6) for name in ("lm_small", "lm", "lm_fast")] == [22, 87, 774]
    assert token_flops(PRESETS["lm_tiny"]) == pytest.approx(2.9e6, rel=0.02)
    assert token_flops(PRESETS["lm_extreme"]) == pytest.approx(8078e6, rel=1e-3)
    assert step_flops(PRESETS["lm_fast"]) == pytest.approx(4.235e15, rel=1e-3)
    counts = {name: round(parameter_count(config) / 1e6, 1) for name, config in PRESETS.items()}
    assert counts == {"lm_tiny": 0.1, "lm_small": 3.3, "lm": 13.8, "lm_fast": 135.3, "lm_extreme": 135.3}
    assert PRESETS["lm_fast"].tokens == PRESETS["lm_extreme"].tokens == 524_288
    assert [target_steps(name) for name in ("lm_tiny", "lm_fast", "lm_extreme")] == [400, 1000, 5000]
    with raising(TaskError, "task=lm_fast", "lm_extreme"):
        preset("lm_fsat")


def test_memory_splits_the_batch_or_refuses_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(size_mb=1, context=64, batch_size=32, width=64, heads=2)
    needed = need(config, kind="cpu")
    monkeypatch.setenv(CAP, str(1.06 * max(needed.session(8), needed.session(1)) / 1e9))
    work = LmWorkload(config, root, "cpu")
    assert "/" in work.path or needed.session(32) == needed.session(8)
    monkeypatch.setenv(CAP, str(0.5 * needed.session(1) / 1e9))
    with raising(TaskError, "arch.context"):
        LmWorkload(config, root, "cpu").check_memory()


def test_old_cards_compute_in_float32_and_new_ones_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = {"Tesla T4": (7, 5), "NVIDIA A100-SXM4-40GB": (8, 0)}
    for name, capability in cards.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None, name=name: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, c=capability: c)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (int(15e9), int(16e9)))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 0)
        monkeypatch.setattr(devices, "_SLOW", {})
        devices.has_kernels.cache_clear()
        chosen, words = (strategy(torch.device("cuda"), PRESETS[task]) for task in ("lm_small", "lm"))
        old = capability < (8, 0)
        assert any("OLD CARD" in remark and name in remark for remark in chosen.remarks) is old
        assert [one.step.name for one in (chosen, words)] == (["eager"] * 2 if old else ["compiled", "compiled-head"])
        with monkeypatch.context() as declined:
            declined.setenv("DISABLE_COMPILE", "1")
            assert strategy(torch.device("cuda"), PRESETS["lm"]).step.name == "eager"
        wide = training.activations(PRESETS["lm_small"], torch.device("cuda"))
        assert wide == (torch.float32 if old else torch.bfloat16)
    devices.has_kernels.cache_clear()


def test_unusable_text_ends_before_anything_is_built(tmp_path: Path) -> None:
    with raising(DataError, tmp_path / "no.txt"):
        LmWorkload(small(train=str(tmp_path / "no.txt")), tmp_path, "cpu")


def test_evaluation_of_parts_equals_one_chunk(root: Path) -> None:
    work = made(root, steps=2)
    state = moved(small(steps=2, size_mb=1))
    work.start()
    work.state.params.buffer[: 8 * 256] += state.params.buffer[: 8 * 256]
    rows, counts = work.text.parts["valid"], work.text.train.counts(256)
    found = [evaluate(work.state, rows, work.text.tokenizer, counts, 30, 2, at_once) for at_once in (8, 64, 10_000)]
    for other in found[1:]:
        assert {name: pytest.approx(value, rel=1e-5) for name, value in other.items()} == found[0]


def test_names_of_splits() -> None:
    assert SPLITS.names == ("test", "valid") and MEASURES.headline.better == "lower"
