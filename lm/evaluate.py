"""Bits per byte after each refinement step, next to those of letter counts; right answers by number of hops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lm.data.generate import MOST_HOPS
from lm.data.rows import Rows
from lm.data.tokenizer import Tokenizer
from lm.model import IGNORE, Model
from lm.presets import at_step
from lm.train import Batch, TrainState, head_loss


@dataclass(frozen=True)
class Done:
    """Rows so far."""

    done: int
    total: int


def evaluate(
    state: TrainState,
    rows: Rows,
    tokenizer: Tokenizer,
    counts: Tensor,
    count: int | None,
    steps: int,
    at_once: int,
    progress: Callable[[Done], None] = lambda _: None,
) -> dict[str, float]:
    """Of the first `count` rows (None: all). counts: of the training tokens. steps: refinement steps, also more than
    were trained. at_once: tokens.

    Special tokens count neither as nats nor as bytes. `bpb` is the value after the last step.
    """
    total = rows.size if count is None else min(count, rows.size)
    lengths, surprise = torch.from_numpy(tokenizer.lengths), _surprise(counts)
    nats = torch.zeros(steps, dtype=torch.float64, device=state.device)
    size, letters, tokens, done = 0, 0.0, 0, 0
    hops = torch.zeros(2, MOST_HOPS + 1, dtype=torch.int64)
    chunk = max(1, at_once // rows.context)
    while done < total:
        first = min(chunk, -(-total // 20)) if not done and state.device.type == "cpu" else chunk
        batch = rows.rows(done, min(first, total - done))
        scored = (batch.targets != IGNORE) & (lengths[batch.targets.clamp(min=0)] > 0)
        wanted = batch.targets.masked_fill(~scored, IGNORE)
        inputs, targets = batch.inputs.to(state.device), wanted.to(state.device)
        for step, y in enumerate(state.model.each_answer(inputs, state.config.refine, steps)):
            nats[step] += head_loss(state.model, y, targets, None, compiled=False)[0]
        read = batch.targets[scored]
        size, tokens = size + int(lengths[read].sum()), tokens + len(read)
        letters += float(surprise[read].sum())
        if rows.answers:
            hops += _right(state.model, y, Batch(batch.inputs, wanted))
        done += len(batch.inputs)
        progress(Done(done, total))
    bits = math.log(2) * max(size, 1)
    values = (nats / bits).tolist()
    found = {"bpb": values[-1]} | {at_step("bpb", step): value for step, value in enumerate(values[:-1], 1)}
    found |= {"unigram_bpb": letters / bits, "uniform_bpb": math.log(len(lengths)) * tokens / bits, "n": float(total)}
    right, asked = hops.tolist()
    return found | {f"right_{p}": right[p] / asked[p] for p in range(1, MOST_HOPS + 1) if asked[p]}


def _surprise(counts: Tensor) -> Tensor:
    """float64 (vocabulary,): nats of each token by how often it is in the training text; each once more than it is."""
    smoothed = counts.double() + 1
    return -(smoothed / smoothed.sum()).log()


@torch.no_grad()
def _right(model: Model, y: Tensor, batch: Batch) -> Tensor:
    """int64 (2, hops + 1): right answers and answers by number of hops, the digit before the mark."""
    found = torch.zeros(2, MOST_HOPS + 1, dtype=torch.int64)
    row, place = (batch.targets != IGNORE).nonzero(as_tuple=True)
    row, place = row[place > 0], place[place > 0]
    hops = (batch.inputs[row, place - 1] - ord("0")).clamp(0, MOST_HOPS)
    right = model.logits(y[row.to(y.device), place.to(y.device)]).argmax(-1).cpu() == batch.targets[row, place]
    for kind, chosen in ((0, hops[right]), (1, hops)):
        found[kind] += torch.bincount(chosen, minlength=MOST_HOPS + 1)
    return found


def marks(metrics: dict[str, float]) -> list[str]:
    """Sentences about values that letter counts alone beat."""
    unigram = metrics.get("unigram_bpb", math.inf)
    worse = [name for name, value in metrics.items() if name.startswith("bpb") and value > unigram]
    return [f"{name} {metrics[name]:.4f} is worse than letter counts ({unigram:.4f})." for name in sorted(worse)]
