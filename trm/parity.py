"""`python -m trm.parity FOLDER`: run fixtures of the reference implementation and report how far we are from them.

A fixture is NAME.json and NAME.safetensors, described in tests/data/trm_parity/README.md. Knows nothing of runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from trm.act import TRM, Output
from trm.config import Arch, TrainConfig
from trm.data.dataset import Batch
from trm.losses import METRICS, loss_and_metrics
from trm.model import Sizes
from trm.train import EagerStep, TrainState

TOLERANCE = {
    "logits": 1e-5,
    "weights": 1e-5,
    "ema": 1e-5,
    "loss": 1e-5,
    "metrics": 1e-5,
    "gradient norms": 1e-4,
    "integers": 0.0,
}
"""Largest relative error allowed of each quantity; integers and booleans must be equal."""


@dataclass
class Case:
    """One fixture and the worst error seen of each quantity."""

    name: str
    about: dict[str, Any]
    tensors: dict[str, Tensor]
    errors: dict[str, float]

    def compare(self, quantity: str, ours: Tensor | float, theirs: Tensor | float) -> None:
        """Record ||a - b|| / ||b|| (float64), or for integers the share of unequal elements."""
        a, b = (x if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float64) for x in (ours, theirs))
        if a.shape != b.shape:
            error = float("inf")
        elif quantity == "integers":
            error = (a != b).double().mean().item()
        else:
            a, b = a.double(), b.double()
            error = ((a - b).norm() / b.norm()).item() if b.any() else a.norm().item()
        self.errors[quantity] = max(self.errors.get(quantity, 0.0), error if error == error else float("inf"))

    @property
    def ok(self) -> bool:
        """Whether every quantity is within its tolerance."""
        return all(error <= TOLERANCE[quantity] for quantity, error in self.errors.items())

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names start with prefix, without it."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def load_cases(folder: Path) -> Iterator[Case]:
    """Every NAME.json that has a NAME.safetensors beside it, by name."""
    for path in sorted(folder.glob("*.json")):
        weights = path.with_suffix(".safetensors")
        if weights.exists():
            yield Case(path.stem, json.loads(path.read_text()), load_file(weights), {})


def train_config(about: dict[str, Any]) -> tuple[TrainConfig, Sizes]:
    """Our configuration for a fixture's. Raises ValueError if it asks for what the reference itself cannot do."""
    theirs, optimizer = about["config"], about["optimizer"]
    if theirs.get("causal") or not theirs.get("no_ACT_continue", True):
        raise ValueError("causal attention and the continue target are not part of the model")
    arch = Arch(**{key: theirs[key] for key in Arch.model_fields if key in theirs})
    config = TrainConfig(
        task="parity",
        batch_size=theirs["batch_size"],
        arch=arch,
        lr=optimizer["lr"],
        lr_warmup_steps=0,
        beta1=optimizer["betas"][0],
        beta2=optimizer["betas"][1],
        weight_decay=optimizer["weight_decay"],
        puzzle_emb_lr=optimizer["puzzle_emb_lr"],
        puzzle_emb_weight_decay=optimizer["puzzle_emb_weight_decay"],
        ema_rate=optimizer["ema_rate"],
    )
    return config, Sizes(theirs["seq_len"], theirs["vocab_size"], theirs["num_puzzle_identifiers"])


class _Recorder(TRM):
    """A TRM that remembers the output of its last forward."""

    last: Output

    def forward(self, *args: Any) -> Any:
        carry, self.last = super().forward(*args)
        return carry, self.last


def run_case(case: Case) -> None:
    """Five training steps, the final weights, and an evaluation."""
    config, sizes = train_config(case.about)
    state = TrainState(config, sizes)
    state.model.load_state_dict(case.group("init/"))
    state.reset_ema()
    state.model.__class__ = _Recorder
    for k, expected in enumerate(case.about["steps"]):
        _compare_step(case, state, k, expected)
    weights = state.model.state_dict()
    for name, value in case.group("final/").items():
        case.compare("weights", weights[name], value)
    assert state.ema is not None
    for name, value in case.group("ema/").items():
        case.compare("ema", state.ema.views[name], value)
    _compare_evaluation(case, state.model)


