"""Pins what one session writes and the next one compares, as literal values in tests/data/frozen/compared.json.

A renamed field, class or setting changes these values. Then every run in progress loses something: its next link
becomes `unknown`, its checkpoints no longer load, its configuration no longer matches the pinned one, or a person
counts as another one. So never correct the file to make a test pass: keep the stored spelling and map the new name
to it. New values may be added.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from relay.core.gpus import gpu_name
from relay.core.runs.opening import config_hash
from relay.people.accounts import claim_of
from relay.people.owners import folded
from relay.torch import caches, rng, snapshot, statefile
from relay.torch import device as devices
from relay.torch import fingerprint as environment
from relay.torch.digest import digest
from tests.trm.small import small
from trm import act, layers, losses
from trm.data import generate9, maze
from trm.data.augment import dihedral, sudoku
from trm.data.dataset import Dataset
from trm.kernels import components as kernels
from trm.kernels import plain
from trm.kernels.fast_step import FastStep
from trm.kernels.tried import tried
from trm.model import Sizes
from trm.presets import PRESETS, preset, target_steps
from trm.together import LeadingStep
from trm.train import EagerStep, TrainState
from trm.workload import TrmWorkload

STORED = json.loads((Path(__file__).parent.parent / "data" / "frozen" / "compared.json").read_text())
PEERS: Any = SimpleNamespace(size=2)
"""Two processes that share a batch: all that a path asks of them."""


def specialized(monkeypatch: pytest.MonkeyPatch) -> kernels.Components:
    """The components on a Hopper GPU with the Triton that the specialized kernels ran on."""
    import triton
    import triton.experimental.gluon.language  # loaded while the interpreter is on, as the kernels' language was

    kernels.fused_components()  # imports the ordinary kernels first, as the kernels' own tests do
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    return kernels.fused_components()


@pytest.fixture
def path_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The path that a workload gives to its digests, as on a device that may not be here."""

    def path(step: Any, kind: str, dtype: str = "bfloat16", slow: bool = False, batch: int = 768) -> str:
        arch = small().arch.model_copy(update={"forward_dtype": dtype})
        data = small().data.model_copy(update={"train_rows": 10})
        workload = TrmWorkload(small(batch_size=batch, arch=arch, data=data), tmp_path, "cpu", step=step)
        monkeypatch.setitem(devices._SLOW, kind, slow)
        workload.device = torch.device(kind)
        return workload.path

    return path


def test_paths_on_a_cpu(path_of: Callable[..., str]) -> None:
    assert {
        "float32": path_of(EagerStep(), "cpu", "float32", batch=8),
        "float64": path_of(EagerStep(), "cpu", "float64"),
        "bfloat16": path_of(EagerStep(), "cpu"),
        "bfloat16, slow": path_of(EagerStep(), "cpu", slow=True),
        "4 parts": path_of(EagerStep(parts=4), "cpu", "float32"),
        "2 processes": path_of(LeadingStep(EagerStep(peers=PEERS), PEERS), "cpu", "float32"),
        "2 processes, 4 parts": path_of(LeadingStep(EagerStep(parts=4, peers=PEERS), PEERS), "cpu", "float32"),
    } == STORED["paths on a cpu"]


def test_paths_on_a_gpu(path_of: Callable[..., str]) -> None:
    fused = kernels.fused_components()
    assert {
        "eager": path_of(EagerStep(), "cuda"),
        "eager, slow": path_of(EagerStep(), "cuda", slow=True),
        "eager, float32": path_of(EagerStep(), "cuda", "float32"),
        "fused": path_of(FastStep(fused), "cuda"),
        "fused, no graph": path_of(FastStep(fused, graph=False), "cuda"),
        "fused, 4 parts": path_of(FastStep(fused, parts=4), "cuda"),
        "fused, 2 processes": path_of(LeadingStep(FastStep(fused, peers=PEERS), PEERS), "cuda"),
        "fused, 2 processes, 4 parts": path_of(LeadingStep(FastStep(fused, parts=4, peers=PEERS), PEERS), "cuda"),
        "all plain": path_of(FastStep(kernels.plain_components()), "cuda"),
        **{
            f"{part} plain": path_of(FastStep(replace(fused, **{part: plain})), "cuda")
            for part in ("mixer", "attention", "channel", "norm", "loss", "optimizer", "embedding")
        },
    } == STORED["paths on a gpu"]


