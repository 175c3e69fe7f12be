"""Weights under the reference's names, out and in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from relay.torch.faults import DataError
from tests.facts import raising
from trm.checkpoint import Document, TrmSnapshot
from trm.competition.weights import of_file
from trm.config import Arch
from trm.interop import WrongShape, begin_from, check_identity, description, export_folder, import_weights, plain_name
from trm.train import TrainState


def exported(state: TrainState, folder: Path, ema: bool) -> Path:
    """The file that `export` writes of a checkpoint of that state."""
    checkpoint = folder / f"checkpoint-{ema}"
    checkpoint.mkdir()
    document = Document(step=0, seed=0, config={}, code="0", fingerprint={})
    TrmSnapshot(state, document, torch.zeros((), dtype=torch.float64)).save(checkpoint)
    return export_folder(checkpoint, folder / f"out-{ema}", {}, ema=ema)[0]


def test_export_and_import_are_inverse(make, tmp_path) -> None:
    state = make(5)
    raw, ema = (exported(state, tmp_path, ema) for ema in (False, True))
    fresh = make(0, seed=9)
    import_weights(fresh, raw)
    assert torch.equal(fresh.params.buffer, state.params.buffer)
    assert torch.equal(fresh.ema.buffer, state.params.buffer)
    assert torch.equal(fresh.model.inner.puzzle_emb.weights, state.model.inner.puzzle_emb.weights)
    import_weights(fresh, ema)
    assert torch.equal(fresh.params.buffer, state.ema.buffer)
    assert all(name.startswith("model.inner.") for name in load_file(ema))


def test_wrapper_prefixes_are_stripped() -> None:
    names = {plain_name(f"{prefix}inner.lm_head.weight") for prefix in ("", "model.", "_orig_mod.model.")}
    assert names == {"inner.lm_head.weight"}


def test_what_does_not_fit_is_named(make, tmp_path) -> None:
    state = make(0)
    path = tmp_path / "w.safetensors"
    weights = {name: value.clone() for name, value in state.model.state_dict().items()}
    save_file(weights | {"inner.more": torch.zeros(1)}, path)
    with raising(ValueError, "inner.more"):
        import_weights(state, path)
    save_file(weights | {"inner.lm_head.weight": torch.zeros(2, 16)}, path)
    with raising(WrongShape, "inner.lm_head.weight", (2, 16)):
        import_weights(state, path)
    path.write_bytes(b"not safetensors at all")
    with raising(ValueError, path.name):
        import_weights(state, path)


def test_an_exported_checkpoint_may_be_read_by_whom_the_umask_allows(make, tmp_path) -> None:
    state = make(0)
    (tmp_path / "checkpoint").mkdir()
    document = Document(step=0, seed=0, config={}, code="0", fingerprint={})
    TrmSnapshot(state, document, torch.zeros((), dtype=torch.float64)).save(tmp_path / "checkpoint")
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            written = export_folder(tmp_path / "checkpoint", tmp_path / f"{mask:o}", {})
        finally:
            os.umask(before)
        assert {path.stat().st_mode & 0o777 for path in written} == {mode}


@pytest.mark.parametrize("value", ["[" * 100_000, "{", "1" * 5000, "[1]", "null", '"x"'], ids=lambda text: text[:5])
@pytest.mark.parametrize("name", ["arch", "canvas", "mean"])
def test_a_description_of_another_form_is_refused(tmp_path: Path, name: str, value: str) -> None:
    """In a file of ours, and next to a file of the reference's."""
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors", {name: value})
    torch.save({}, tmp_path / "step_1")
    (tmp_path / "step_1.json").write_text(json.dumps({name: value}))
    for file in ("model.safetensors", "step_1"):
        with raising(ValueError, file):
            description(tmp_path / file)


@pytest.mark.parametrize("use", [begin_from, check_identity, of_file], ids=lambda use: use.__name__)
def test_a_path_that_the_system_refuses_is_named(tmp_path: Path, use: Callable[..., object]) -> None:
    """Before anything of a model is touched."""
    path = tmp_path / ("x" * 300)
    given: dict[object, tuple[Any, ...]] = {
        begin_from: (None, path),
        check_identity: (path, "", Arch()),
        of_file: (path, {}, None, None),
    }
    with raising(DataError, path):
        use(*given[use])
