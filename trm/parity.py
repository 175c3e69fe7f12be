"""`python -m trm.parity FOLDER`: run fixtures of the reference implementation and report how far we are from them.

A fixture is NAME.json and NAME.safetensors, described in tests/data/trm_parity/README.md. Knows nothing of runs.
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

from trm.parity_values import Fixture, Key, computed_values, expected_values

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
"""How many times the fixture's own rounding error a quantity may be off where that exceeds the tolerance."""

LOST = 1e-2
"""Logits this far from float64's say that rounding has decided signs of updates: later steps compare noise."""


@dataclass
class Case(Fixture):
    """A fixture, and how far what we compute is from it.

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
        """Where comparing means nothing: the step at which rounding takes over, later ones, and the final weights."""
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
    """Every NAME.json that has a NAME.safetensors beside it, by name."""
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
    """The largest relative error of each quantity (rows: cases), and what is allowed."""
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
