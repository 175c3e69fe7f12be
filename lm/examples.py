"""Continuations of a text, and how the guess of the next token changes from one refinement step to the next.

The continuation is computed again for each token, without a cache: it is short. It is drawn by the counter generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lm.data.rows import Rows
from lm.data.tokenizer import Tokenizer
from lm.train import TrainState
from relay.torch import rng

LENGTH, GUESSES, TEMPERATURE = 48, 3, 0.8
"""Tokens of a continuation, guesses for each step, and the temperature of the drawn one."""


@dataclass(frozen=True)
class Guess:
    """A token and its chance."""

    token: str
    chance: float


@dataclass(frozen=True)
class Shown:
    """The first half of a row, and what the model makes of it."""

    row: int
    """From 1."""
    prompt: str
    truth: str
    """The text's own continuation."""
    steps: tuple[tuple[Guess, ...], ...]
    """The best guesses of the next token after each refinement step."""
    greedy: str
    drawn: str


@torch.no_grad()
def shown(state: TrainState, rows: Rows, tokenizer: Tokenizer, wanted: Sequence[int], steps: int) -> tuple[Shown, ...]:
    """Those rows (from 1). Raises ValueError for a row that does not exist."""
    if odd := [row for row in wanted if not 1 <= row <= rows.size]:
        raise ValueError(f"no row {odd[0]:,}: the rows are 1 to {rows.size:,}")
    found = []
    for row in wanted:
        tokens = rows.rows(row - 1, 1).inputs[0]
        half = len(tokens) // 2
        prompt = tokens[:half]
        guesses = tuple(_guesses(chances, tokenizer) for chances in _chances(state, prompt, steps))
        greedy, drawn = (_continued(state, prompt, steps, draw, row) for draw in (False, True))
        texts = (tokenizer.decoded(part.tolist()) for part in (prompt, tokens[half : half + LENGTH], greedy, drawn))
        first, truth, best, other = texts
        found.append(Shown(row, first, truth, guesses, best, other))
    return tuple(found)


def _chances(state: TrainState, tokens: Tensor, steps: int) -> list[Tensor]:
    """float64 (vocabulary,): of the next token, after each step."""
    answers = state.model.each_answer(tokens[None].to(state.device), state.config.refine, steps)
    return [state.model.logits(y[0, -1]).double().softmax(-1).cpu() for y in answers]


def _guesses(chances: Tensor, tokenizer: Tokenizer) -> tuple[Guess, ...]:
    best = chances.topk(min(GUESSES, len(chances)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(Guess(tokenizer.decoded([token]), chance) for token, chance in pairs)


def _continued(state: TrainState, prompt: Tensor, steps: int, draw: bool, row: int) -> Tensor:
    """The next tokens, the likeliest or drawn by (row, position)."""
    tokens = prompt
    for place in range(LENGTH):
        chances = _chances(state, tokens[-state.config.arch.context :], steps)[-1]
        if draw:
            warmed = (chances.log() / TEMPERATURE).softmax(-1).cumsum(0)
            at = float(rng.uniform(row, place, rng.Stream.SAMPLE, (1,)))
            token = min(int((warmed <= at).sum()), len(chances) - 1)
        else:
            token = int(chances.argmax())
        tokens = torch.cat((tokens, torch.tensor([token])))
    return tokens[len(prompt) :]