def test_paths_on_hopper(path_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = specialized(monkeypatch)
    assert {
        "fused": path_of(FastStep(found), "cuda"),
        "no graph": path_of(FastStep(found, graph=False), "cuda"),
        "2 processes, 4 parts": path_of(LeadingStep(FastStep(found, parts=4, peers=PEERS), PEERS), "cuda"),
        "attention as elsewhere": path_of(FastStep(replace(found, attention=plain)), "cuda"),
    } == STORED["paths on hopper"]


ARCHS = {
    "mixer": small(),
    "attention, learned positions": small(
        arch=small().arch.model_copy(update={"mlp_t": False, "pos_encodings": "learned", "L_layers": 2})
    ),
    "attention, rotary, no puzzles": small(
        arch=small().arch.model_copy(
            update={"mlp_t": False, "pos_encodings": "rope", "puzzle_emb_ndim": 0, "puzzle_emb_len": 0}
        ),
        ema=False,
    ),
}


@pytest.mark.parametrize("name", ARCHS)
def test_tensors_of_a_state(name: str) -> None:
    state = TrainState(ARCHS[name], Sizes(16, 6, 1))
    found = {tensor: f"{value.dtype} {list(value.shape)}" for tensor, value in state.canonical().items()}
    assert found == STORED["tensors"][name]


def test_files_of_a_checkpoint(tmp_path: Path) -> None:
    """Their names, what the JSON document holds, and the name of every tensor's file."""
    from safetensors import safe_open

    wide = small().arch.model_copy(update={"puzzle_emb_ndim": 512, "puzzle_emb_len": 0})  # longer than the journal
    found: dict[str, Any] = {}
    for kind, shared_from in (("plain", None), ("shared table", 1)):
        workload = TrmWorkload(small(arch=wide, batch_size=1), tmp_path, "cpu", shared_from=shared_from)
        workload.start()
        for step in (0, 1) if shared_from else (0,):
            workload.advance(step, lambda: False, None)
            (folder := tmp_path / kind / str(step)).mkdir(parents=True)
            saved = workload.snapshot().save(folder)
            workload.lend(frozenset(saved.lends), last=True)
            document = json.loads((folder / statefile.STATE).read_text())
            tensors = {}
            for file in sorted(folder.glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    tensors[file.name] = sorted(opened.keys())
            found[f"{kind}, step {step}"] = {
                "files": list(saved.files), "lends": list(saved.lends), "borrows": list(saved.borrows),
                "document": list(document), "table": document.get("table", {}) and list(document["table"]),
                "tensors": tensors,
            }  # fmt: skip
    assert found == STORED["files"]


def test_configuration(tmp_path: Path) -> None:
    """Settings with their defaults: all of them are in the hash that a run pins."""
    assert {name: preset(name).plain() for name in PRESETS} == STORED["presets"]
    assert {name: target_steps(name) for name in PRESETS} == STORED["target steps"]
    pinned = TrmWorkload(small(), tmp_path, "cpu").config()
    assert pinned == STORED["pinned"]["config"]
    assert config_hash(pinned) == STORED["pinned"]["hash"]


def test_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(environment, "_driver", lambda: "550.54.15")
    for name in (*environment.ALWAYS, *environment.MKL, *environment.OPENBLAS, *environment.ON_GPU):
        monkeypatch.delenv(name, raising=False)  # one that is set is named after these
    gpu = environment.fingerprint(torch.device("cuda"))
    assert list(environment.fingerprint(torch.device("cpu"))) == STORED["fingerprint"]["cpu"]
    assert list(gpu) == STORED["fingerprint"]["gpu"]
    assert {name: gpu[name] for name in STORED["fingerprint"]["card"]} == STORED["fingerprint"]["card"]
    assert list(caches.KEYED) == STORED["fingerprint"]["key of compiled kernels"]


def test_names_of_gpus() -> None:
    assert {name: gpu_name({"device": "cuda", "gpu": name}) for name in STORED["gpus"]} == STORED["gpus"]
    assert gpu_name({"device": "cpu"}) == "cpu"


def test_names_of_people() -> None:
    """The digest of a person is all that the registry keeps: another folding makes two people of one."""
    assert {name: folded(name) for name in STORED["people"]["folded"]} == STORED["people"]["folded"]
    store = STORED["people"]["store"]
    for provider, claims in STORED["people"]["claims"].items():
        assert {name: claim_of(store, provider, name) for name in claims} == claims


def test_metrics_of_a_step() -> None:
    assert list(losses.METRICS) == STORED["metrics"]


def test_random_streams() -> None:
    """The first values for given (seed, step)."""
    places = ((0, 0), (3, 5), (2**31 - 1, 10**6))
    found = {
        stream.name: [rng.bits(seed, step, stream, (2,)).tolist() for seed, step in places] for stream in rng.Stream
    }
    assert found == STORED["random"]["bits"]
    stream = rng.Stream.BUILD
    assert {
        "uniform": rng.uniform(3, 5, stream, (3,)).tolist(),
        "integers": rng.integers(3, 5, stream, (8,), -2, 9).tolist(),
        "below": rng.below(3, 5, stream, torch.tensor([1, 7, 100, 2**31])).tolist(),
        "permutations": rng.permutations(3, 5, stream, 2, 9).tolist(),
        "exploration": act.exploration(preset("sudoku4").arch, 3, 5, 8, "cpu").tolist(),
        "truncated normal": layers.truncated_normal((4,), 0.5, 3, 5).tolist(),
        "sudoku": [x.tolist() for x in sudoku(torch.arange(16)[None] % 6, torch.arange(16)[None] % 4 + 2, 3, 5)],
        "dihedral": [x.tolist() for x in dihedral(torch.arange(9)[None], torch.arange(9)[None] % 4, 3, 5)],
    } == STORED["random"]["drawn"]


@pytest.mark.slow
def test_data(tmp_path: Path) -> None:
    """What is generated from a seed, and the order in which it is seen. The 9x9 solver is compiled for it."""
    data = TrmWorkload(small(), tmp_path, "cpu").data
    assert data.valid is not None
    sudoku_inputs, sudoku_labels, *_ = generate9.generate(0, 2)
    mazes = maze.generate(0, 1)
    found = {
        "sudoku": Dataset(sudoku_inputs, sudoku_labels, 11).content_hash,
        "maze": Dataset(*mazes[:2], 6).content_hash,
        "train": data.train.content_hash, "valid": data.valid.content_hash, "test": data.test.content_hash,
        "batch": [data.train.batch_at(0, step, 2).inputs.tolist() for step in (0, 49, 50)],
    }  # fmt: skip
    assert found == STORED["data"]


def test_digests() -> None:
    """Of tensors made here, and of a state at step 0, which every machine computes alike."""
    tensors = {
        "raw/a": torch.arange(7, dtype=torch.float32) / 4,
        "raw/b": torch.arange(6, dtype=torch.int32).view(2, 3),
        "carry/halted": torch.tensor([True, False, True]),
    }
    assert digest(tensors, {"step": 5, "seed": 3}) == STORED["digests"]["tensors"]
    state = TrainState(small(), Sizes(16, 6, 1))
    assert snapshot.state_hash(state.canonical(), 0, 0) == STORED["digests"]["step 0"]


def test_where_the_specialized_kernels_are_chosen() -> None:
    """The compute capability and the Triton release: elsewhere the path is another one. More releases may be added."""
    capability, release = STORED["specialized for"]
    assert tried(tuple(capability), ".".join(release)) is not None
