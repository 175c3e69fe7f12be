"""Memory of eager steps on a CPU: the prediction (trm/cost.py) against the peak resident size of child processes.

    python benchmarks/cpu_memory.py            # all shapes, a table
Each shape runs in a process of its own, because a peak never goes down.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from relay.torch.device import settle
from trm.config import Arch, TrainConfig
from trm.cost import need
from trm.data.dataset import Batch
from trm.model import Sizes
from trm.train import EagerStep, Step, TrainState

CPU = torch.device("cpu")
STEPS = 2
SUDOKU, SMALL, MAZE = (81, 11), (16, 6), (900, 6)


def shape(cells: tuple[int, int], rows: int, parts: int = 1, **arch: Any) -> dict[str, Any]:
    """One case; `arch` replaces settings of the published mixer."""
    mixer = {"mlp_t": True, "pos_encodings": "none", "H_cycles": 1, "L_cycles": 2}
    return {"cells": cells, "rows": rows, "parts": parts, "arch": {**mixer, **arch}}


ATTENTION = {"mlp_t": False, "pos_encodings": "rope"}
NARROW = {"hidden_size": 32, "num_heads": 4, "puzzle_emb_ndim": 32, "puzzle_emb_len": 1, "forward_dtype": "float32"}
"""Little arithmetic for much memory."""
SHAPES = [
    shape(SUDOKU, 64, **NARROW),
    shape(SUDOKU, 192, **NARROW),
    shape(SUDOKU, 384, parts=4, **NARROW),
    shape(SUDOKU, 192, **NARROW, **ATTENTION),
    shape(SUDOKU, 256, **{**NARROW, "forward_dtype": "bfloat16"}),
    shape(SUDOKU, 256, **{**NARROW, "forward_dtype": "bfloat16"}, **ATTENTION),
    shape(MAZE, 24, **NARROW, **ATTENTION),
    shape(SMALL, 1024, **NARROW),
]


def config_of(case: dict[str, Any]) -> tuple[TrainConfig, Sizes]:
    """The training of a case."""
    config = TrainConfig(task="shape", batch_size=case["rows"], arch=Arch(**case["arch"]), threads=1)
    return config, Sizes(*case["cells"], num_identifiers=1)


def resident() -> int:
    """Of this process now, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def steps(config: TrainConfig, sizes: Sizes, step: Step) -> None:
    """Train some steps on random tokens."""
    settle(config.threads)
    state = TrainState(config, sizes)
    tokens = torch.randint(1, sizes.vocab_size, (2, config.batch_size, sizes.seq_len), dtype=torch.int32)
    batch = Batch(tokens[0], tokens[1], torch.zeros(config.batch_size, dtype=torch.int32))
    for _ in range(STEPS):
        step(state, batch)


def measure(case: dict[str, Any]) -> int:
    """Growth of this process's peak through some steps, bytes."""
    config, sizes = config_of(case)
    before = resident()
    steps(config, sizes, EagerStep(case["parts"]))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def in_child(case: dict[str, Any]) -> int:
    """`measure` in a fork of this process, which has computed nothing."""
    near, far = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: far.send(measure(case)))
    child.start()
    child.join()
    return int(near.recv())


def main() -> None:
    """Print a line for each shape."""
    for case in SHAPES:
        measured = in_child(case)
        config, sizes = config_of(case)
        predicted = need(config, sizes, "eager", kind="cpu").peak(-(-case["rows"] // case["parts"]))
        facts = f"{predicted / 1e6:8.0f} {measured / 1e6:8.0f} MB {predicted / measured:6.2f}"
        print(facts, json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
