"""Milliseconds of a training step by card: rows that were measured, and estimates for other cards and shapes.

Everything that `doctor`, a session's first lines and docs/reference/speed.md expect comes from here.
`python benchmarks/machine.py` prints the rows of another card.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from relay.core.gpus import models
from trm.config import TrainConfig
from trm.cost import step_flops
from trm.model import Sizes
from trm.presets import PRESETS
from trm.tasks import sizes_of

How = Literal["plain", "compiled", "portable", "hopper"]
"""Autograd; autograd under torch.compile; our Triton kernels, which any card from Hopper on takes; those with the ones
for Hopper alone."""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    card: str
    """As relay/core/gpus.py names it; 'cpu' without a GPU."""
    task: str
    """A key of `shapes`."""
    how: How
    ms: float
    """Median of a step."""
    n: int
    """Steps that were timed."""
    torch: str
    triton: str
    record: str
    """Folder in docs/records, whose page has the number."""
    processes: int = 1


H100, H200, CPU = "H100 80GB HBM3", "H200", "cpu"
_THEN = ("2.11.0", "3.6.0")
ROWS = (
    Row(H100, "sudoku", "hopper", 71.8, 20, *_THEN, "2026-11-29_h100"),
    Row(H100, "sudoku", "portable", 85.15, 200, *_THEN, "2026-11-28_step_time"),
    Row(H100, "sudoku", "compiled", 148.0, 200, *_THEN, "2026-11-29_h100"),
    Row(H100, "sudoku", "plain", 367.7, 47, *_THEN, "2026-11-28_step_time"),
    Row(H100, "sudoku_att", "hopper", 76.92, 200, *_THEN, "2026-11-29_h100"),
    Row(H100, "sudoku_att", "portable", 92.0, 100, *_THEN, "2026-11-28_step_time"),
    Row(H100, "sudoku_att", "compiled", 106.13, 200, *_THEN, "2026-11-29_h100"),
    Row(H100, "arc", "hopper", 160.33, 120, *_THEN, "2026-11-29_h100"),
    Row(H200, "sudoku", "hopper", 71.63, 150, *_THEN, "2026-11-29_h200"),
    Row(H200, "sudoku", "compiled", 135.97, 200, *_THEN, "2026-11-30_h200"),
    Row(H200, "sudoku", "plain", 335.10, 40, *_THEN, "2026-11-29_h200"),
    Row(H200, "sudoku_att", "hopper", 73.12, 200, *_THEN, "2026-11-28_norms"),
    Row(H200, "sudoku_att", "compiled", 108.0, 200, *_THEN, "2026-11-30_h200"),
    Row(H200, "arc", "hopper", 152.118, 64, *_THEN, "2026-11-29_h200"),
    Row(H200, "arc", "compiled", 244.4, 200, *_THEN, "2026-11-30_h200"),
    Row(H200, "arc", "plain", 484.8, 40, *_THEN, "2026-11-28_h200"),
    Row(H200, "sudoku", "hopper", 38.8, 30, *_THEN, "2026-11-28_two_gpus", processes=2),
    Row(H200, "sudoku", "plain", 174.4, 30, *_THEN, "2026-11-28_two_gpus", processes=2),
    Row(CPU, "sudoku4", "plain", 56.63, 300, *_THEN, "2026-11-28_h200"),
)
"""A row of another card joins at the end. The compiled ones of the H100 compiled the whole network as one graph, as
benchmarks/step_time.py does; those of the H200 are a session's step, which compiles the blocks (trm/compiled.py)."""


@dataclass(frozen=True)
class Card:
    """A card by its maker's data sheet."""

    model: str
    capability: tuple[int, int]
    tflops: float
    """Dense products: of bfloat16 summed in float32; of float32 where there are none (below capability 8.0)."""
    tbs: float
    """Memory, TB/s."""


