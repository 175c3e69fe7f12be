"""Evaluation with more refinement steps than were trained."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from lm.model import Model
from lm.workload import LmWorkload
from relay.core.workload import Reading, read_as
from tests.lm.small import small


def test_answers_are_not_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate --steps 9999` held every answer, which on a GPU is a terabyte."""
    made, most, real = list[weakref.ref[torch.Tensor]](), [0], Model.refined

    def noting(self: Model, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        y, z = real(self, *arguments)
        made.append(weakref.ref(y))
        most[0] = max(most[0], sum(one() is not None for one in made))
        return y, z

    workload = LmWorkload(small(), tmp_path)
    workload.start()
    monkeypatch.setattr(Model, "refined", noting)
    with read_as(workload, Reading(False, 40)):
        found = workload.evaluate("test", 2)
    assert len(made) >= 40 and most[0] <= 2
    assert [f"bpb_{step}" in found for step in (1, 39, 40)] == [True, True, False]
