"""Error of a kernel on the edges of a batch against float64, and whether two runs give equal bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LIMIT = 5e-3
"""Above bfloat16 rounding of inputs, inner values and outputs; below the error of a wrong index."""
EDGE = 3
"""Entries to compare at each end: as many as float64 has time for."""
Outputs = tuple[Tensor, ...]


def random(*shape: int, scale: float = 1.0) -> Tensor:
    """bfloat16 normals on the GPU."""
    return (torch.randn(*shape, device="cuda") * scale).bfloat16()


def edge(x: Any, count: int = EDGE) -> Any:
    """The first and last entries along the first axis, in float64; other values unchanged."""
    return torch.cat((x[:count], x[-count:])).double() if isinstance(x, Tensor) else x


def outputs(run: Callable[[], Any]) -> Outputs:
    """The results of a part, as a tuple."""
    result = run()
    return result if isinstance(result, tuple) else (result,)


class Report:
    """One line a kernel."""

    def __init__(self) -> None:
        self.failed = False

    def line(self, name: str, run: Callable[[], Any], truth: Callable[[], Any], edges: bool = True) -> None:
        """Compare two runs with each other and the first with the truth, on the edges of the batch or everywhere."""
        once, twice = outputs(run), outputs(run)
        same = all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))
        errors = []
        for got, true in zip(once, outputs(truth), strict=True):
            part = edge(got, len(true) // 2) if edges else got.double()
            errors.append(float((part - true.double()).norm() / true.double().norm()))
        bad = not same or not all(error < LIMIT for error in errors)
        self.failed |= bad
        shown = " ".join(f"{error:.1e}" for error in errors)
        print(f"{name:24} {shown:28} same bytes {same}{'  <-- BAD' if bad else ''}")