CARDS = (
    Card("B200", (10, 0), 2250, 8.0),
    Card("H200", (9, 0), 989, 4.8),
    Card("H100", (9, 0), 989, 3.35),
    Card("A100", (8, 0), 312, 1.56),
    Card("L40S", (8, 9), 362, 0.864),
    Card("4090", (8, 9), 165, 1.008),
    Card("3090", (8, 6), 71, 0.936),
    Card("L4", (8, 9), 121, 0.3),
    Card("V100", (7, 0), 15.7, 0.9),
    Card("T4", (7, 5), 8.1, 0.32),
    Card("P100", (6, 0), 9.3, 0.732),
)
SHARE = 0.5
"""Of the data sheet's rate that products are assumed to reach."""
TOGETHER = 1.06
"""A step of two processes against half a step of one, as measured on two H200."""
NARROW = 256
"""On a GPU, a step of a narrower network only waits for launches: nothing is expected of it."""
SHAPES = {"sudoku4": 64, "sudoku": 768, "sudoku_att": 768, "arc": 192}
"""Shapes that were measured, and their batches."""


@dataclass(frozen=True)
class Expected:
    """Milliseconds of a step, and their basis."""

    ms: float
    basis: str
    """'measured: H200, n = 150' or 'estimated from …'."""
    measured: bool


def expected(card: str, config: TrainConfig, sizes: Sizes, how: How, processes: int = 1) -> Expected | None:
    """Of this configuration on a card; None if nothing is known about it."""
    if card != CPU and config.arch.hidden_size < NARROW:
        return None
    task, flops = shape_of(config, sizes), step_flops(config, sizes)
    of_shape = abs(flops / flops_of(task) - 1) < 1e-3
    for row in ROWS:
        if (row.card, row.task, row.how, row.processes) == (card, task, how, processes) and of_shape and card != CPU:
            return Expected(row.ms, f"measured: {processes_text(processes)}{card}, n = {row.n}", measured=True)
    base = _nearest(card, task, how)
    ms = None if base is None else _scaled(base, card, flops)
    if base is None or ms is None:
        return None
    ms *= 1 if processes == 1 else TOGETHER / processes
    on = "another CPU" if base.card == CPU else base.card
    return Expected(ms, f"estimated from {base.ms:.4g} ms of {base.task} on {on}", measured=False)


def usual(capability: tuple[int, int], forward_dtype: str = "bfloat16") -> How:
    """The step of a long session on a GPU of this compute capability (trm/choosing.py decides on a machine)."""
    if capability >= (9, 0):
        return "hopper" if capability == (9, 0) else "portable"
    return "compiled" if capability >= ((8, 0) if forward_dtype == "bfloat16" else (7, 0)) else "plain"


def processes_text(processes: int) -> str:
    """'2 x ' for two processes."""
    return "" if processes == 1 else f"{processes} x "


def shape_of(config: TrainConfig, sizes: Sizes) -> str:
    """The measured shape that is most like this one."""
    arch = config.arch
    if arch.hidden_size < NARROW:
        return "sudoku4"
    if arch.mlp_t:
        return "sudoku"
    return "sudoku_att" if sizes.seq_len + arch.prefix_len <= 128 else "arc"


@cache
def flops_of(task: str) -> float:
    """Arithmetic of a step of a measured shape."""
    preset = PRESETS["arc1" if task == "arc" else task].model_copy(update={"batch_size": SHAPES[task]})
    return step_flops(preset, sizes_of(preset))


def card_of(name: str) -> Card | None:
    """The data sheet of a card with this name."""
    return next((card for card in CARDS if models(card.model) & models(name)), None)


def _nearest(card: str, task: str, how: How) -> Row | None:
    """The measurement to scale: of this shape, of this card, otherwise of any."""
    usable = [row for row in ROWS if row.how == how and row.processes == 1 and (row.card == CPU) == (card == CPU)]
    return min(usable, key=lambda row: (row.task != task, row.card != card), default=None)


def _scaled(row: Row, card: str, flops: float) -> float | None:
    """Milliseconds of `flops` on another card: products by the rates of data sheets, the rest by memory's rates."""
    ms = row.ms * flops / flops_of(row.task)
    if row.card == card:
        return ms
    there, here = card_of(row.card), card_of(card)
    if there is None or here is None:
        return None
    rest = max(0.0, ms - _products(there, flops))
    return _products(here, flops) + rest * there.tbs / here.tbs


def _products(card: Card, flops: float) -> float:
    return flops / (card.tflops * SHARE * 1e9)
