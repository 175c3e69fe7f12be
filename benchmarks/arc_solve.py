"""Rows solved a second on this machine's GPUs with the published network, beside the floor, and steps of an adaptation.

    python benchmarks/arc_solve.py [--variants 16] [--out FILE.json]

The weights are untrained and the tasks generated: what is measured is time, not scores. Also ends a solve in the middle
and compares the bytes of the continued one with those of an unbroken one.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import torch

from trm.act import TRM
from trm.competition.adapt import Adaptation, Recipe
from trm.competition.begin import begin
from trm.competition.layout import Layout, lay_out
from trm.competition.pace import Pace
from trm.competition.solver import Answering, Options, Solver, devices_of
from trm.competition.weights import Trained
from trm.config import Arch
from trm.cost import forward_flops
from trm.data.arc import generate
from trm.data.arc.submission import read_tasks
from trm.data.arc.variants import VOCABULARY
from trm.interop import PUZZLES
from trm.model import Sizes
from trm.presets import preset

SIDE = 30
OTHERS = 31.0
"""Rows a second that others measured with the reference's code."""


def untrained(arch: Arch) -> Trained:
    """A network with its first weights."""
    tensors = TRM(arch, Sizes(SIDE * SIDE, VOCABULARY, 1)).state_dict()
    table = tensors.pop(PUZZLES)
    return Trained(arch, SIDE, tensors, table, None, torch.zeros(arch.puzzle_emb_ndim), {"kind": "untrained"})


def speed(layout: Layout, trained: Trained, options: Options, devices: list[torch.device]) -> dict[str, float | int]:
    """Rows a second of three rounds on these devices, after one to warm up."""
    answering = Answering(layout, trained, options, devices, time.monotonic)
    chunks = list(answering.chunks(torch.zeros(len(layout.order), dtype=torch.bool).numpy()))[: 3 * len(devices)]
    answering.answers(chunks[: len(devices)])
    began = time.monotonic()
    for at in range(0, len(chunks), len(devices)):
        answering.answers(chunks[at : at + len(devices)])
    rows = sum(map(len, chunks))
    each = rows / (time.monotonic() - began)
    flops = options.steps * forward_flops(trained.arch, Sizes(SIDE * SIDE, VOCABULARY, 1))
    return {
        "gpus": len(devices),
        "chunk": len(chunks[0]),
        "rows_a_second": round(each, 2),
        "tflop_a_row": round(flops / 1e12, 3),
        "tflops_a_gpu": round(each * flops / 1e12 / len(devices), 1),
        "times_others": round(each / OTHERS, 2),
        "minutes_172_inputs_256_variants": round(172 * 256 / each / 60, 1),
        "peak_gb": round(max(map(torch.cuda.max_memory_allocated, devices)) / 1e9, 2)
        if torch.cuda.is_available()
        else 0,
    }


def solved(place: Path, tasks: Path, trained: Trained, options: Options, rounds: float = math.inf) -> bytes:
    """The submission of a solve that ends after so many rounds."""
    begun = begin(place, tasks)
    layout, pace = lay_out(tasks, begun.tasks, trained, options.variants), Pace(time.monotonic)
    left = iter(range(10**9))
    pace.affords = lambda: next(left) < rounds  # type: ignore[method-assign]
    answering = Answering(layout, trained, options, devices_of("cuda"), time.monotonic)
    Solver(begun, layout, answering, options.binding(trained.hash, begun.hash), pace).run()
    begun.store.close()
    return place.read_bytes()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", type=int, default=16)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    trained, found = untrained(preset("arc2").arch), dict[str, object]()
    devices = devices_of("cuda")
    with tempfile.TemporaryDirectory() as scratch:
        tasks = generate.write(Path(scratch) / "tasks")[0]
        options = Options(given.variants, trained.arch.halt_max_steps)
        layout = lay_out(tasks, read_tasks(tasks), trained, options.variants)
        found["card"] = torch.cuda.get_device_name(0)
        found["speed"] = [speed(layout, trained, options, devices[:count]) for count in range(1, len(devices) + 1)]
        few = Options(2, trained.arch.halt_max_steps)
        whole = solved(Path(scratch) / "whole.json", tasks, trained, few)
        solved(Path(scratch) / "parts.json", tasks, trained, few, rounds=1)
        found["continued_is_unbroken"] = solved(Path(scratch) / "parts.json", tasks, trained, few) == whole
        for batch in (128, 384):
            seconds = list[float]()
            adaptation = Adaptation(
                trained, layout, Recipe(steps=12, share=0.5, batch=batch), devices[0], Path(scratch) / "a", str(batch)
            )
            adaptation.run(Pace(time.monotonic), lambda: 0.0, lambda *_, s=seconds: s.append(time.monotonic()))
            found[f"adapting_ms_at_{batch}"] = round(1000 * (seconds[-1] - seconds[-5]) / 4, 1)
    text = json.dumps(found, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
