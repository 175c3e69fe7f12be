"""A tasks file, and tiny weights that were never trained but have a row for every variant of its tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trm.conftest import TINY
from tests.trm.data.arc import files
from trm.act import TRM
from trm.competition import votestore
from trm.competition.begin import begin
from trm.competition.layout import lay_out
from trm.competition.pace import Pace
from trm.competition.solver import Answering, Options, Outcome, Solver
from trm.competition.weights import Trained
from trm.config import Arch
from trm.data.arc import generate
from trm.data.arc.tasks import Task
from trm.data.arc.variants import VOCABULARY, build
from trm.interop import PUZZLES
from trm.model import Sizes

SIDE = 10
ARCH = TINY.model_copy(update={"halt_max_steps": 1, "H_cycles": 1})


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return files.kaggle(tmp_path / "tasks", generate.TEST, files.tasks((1, 1))[generate.TEST])


def made(
    num_aug: int = 3, seed: int = 0, arch: Arch = ARCH, side: int = SIDE, some: Mapping[str, list[Task]] | None = None
) -> Trained:
    """Weights whose answers are arbitrary grids. some: the tasks they know, the tested ones last."""
    some = some or files.tasks((1, 1))
    names = build(some, list(some)[-1], num_aug, side).names
    tensors = TRM(arch, Sizes(side * side, VOCABULARY, 1), seed).state_dict()
    del tensors[PUZZLES]
    tensors["inner.lm_head.weight"][2:] *= 3  # mostly colors
    table = torch.randn(len(names), arch.puzzle_emb_ndim, generator=torch.Generator().manual_seed(seed)) * 3
    return Trained(arch, side, tensors, table, names, table[1:].mean(0), {"file": "made"})


@pytest.fixture(scope="session")
def trained() -> Trained:
    return made()


Solve = Callable[..., Outcome]


def votes_of(path: Path) -> list[votestore.Vote]:
    return votestore.read(path.with_name(f"{path.name}.votes")).votes


@pytest.fixture
def solve(tasks: Path, tmp_path: Path, trained: Trained) -> Solve:
    """solve(out="s.json", rounds=None, **changes): one process; rounds: it ends after so many, as by its budget."""

    def run(out: str = "s.json", rounds: int | None = None, chunk: int = 7, **changes: Any) -> Outcome:
        begun = begin(tmp_path / out, changes.get("tasks", tasks))
        try:
            weights = changes.get("trained", trained)
            options = Options(changes.get("variants", 4), 1, 1, chunk)
            layout = lay_out(begun.path, begun.tasks, weights, options.variants)
            clock = changes.get("clock") or iter(range(10**9))
            pace = Pace(lambda: next(clock), changes.get("deadline", math.inf))
            if rounds is not None:
                left = iter([True] * rounds + [False])
                pace.affords = lambda: next(left)  # type: ignore[method-assign]
            devices = [torch.device("cpu")] * changes.get("devices", 1)
            answering = Answering(layout, weights, options, devices, pace.now)
            solver = Solver(begun, layout, answering, options.binding(weights.hash, begun.hash), pace)
            changes.get("before", lambda _: None)(solver)
            return solver.run()
        finally:
            begun.store.close()

    return run