def _compare_step(case: Case, state: TrainState, k: int, expected: dict[str, Any]) -> None:
    metrics = EagerStep()(state, Batch(**case.group(f"batch{k}/")))
    _compare_metrics(case, metrics, expected)
    for name, norm in expected["grad_norms"].items():
        case.compare("gradient norms", state.grads.views[name].norm(), norm)
    assert isinstance(state.model, _Recorder)
    _compare_output(case, state.model.last, case.group(f"step{k}/"))


def _compare_metrics(case: Case, metrics: Tensor, expected: dict[str, Any]) -> None:
    ours = dict(zip(METRICS, metrics.tolist(), strict=True))
    case.compare("loss", ours["lm_loss"] + 0.5 * ours["q_halt_loss"], expected["loss"])
    for name, value in expected["metrics"].items():
        case.compare("metrics", ours[name], value)


def _compare_output(case: Case, output: Output, expected: dict[str, Tensor]) -> None:
    case.compare("logits", output.logits, expected["logits"])
    case.compare("logits", output.q[:, 0], expected["q_halt_logits"])
    for name in expected.keys() & {"halted", "steps"}:
        case.compare("integers", getattr(output, name), expected[name])


@torch.no_grad()
def _compare_evaluation(case: Case, model: TRM) -> None:
    expected = case.group("eval/")
    batch = Batch(expected["inputs"], expected["labels"], expected["puzzle_identifiers"])
    carry = model.refill(model.initial_carry(len(batch.inputs)), batch)
    rows = model.inner.puzzle_rows(carry.puzzle_identifiers)
    for _ in range(model.arch.halt_max_steps):
        carry, output = model(carry, rows, None)
    _compare_metrics(case, loss_and_metrics(output)[1], case.about["eval"])
    _compare_output(case, output, expected)
    case.compare("integers", output.logits.argmax(-1), expected["preds"])


def table(cases: list[Case]) -> str:
    """The largest relative error of each quantity (rows: cases), and what is allowed."""
    lines = ["".join((f"{'case':<16}", *(f"{quantity:>16}" for quantity in TOLERANCE), "  verdict"))]
    lines += [
        "".join((f"{case.name:<16}", *(f"{case.errors.get(q, 0.0):>16.1e}" for q in TOLERANCE)))
        + ("  agrees" if case.ok else "  DIFFERS")
        for case in cases
    ]
    lines.append("".join((f"{'allowed':<16}", *(f"{allowed:>16.0e}" for allowed in TOLERANCE.values()))))
    return "\n".join(lines)


def report(cases: list[Case]) -> dict[str, Any]:
    """The same as plain JSON values."""
    results = [{"name": case.name, "ok": case.ok, "errors": case.errors} for case in cases]
    return {"schema": "trm.parity/1", "ok": all(case.ok for case in cases), "tolerance": TOLERANCE, "cases": results}


def main(arguments: list[str] | None = None) -> int:
    """0 if all agree, 1 if one differs, 2 if the folder holds no fixtures."""
    parser = argparse.ArgumentParser(prog="python -m trm.parity", description="Compare with the reference's fixtures.")
    parser.add_argument("folder", type=Path, help="folder of NAME.json and NAME.safetensors")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    options = parser.parse_args(arguments)
    cases = list(load_cases(options.folder))
    if not cases:
        print(f"No fixtures (NAME.json with NAME.safetensors) in {options.folder}.", file=sys.stderr)
        return 2
    for case in cases:
        run_case(case)
    verdict = report(cases)
    print(json.dumps(verdict) if options.json else table(cases))
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
