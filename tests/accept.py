"""Runs the proofs that take too long for CI, and records when, where and with which result each was run.

    python -m tests.accept [NAME ...]       all proofs, or those named

A proof that fails does not keep the next ones from running. The exit code is 1 if any failed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "records"
CORES = os.cpu_count() or 1
PYTEST = (sys.executable, "-m", "pytest", "--timeout", "0")


@dataclass(frozen=True)
class Proof:
    """A command, and its output on success."""

    shows: str
    command: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)
    parallel: bool = False


PROOFS = {
    "kills": Proof(
        "500 kills at random moments lose no committed step",
        (*PYTEST, "tests/processes/test_random_kills.py"),
        {"RELAY_KILLS": "500"},
    ),
    "worlds": Proof(
        "20,000 worlds of each kind in the simulation break no invariant",
        (*PYTEST, "tests/simulation"),
        {"RELAY_SIM_SEEDS": "20000"},
        parallel=True,
    ),
    "model": Proof(
        "every schedule within the larger bounds keeps every invariant",
        (*PYTEST, "tests/model/test_model.py", "-k", "every_invariant"),
        {"RELAY_MODEL": "large"},
        parallel=True,
    ),
    "loops": Proof(
        "every example, relayed over ten sessions that end in every way, has the bytes of its plain script",
        (*PYTEST, "tests/torch/test_examples.py"),
        {"TESTS_LOOP_SESSIONS": "10"},
    ),
    "trainers": Proof(
        "runs of Transformers' and Lightning's trainers, ended in every way, have the bytes of their plain scripts",
        (*PYTEST, "tests/torch/test_trainers.py"),
        {"TESTS_TRAINERS": "whole"},
    ),
    "arc": Proof(
        "200 kills at random moments leave a valid submission, and the solve ends at the unbroken one's bytes",
        (*PYTEST, "tests/acceptance/test_arc.py", "tests/acceptance/test_arc_bundle.py"),
        {"RELAY_ARC_KILLS": "200", "RELAY_BUNDLE": "every"},
    ),
    "arc_small": Proof(
        "arc_small learns nine tenths of its test outputs, and no answer without a model a tenth; three seeds",
        (sys.executable, "benchmarks/arc_small.py"),
    ),
    "compiled": Proof(
        "a relay of sessions with the compiled step equals an unbroken one, on this machine's device",
        (
            sys.executable,
            "benchmarks/exact_relay.py",
            "generated",
            "--task",
            "sudoku4",
            "--steps",
            "6",
            "--sessions",
            "2",
        ),
        {"TRM_STEP": "compiled"},
    ),
    "lm": Proof(
        "a language model's run of each kind is the same bytes after ten sessions and in two processes",
        (*PYTEST, "tests/acceptance/test_lm_resume.py"),
        {"RELAY_LM": "whole"},
    ),
    "container": Proof(
        "every step of the Dockerfile runs in a fresh environment, with packages from an index",
        (*PYTEST, "tests/test_launch.py"),
        {"RELAY_INSTALL": "whole"},
    ),
    "study": Proof(
        "two people finish a study in short sessions killed at random; every run has the bytes of an unbroken one",
        (sys.executable, "-m", "tests.study_proof"),
    ),
    "recipe": Proof(
        "a recipe installs into an empty home, spends its budget, is killed and reaches the bytes of an unbroken run",
        (sys.executable, "-m", "tests.recipe_proof"),
    ),
    "install": Proof(
        "the wheel installs with its dependencies into an empty environment, and its demonstration runs there",
        (*PYTEST, "tests/acceptance/test_packaging.py"),
        {"RELAY_INSTALL": "whole"},
    ),
}


def run(proof: Proof) -> tuple[int, float, str]:
    """Exit code, seconds, and the last line that the proof printed."""
    command = (*proof.command, *(("-n", str(CORES), "--dist", "worksteal") if proof.parallel else ()))
    begun, last = time.monotonic(), ""
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | proof.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            sys.stdout.write(line)
            last = line.strip() or last
    return process.returncode, time.monotonic() - begun, last


def main(names: list[str]) -> int:
    if unknown := set(names) - PROOFS.keys():
        print(f"Unknown proofs: {', '.join(sorted(unknown))}. Choose from: {', '.join(PROOFS)}.", file=sys.stderr)
        return 2
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    file = RECORDS / f"{time.strftime('%Y-%m-%d')}_accept" / "README.md"
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_text(
            "# Proofs that take too long for CI (`make accept`)\n\n"
            "| proof | result | minutes | commit | machine | last line |\n|---|---|---|---|---|---|\n"
        )
    machine = f"{CORES} cores, {platform.machine()}, Python {platform.python_version()}"
    failed = False
    for name in names or PROOFS:
        proof = PROOFS[name]
        print(f"--- {name}: {proof.shows}", flush=True)
        code, seconds, last = run(proof)
        failed |= code != 0
        result = "passed" if code == 0 else f"**failed** ({code})"
        table, below = file.read_text().rpartition("|\n")[::2]  # notes may stand below the table
        row = f"| {proof.shows} | {result} | {seconds / 60:.1f} | {commit} | {machine} | {last} |\n"
        file.write_text(f"{table}|\n{row}{below}")
    print(f"Recorded in {file.relative_to(ROOT)}.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
