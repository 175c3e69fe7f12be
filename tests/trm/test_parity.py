"""The five fixtures of the reference, and the command that judges such fixtures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from trm import parity
from trm.act import TRM
from trm.parity import computed_values, train_config

FOLDER = Path(__file__).parent.parent / "data" / "trm_parity"
CASES = {case.name: case for case in parity.load_cases(FOLDER)}
AMPLIFIES = {"sudoku_mlp", "learned_nopuz"}
"""Cases whose float32 is as far from float64 as the tolerance: only the fixture's instruction set meets it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_quantity_agrees_with_the_reference(name: str) -> None:
    case = replace(CASES[name])
    parity.run_case(case)
    assert case.verdict in ({"agrees", "rounding"} if name in AMPLIFIES else {"agrees"}), parity.table([case])
    first = {key: error for key, error in case.errors.items() if key[1] == "step 0"}
    assert max(error for key, error in first.items() if key[0] in {"logits", "loss"}) < 5e-5
    assert max(error for key, error in first.items() if key[0] == "gradient norms") < 1e-4
    assert max(error for key, error in first.items() if key[0] == "integers") == 0


def own_fixture(folder: Path, batch_at) -> dict[str, torch.Tensor]:
    """A fixture of two steps that our own computation agrees with, because it made it; its tensors."""
    arch = {"hidden_size": 16, "num_heads": 2, "L_layers": 1, "H_cycles": 1, "L_cycles": 1, "puzzle_emb_ndim": 16}
    arch |= {"puzzle_emb_len": 1, "forward_dtype": "float32", "halt_max_steps": 2, "halt_exploration_prob": 0.0}
    arch |= {"seq_len": 7, "vocab_size": 5, "num_puzzle_identifiers": 3, "batch_size": 6}
    optimizer = {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": 0.1, "puzzle_emb_lr": 1e-2}
    optimizer |= {"puzzle_emb_weight_decay": 0.1, "ema_rate": 0.9}
    first, second, final = ({"loss": 0.0, "metrics": {}, "grad_norms": {}} for _ in range(3))
    about = {"config": arch, "optimizer": optimizer, "steps": [first, second], "eval": final}
    config, sizes = train_config(about, "float32")
    weights = TRM(config.arch, sizes, seed=1).state_dict()
    tensors = {f"{part}/{name}": value.clone() for name, value in weights.items() for part in ("init", "final")}
    for prefix, step in (("batch0", 0), ("batch1", 1), ("eval", 2)):
        tensors |= {f"{prefix}/{name}": value for name, value in vars(batch_at(step)).items()}
    values = computed_values(parity.Case("own", about, tensors), "float32")
    places = {"step 0": ("step0", first), "step 1": ("step1", second), "evaluation": ("eval", final)}
    for (quantity, where, name), value in values.items():
        if where == "final":
            tensors[f"{'ema' if quantity == 'ema' else 'final'}/{name}"] = value
        elif quantity in ("logits", "integers"):
            tensors[f"{places[where][0]}/{name}"] = value
        elif quantity == "loss":
            places[where][1]["loss"] = value.item()
        else:
            places[where][1][{"metrics": "metrics", "gradient norms": "grad_norms"}[quantity]][name] = value.item()
    # The final weights change what the evaluation computes: compute it again with them.
    for (quantity, where, name), value in computed_values(parity.Case("own", about, tensors), "float32").items():
        if where == "evaluation" and quantity in ("logits", "integers"):
            tensors[f"eval/{name}"] = value
        elif where == "evaluation":
            about["eval"] |= {"loss": value.item()} if quantity == "loss" else {}
            about["eval"]["metrics"] |= {name: value.item()} if quantity == "metrics" else {}
    (folder / "own.json").write_text(json.dumps(about))
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "own.safetensors")
    return tensors


def test_a_fixture_of_our_own_agrees_exactly(tmp_path, capsys, batch_at) -> None:
    own_fixture(tmp_path, batch_at)
    assert parity.main([str(tmp_path), "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["verdict"] == "agrees"
    assert set(case["errors"].values()) == {0.0}


@pytest.mark.parametrize(
    ("tensor", "damage"),
    [
        ("step0/logits", lambda t: t * 1.001),
        ("step1/halted", lambda t: ~t),
        ("eval/q_halt_logits", lambda t: t + 1e-2),
        ("final/inner.lm_head.weight", lambda t: t + 1e-3),
        ("ema/inner.lm_head.weight", lambda t: t[:1]),
    ],
)
def test_a_fixture_that_says_something_else_differs(tmp_path, capsys, batch_at, tensor, damage) -> None:
    tensors = own_fixture(tmp_path, batch_at)
    tensors[tensor] = damage(tensors[tensor])
    save_file({name: value.contiguous() for name, value in tensors.items()}, tmp_path / "own.safetensors")
    assert parity.main([str(tmp_path)]) == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_folder_without_fixtures_is_its_own_exit_code(tmp_path, capsys) -> None:
    assert parity.main([str(tmp_path)]) == 2
    assert "No fixtures" in capsys.readouterr().err


def test_relative_error() -> None:
    assert parity.relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])) == 0
    assert parity.relative_error(torch.tensor([0.0, 5.0]), torch.tensor([0.0, 4.0])) == 0.25
    assert parity.relative_error(torch.tensor([float("nan")]), torch.tensor([1.0])) == float("inf")
    assert parity.relative_error(torch.tensor([True, False]), torch.tensor([True, True])) == 0.5
