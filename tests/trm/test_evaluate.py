"""Accuracy: the same answer in any chunks, with the weights asked for, and an estimate of time."""

from __future__ import annotations

import pytest
import torch

from trm.data.dataset import Dataset
from trm.evaluate import EvalProgress, _first_chunk, evaluate, solve


@pytest.fixture
def puzzles(batch_at) -> Dataset:
    batch = batch_at(0, 50)
    return Dataset(batch.inputs, batch.labels.clamp(min=0), vocab_size=5)


def test_chunks_do_not_matter_and_progress_is_told(make, puzzles) -> None:
    inner = make(20).model.inner
    seen: list[EvalProgress] = []
    whole = evaluate(inner, puzzles, chunk=50, progress=seen.append)
    assert [p.done for p in seen] == [3, 50]
    assert seen[0].total == 50
    assert seen[0].seconds_left > 0
    assert seen[-1].seconds_left == 0
    parts = evaluate(inner, puzzles, chunk=7)
    assert (parts.n, parts.exact_accuracy) == (whole.n, whole.exact_accuracy)
    assert parts.cell_accuracy == pytest.approx(whole.cell_accuracy, abs=1e-12)
    assert whole.n == 50
    assert evaluate(inner, puzzles, count=9).n == 9
    assert evaluate(inner, puzzles, count=0).n == 0


def test_it_counts_what_solve_answers(make, puzzles) -> None:
    inner = make(60).model.inner
    batch = puzzles.rows(0, 50)
    right = solve(inner, batch)[:, :-1] == batch.labels[:, :-1]
    found = evaluate(inner, puzzles)
    assert found.exact_accuracy == pytest.approx(right.all(-1).double().mean().item())
    assert found.cell_accuracy == pytest.approx(right.double().mean().item())


def test_it_runs_every_step_of_the_evaluation_mode(make, batch_at) -> None:
    """The same predictions as the halting model stepped by hand with nobody halting early."""
    model = make(20).model
    batch = batch_at(5)
    carry = model.refill(model.initial_carry(6), batch)
    with torch.no_grad():
        for _ in range(4):
            assert not carry.steps.eq(4).any()
            carry, output = model(carry, model.inner.puzzle_rows(batch.puzzle_identifiers), None)
    assert carry.halted.all()
    assert torch.equal(solve(model.inner, batch), output.logits.argmax(-1))


def test_weights_can_be_swapped_and_training_state_stays(make, puzzles) -> None:
    state = make(20)
    before = state.params.buffer.clone()
    ema = solve(state.model.inner, puzzles.rows(0, 50), state.eval_weights())
    assert torch.equal(state.params.buffer, before)
    state.params.buffer.copy_(state.ema.buffer)
    assert torch.equal(solve(state.model.inner, puzzles.rows(0, 50)), ema)


def test_a_gpu_is_not_judged_by_a_part_that_takes_as_long_as_the_whole() -> None:
    assert _first_chunk(128, 1024, torch.device("cuda")) == 128
    assert _first_chunk(5000, 1024, torch.device("cuda")) == 1024
    assert _first_chunk(128, 1024, torch.device("cpu")) == 7
