"""The Triton releases with which the kernels for Hopper were tried on a GPU.

Gluon, their language, is experimental: another release may order loads and products differently, and a wrong order
gives wrong numbers or hangs. So a session takes these kernels only with a release in TRIED.
`python benchmarks/triton_trial.py TRAIN.csv` tries the installed release on a Hopper card and prints its row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

UNTRIED = "TRM_UNTRIED_TRITON"
"""Environment variable: 1 takes the kernels for Hopper with any Triton. For the trial itself."""


@dataclass(frozen=True)
class Tried:
    """One trial: kernels against float64, ms a step, one digest in two processes, a relay against an unbroken run."""

    capability: tuple[int, int]
    triton: str
    """Major and minor release: 3.6."""
    torch: str
    """The release that was installed with it."""
    card: str
    error: float
    """Largest relative error of a kernel against float64."""
    ms: float
    """Of a step of `sudoku`."""
    n: int
    """Steps that were timed."""
    record: str
    """Folder in docs/records."""


TRIED = (
    Tried((9, 0), "3.6", "2.11.0", "H100 80GB HBM3", 4.1e-3, 71.8, 20, "2026-11-29_h100"),
    Tried((9, 0), "3.7", "2.11.0", "H200", 4.1e-3, 70.8, 100, "2026-11-30_h200"),
)


def release(version: str) -> str:
    """'3.7' of '3.7.1+git1'."""
    return ".".join(version.split(".")[:2])


def tried(capability: tuple[int, int], version: str) -> Tried | None:
    """The trial of this Triton on a card of this compute capability, if there was one."""
    return next((one for one in TRIED if (one.capability, one.triton) == (capability, release(version))), None)


def admitted(capability: tuple[int, int], version: str) -> bool:
    """Whether a session takes the kernels for Hopper here."""
    hopper = any(one.capability == capability for one in TRIED)
    return tried(capability, version) is not None or (hopper and os.environ.get(UNTRIED) == "1")
