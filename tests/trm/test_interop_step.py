"""The reference's own files: documented names and shapes, there and back bit for bit; whatever is odd is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.facts import raising
from trm.checkpoint import Document, TrmSnapshot
from trm.interop import begin_from, check_torch, export_folder, export_step, is_step, load_step, plain_name, write_step
from trm.model import Sizes
from trm.presets import preset
from trm.train import TrainState

Make = Callable[..., TrainState]


@pytest.fixture(autouse=True)
def own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests read what they wrote, also with a torch that must not read what strangers wrote."""
    monkeypatch.setattr("trm.interop.check_torch", lambda version: None)


def documented(mlp: bool) -> dict[str, tuple[int, ...]]:
    """reference/trm.md 2: every name and shape of a published Sudoku model."""
    mixer = {"mlp_t.gate_up_proj": (1024, 97), "mlp_t.down_proj": (97, 512)}
    attention = {"self_attn.qkv_proj": (1536, 512), "self_attn.o_proj": (512, 512)}
    block = (mixer if mlp else attention) | {"mlp.gate_up_proj": (3072, 512), "mlp.down_proj": (512, 1536)}
    layers = {f"L_level.layers.{i}.{name}.weight": shape for i in (0, 1) for name, shape in block.items()}
    outer = {
        "H_init": (512,),
        "L_init": (512,),
        "embed_tokens.embedding_weight": (11, 512),
        "lm_head.weight": (11, 512),
        "q_head.weight": (2, 512),
        "q_head.bias": (2,),
        "puzzle_emb.weights": (1, 512),
    }
    return outer | layers


def saved(make: Make, folder: Path) -> tuple[TrainState, Path]:
    """A state after five steps and its checkpoint."""
    state = make(5)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    document = Document(step=5, seed=0, config={}, code="0", fingerprint={})
    TrmSnapshot(state, document, torch.zeros((), dtype=torch.float64)).save(checkpoint)
    return state, checkpoint


@pytest.mark.parametrize("task", ["sudoku", "sudoku_att"])
def test_an_exported_file_holds_the_documented_names_shapes_and_types(task: str, tmp_path: Path) -> None:
    config = preset(task).model_copy(update={"batch_size": 1})
    state = TrainState(config, Sizes(seq_len=81, vocab_size=11, num_identifiers=1))
    for compiled, prefix in ((True, "_orig_mod.model.inner."), (False, "model.inner.")):
        write_step(tmp_path / "step_1", state.model.state_dict(), compiled)
        found = torch.load(tmp_path / "step_1", weights_only=True)
        assert type(found) is dict
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        assert shapes == {prefix + name: shape for name, shape in documented(task == "sudoku").items()}
        halves = {name for name, value in found.items() if value.dtype != torch.float32}
        assert halves == {f"{prefix}H_init", f"{prefix}L_init"}
        assert {found[name].dtype for name in halves} == {torch.bfloat16}


@pytest.mark.parametrize("ema", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_out_and_in_again_gives_the_same_bits(make: Make, tmp_path: Path, ema: bool, compiled: bool) -> None:
    state, checkpoint = saved(make, tmp_path)
    written = export_step(checkpoint, tmp_path / "step_5", {}, ema, compiled)
    assert [path.name for path in written] == ["step_5", "step_5.json"]
    assert json.loads(written[1].read_text())["exact"].startswith("no")
    fresh = make(0, seed=9)
    assert begin_from(fresh, written[0]) == []
    wanted = state.ema.buffer if ema else state.params.buffer
    assert torch.equal(fresh.params.buffer, wanted) and torch.equal(fresh.ema.buffer, wanted)
    for name in ("H_init", "L_init", "puzzle_emb.weights"):
        assert torch.equal(fresh.model.inner.get_buffer(name), state.model.inner.get_buffer(name))
    assert fresh.step == 0 and not fresh.m.buffer.any() and not fresh.v.buffer.any()


def test_both_formats_hold_the_same_weights(make: Make, tmp_path: Path) -> None:
    _, checkpoint = saved(make, tmp_path)
    export_step(checkpoint, tmp_path / "step_5", {})
    export_folder(checkpoint, tmp_path / "folder", {})
    theirs = torch.load(tmp_path / "step_5", weights_only=True)
    ours = load_file(tmp_path / "folder" / "model.safetensors")
    assert {plain_name(name) for name in theirs} == {plain_name(name) for name in ours}
    assert all(torch.equal(value, ours[f"model.{plain_name(name)}"]) for name, value in theirs.items())
    fresh = make(0, seed=9)
    assert begin_from(fresh, tmp_path / "folder" / "model.safetensors") == []
    assert torch.equal(fresh.params.views["inner.lm_head.weight"], ours["model.inner.lm_head.weight"])


def test_another_number_of_puzzles_gives_each_the_mean(make: Make, tmp_path: Path) -> None:
    weights = dict(make(5).model.state_dict())
    table = torch.arange(5 * 16, dtype=torch.float32).reshape(5, 16)
    write_step(tmp_path / "step_1", weights | {"inner.puzzle_emb.weights": table})
    fresh = make(0, seed=9)
    (remark,) = begin_from(fresh, tmp_path / "step_1")
    assert "5" in remark and "3" in remark, "rows of the table"
    assert torch.equal(fresh.model.inner.puzzle_emb.weights, table.mean(0).expand(3, 16))


def changed(weights: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**weights, **{f"inner.{name.replace('__', '.')}": value for name, value in changes.items()}}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"more": torch.zeros(1)}, ["inner.more"]),
        ({"lm_head__weight": torch.zeros(2, 16)}, ["inner.lm_head.weight", (2, 16)]),
        ({"lm_head__weight": torch.zeros(5, 16, dtype=torch.float16)}, ["torch.float16", "torch.float32"]),
        ({"H_init": torch.zeros(16, dtype=torch.int64)}, ["inner.H_init", "torch.int64"]),
        ({"q_head__bias": torch.tensor([1.0, float("nan")])}, ["inner.q_head.bias"]),
        ({"puzzle_emb__weights": torch.zeros(5, 8)}, ["inner.puzzle_emb.weights", (5, 8), (3, 16)]),
        ({"puzzle_emb__weights": torch.zeros(1, 16).expand(2_000_001, 16)}, [(2_000_001, 16)]),
        ({"q_head__bias": torch.zeros(2).to_sparse()}, ["inner.q_head.bias"]),
        ({"q_head__bias": "text"}, ["inner.q_head.bias"]),
    ],
)
def test_what_does_not_fit_is_named_and_the_model_stays(
    make: Make, tmp_path: Path, changes: dict[str, Any], facts: list[object]
) -> None:
    state = make(5)
    before = {name: value.clone() for name, value in state.model.state_dict().items()}
    torch.save(changed(before, **changes), tmp_path / "step_1")
    with pytest.raises(ValueError) as refused:
        load_step(state.model, tmp_path / "step_1")
    assert all(str(fact) in str(refused.value) for fact in facts)
    assert all(torch.equal(value, before[name]) for name, value in state.model.state_dict().items())


