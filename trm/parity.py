"""`python -m trm.parity FOLDER`: run fixtures of the reference implementation and report the difference.

A fixture is NAME.json and NAME.safetensors, described in tests/data/trm_parity/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from trm.act import TRM, Output
from trm.config import Arch, TrainConfig
from trm.data.dataset import Batch
from trm.interop import load_named
from trm.losses import METRICS, loss_and_metrics
from trm.model import Sizes
from trm.train import EagerStep, TrainState

Key = tuple[str, str, str]
"""(quantity, where, name), e.g. ("logits", "step 0", "q_halt_logits")."""
Values = dict[Key, Tensor]


@dataclass
class Fixture:
    """NAME.json and NAME.safetensors (tests/data/trm_parity/README.md)."""

    name: str
    about: dict[str, Any]
    tensors: dict[str, Tensor]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names start with prefix, without it."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


def train_config(about: dict[str, Any], dtype: str) -> tuple[TrainConfig, Sizes]:
    """Our configuration for a fixture's, with activations of `dtype`.

    Raises ValueError for a setting that the reference itself cannot run.
    """
    theirs, optimizer = about["config"], about["optimizer"]
    if theirs.get("causal") or not theirs.get("no_ACT_continue", True):
        raise ValueError("causal attention and the continue target are not part of the model")
    known = {key: theirs[key] for key in Arch.model_fields if key in theirs}
    arch = Arch(**known | {"forward_dtype": dtype})
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


class Recorder(TRM):
    """A TRM that keeps the output of its last forward."""

    last: Output

    def forward(self, *args: Any) -> Any:
        carry, self.last = super().forward(*args)
        return carry, self.last


def expected_values(fixture: Fixture) -> Values:
    """All values of the fixture, under our keys."""
    found: Values = {}
    for k, step in enumerate(fixture.about["steps"]):
        found |= _metric_values(f"step {k}", step["loss"], step["metrics"])
        norms = step["grad_norms"].items()
        found |= {("gradient norms", f"step {k}", name): _float64(norm) for name, norm in norms}
        found |= _output_values(f"step {k}", fixture.group(f"step{k}/"))
    found |= {("weights", "final", name): value for name, value in fixture.group("final/").items()}
    found |= {("ema", "final", name): value for name, value in fixture.group("ema/").items()}
    found |= _metric_values("evaluation", fixture.about["eval"]["loss"], fixture.about["eval"]["metrics"])
    return found | _output_values("evaluation", fixture.group("eval/"))


def computed_values(fixture: Fixture, dtype: str) -> Values:
    """Five training steps, and an evaluation with the fixture's final weights, in one type of activations."""
    config, sizes = train_config(fixture.about, dtype)
    state = TrainState(config, sizes)
    load_named(state.model, fixture.group("init/"))
    state.reset_ema()
    state.model.__class__ = Recorder
    assert isinstance(state.model, Recorder)
    found: Values = {}
    for k in range(len(fixture.about["steps"])):
        metrics = EagerStep()(state, Batch(**fixture.group(f"batch{k}/")))
        found |= _our_values(f"step {k}", state.model.last, metrics)
        norms = {name: grad.norm() for name, grad in state.grads.views.items()}
        found |= {("gradient norms", f"step {k}", name): norm for name, norm in norms.items()}
    found |= {("weights", "final", name): value.clone() for name, value in state.model.state_dict().items()}
    found |= {("ema", "final", name): value for name, value in state.eval_weights().items()}
    load_named(state.model, fixture.group("final/"))
    return found | _evaluate(fixture, state.model)


@torch.no_grad()
def _evaluate(fixture: Fixture, model: TRM) -> Values:
    """halt_max_steps steps in evaluation mode."""
    given = fixture.group("eval/")
    batch = Batch(given["inputs"], given["labels"], given["puzzle_identifiers"])
    carry = model.refill(model.initial_carry(len(batch.inputs)), batch)
    rows = model.inner.puzzle_rows(carry.puzzle_identifiers)
    for _ in range(model.arch.halt_max_steps):
        carry, output = model(carry, rows, None)
    return _our_values("evaluation", output, loss_and_metrics(output)[1])


def _our_values(where: str, output: Output, metrics: Tensor) -> Values:
    named = dict(zip(METRICS, metrics.tolist(), strict=True))
    tensors = {
        "logits": output.logits,
        "q_halt_logits": output.q[:, 0],
        "halted": output.halted,
        "steps": output.steps,
        "preds": output.logits.argmax(-1),
    }
    loss = named["lm_loss"] + 0.5 * named["q_halt_loss"]
    return _metric_values(where, loss, named) | _output_values(where, tensors)


def _output_values(where: str, tensors: dict[str, Tensor]) -> Values:
    integers = {name: tensors[name] for name in ("halted", "steps", "preds") if name in tensors}
    logits = {name: tensors[name].detach() for name in ("logits", "q_halt_logits")}
    return {("integers", where, name): value for name, value in integers.items()} | {
        ("logits", where, name): value for name, value in logits.items()
    }


