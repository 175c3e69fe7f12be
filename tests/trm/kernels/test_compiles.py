"""Every kernel compiles for an H100 without one, keeps its values in registers, and fits its shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from trm.kernels.tried import TRIED, release

ROOT = Path(__file__).parents[3]
PORTABLE, FOR_HOPPER = 17, 12
"""Kernels, by their packages."""
SHARED = 232_448
"""Bytes of shared memory a program may have on compute capability 9.0."""
STACK = 64
"""Bytes a thread may keep on its stack: one compiler version puts a scalar there; spilled tiles take hundreds."""
MEASURED = {"trm.kernels.specialized.mixer_weight_grad._mixer_weight_grad": 240}
"""Bytes of stack of a kernel that spills and was still faster on the GPU than its variant that does not."""


def pins() -> dict[str, str]:
    """The versions of a fresh machine."""
    return dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)


@pytest.mark.slow
def test_no_spills_and_shared_memory_fits() -> None:
    """Spilled registers give right results slowly, so nothing else here would notice them."""
    assert version("triton") == pins()["triton"], "the compiler of a fresh machine"
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    script = ROOT / "tests" / "trm" / "kernels" / "compile_for_hopper.py"
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    launches = [json.loads(line) for line in done.stdout.splitlines()]
    kernels = {launch["kernel"] for launch in launches}
    hopper = {kernel for kernel in kernels if kernel.startswith("trm.kernels.specialized.")}
    assert (len(kernels - hopper), len(hopper)) == (PORTABLE, FOR_HOPPER)
    assert not [launch for launch in launches if launch["shared"] > SHARED]
    assert not [launch for launch in launches if launch["stack"] > MEASURED.get(launch["kernel"], STACK)]


def test_a_fresh_machine_installs_a_triton_that_was_tried() -> None:
    """Otherwise the kernels that were measured are not those that run."""
    assert release(pins()["triton"]) in {one.triton for one in TRIED}