def test_a_tensor_under_two_names_is_refused(make: Make, tmp_path: Path) -> None:
    state = make(0)
    weights = dict(state.model.state_dict())
    torch.save(weights | {"_orig_mod.model.inner.H_init": weights["inner.H_init"]}, tmp_path / "step_1")
    with raising(ValueError, "step_1"):
        load_step(state.model, tmp_path / "step_1")


class Hostile:
    """Pickled, it would write a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def test_a_hostile_file_runs_nothing(make: Make, tmp_path: Path) -> None:
    torch.save({"inner.H_init": Hostile(tmp_path / "pwned")}, tmp_path / "step_1")
    with raising(ValueError, "step_1"):
        load_step(make(0).model, tmp_path / "step_1")
    torch.save([1, 2], tmp_path / "step_2")
    with raising(ValueError, "step_2", "list"):
        load_step(make(0).model, tmp_path / "step_2")
    assert not (tmp_path / "pwned").exists()


def test_sizes_are_bounded_before_anything_is_read(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, path = make(0), tmp_path / "step_1"
    torch.save(dict(state.model.state_dict()) | {"inner.more": torch.zeros(2**20)}, path)
    with monkeypatch.context() as few, raising(ValueError, path.name, path.stat().st_size):
        few.setattr("trm.interop.MAX_ROWS", 3)
        load_step(state.model, path)
    plain = zipfile.ZipFile(path).read
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in zipfile.ZipFile(path).namelist():
            bomb.writestr(name, plain(name))
    with raising(ValueError, "bomb"):
        load_step(state.model, tmp_path / "bomb")
    (tmp_path / "old").write_bytes(b"\x80\x02" + bytes(100))
    assert is_step(tmp_path / "old")
    with raising(ValueError, "old", "torch 1.6"):
        begin_from(state, tmp_path / "old")
    with raising(ValueError, "none"):
        begin_from(state, tmp_path / "none")


def test_a_cut_file_is_refused_in_one_line(make: Make, tmp_path: Path) -> None:
    state, packed = make(0), io.BytesIO()
    torch.save(dict(state.model.state_dict()), packed)
    for part in (3, 7, 9):
        (tmp_path / "step_1").write_bytes(packed.getvalue()[: len(packed.getvalue()) * part // 10])
        with pytest.raises(ValueError, match="step_1") as refused:
            begin_from(state, tmp_path / "step_1")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("version", "safe"), [("2.6.0", False), ("2.9.1+cu126", False), ("2.10.0", True), ("3.0", True)]
)
def test_a_torch_that_reads_unsafely_is_refused_with_the_reason(version: str, safe: bool) -> None:
    if safe:
        check_torch(version)
        return
    with raising(ValueError, "CVE-2026-24747", version):
        check_torch(version)


def test_no_file_is_opened_before_torch_is_known_to_be_safe(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    monkeypatch.setattr(torch, "load", None)
    (tmp_path / "step_1").write_bytes(b"PK")
    with pytest.raises(ValueError, match="CVE-2026-24747"):
        begin_from(make(0), tmp_path / "step_1")