def _metric_values(where: str, loss: float, metrics: dict[str, float]) -> Values:
    found = {("metrics", where, name): _float64(value) for name, value in metrics.items()}
    return found | {("loss", where, "loss"): _float64(loss)}


def _float64(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


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

ROUNDING_ROOM = 10.0
"""Allowed multiple of the fixture's own rounding error, if that exceeds the tolerance."""

LOST = 1e-2
"""Logits this far from float64's show that rounding has decided signs of updates: later steps compare noise."""


@dataclass
class Case(Fixture):
    """A fixture, and the distance of our values from it.

    The same computation in float64 measures how far rounding alone carries our float32. A network that amplifies
    rounding meets the tolerance only where the CPU rounds as the fixture's did; elsewhere it is held to that distance.
    """

    errors: dict[Key, float] = field(default_factory=dict)
    """Ours against the fixture."""
    rounding: dict[Key, float] = field(default_factory=dict)
    """Ours against float64; empty if the tolerance was met."""

    @property
    def verdict(self) -> str:
        """'agrees', 'rounding' (as near as our own rounding error allows) or 'DIFFERS'."""
        if all(error <= TOLERANCE[key[0]] for key, error in self.errors.items()):
            return "agrees"
        noise = self._noise()
        within = all(
            error <= max(TOLERANCE[key[0]], ROUNDING_ROOM * self.rounding.get(key, 0.0))
            for key, error in self.errors.items()
            if key[1] not in noise
        )
        return "rounding" if within else "DIFFERS"

    def _noise(self) -> set[str]:
        """Values that cannot be compared: from the step at which rounding takes over on, and the final weights."""
        lost = [key[1] for key, error in self.rounding.items() if key[0] == "logits" and error > LOST]
        first = min((where for where in lost if where.startswith("step")), default=None)
        if first is None:
            return set()
        return {"final", *(where for _, where, _ in self.errors if where.startswith("step") and where >= first)}


def worst(errors: dict[Key, float]) -> dict[str, float]:
    """The largest error of each quantity."""
    return {q: max((e for key, e in errors.items() if key[0] == q), default=0.0) for q in TOLERANCE}


def relative_error(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b|| in float64; for integers and booleans the share of unequal elements."""
    if a.shape != b.shape:
        return float("inf")
    if not b.is_floating_point():
        return (a != b).double().mean().item()
    a, b = a.double(), b.double()
    error = ((a - b).norm() / b.norm()).item() if b.any() else a.norm().item()
    return error if error == error else float("inf")


def load_cases(folder: Path) -> Iterator[Case]:
    """Every NAME.json with a NAME.safetensors, by name."""
    for path in sorted(folder.glob("*.json")):
        weights = path.with_suffix(".safetensors")
        if weights.exists():
            yield Case(path.stem, json.loads(path.read_text()), load_file(weights))


def run_case(case: Case) -> None:
    """Compute the case in its own type, and in float64 if that is not within tolerance."""
    theirs, ours = expected_values(case), computed_values(case, case.about["config"]["forward_dtype"])
    case.errors = {key: relative_error(ours[key], value) for key, value in theirs.items()}
    if case.verdict != "agrees":
        exact = computed_values(case, "float64")
        case.rounding = {key: relative_error(ours[key], exact[key]) for key in theirs}


def table(cases: list[Case]) -> str:
    """The largest relative error of each quantity (rows: cases), and the limits."""
    lines = [_line("case", TOLERANCE.keys(), "verdict")]
    for case in cases:
        lines.append(_line(case.name, _numbers(worst(case.errors)), case.verdict))
        if case.rounding:
            lines.append(_line("  vs float64", _numbers(worst(case.rounding)), ""))
    lines.append(_line("allowed", _numbers(TOLERANCE), ""))
    if any(case.verdict == "rounding" for case in cases):
        lines.append(
            "rounding: this network amplifies rounding errors: ours misses its own computation in float64 too.\n"
            "The fixture is within 10 times that distance until rounding decides signs of updates; after that only\n"
            "the evaluation of its final weights is compared. A CPU that rounds as the fixture's did (Intel with\n"
            f"AVX512; this one: {torch.backends.cpu.get_cpu_capability()}) is expected to meet the tolerance."
        )
    return "\n".join(lines)


def _numbers(errors: dict[str, float]) -> list[str]:
    return [f"{error:.1e}" for error in errors.values()]


def _line(name: str, cells: Iterable[str], verdict: str) -> str:
    return f"{name:<16}" + "".join(f"{cell:>16}" for cell in cells) + (f"  {verdict}" if verdict else "")


def report(cases: list[Case]) -> dict[str, Any]:
    """The same as plain JSON values."""
    results = [
        {
            "name": case.name,
            "verdict": case.verdict,
            "errors": worst(case.errors),
            "rounding": worst(case.rounding) if case.rounding else None,
        }
        for case in cases
    ]
    ok = all(case.verdict != "DIFFERS" for case in cases)
    return {"schema": "trm.parity/1", "ok": ok, "tolerance": TOLERANCE, "cases": results}


def main(arguments: list[str] | None = None) -> int:
    """0 if all agree (to the tolerance, or as far as rounding allows), 1 if one differs, 2 without fixtures."""
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
