"""Batches as a pure function of (seed, step)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.facts import raising
from trm.data import augment
from trm.data.dataset import IGNORE, Batch, Dataset

ROOT = Path(__file__).parents[3]


def numbered(size: int) -> Dataset:
    """Puzzle i carries i in its two cells, so that a batch shows which puzzles it holds."""
    index = torch.arange(size)
    tokens = torch.stack((index // 200 + 1, index % 200 + 1), dim=1).to(torch.uint8)
    return Dataset(tokens, tokens, vocab_size=201)


def indices(batch: Batch) -> list[int]:
    return ((batch.inputs[:, 0] - 1) * 200 + batch.inputs[:, 1] - 1).tolist()


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 50), batch_size=st.integers(1, 70), seed=st.integers(0, 2**31 - 1))
def test_every_puzzle_comes_once_an_epoch(size: int, batch_size: int, seed: int) -> None:
    data = numbered(size)
    steps = -(-3 * size // batch_size)
    seen = [index for step in range(steps) for index in indices(data.batch_at(seed, step, batch_size))]
    for epoch in range(3):
        assert sorted(seen[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_epochs_and_seeds_differ_in_order() -> None:
    data = numbered(40)
    orders = {tuple(indices(data.batch_at(seed, epoch, 40))) for seed in (0, 1) for epoch in range(5)}
    assert len(orders) == 10


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.integers(0, 60), min_size=1, max_size=20))
def test_a_batch_does_not_depend_on_earlier_calls(steps: list[int]) -> None:
    used = numbered(30)
    for step in steps:
        assert indices(used.batch_at(1, step, 8)) == indices(numbered(30).batch_at(1, step, 8))


def test_five_sessions_read_what_one_reads() -> None:
    one = [indices(numbered(33).batch_at(3, step, 8)) for step in range(20)]
    five = []
    for session in range(5):
        data = numbered(33)
        five += [indices(data.batch_at(3, step, 8)) for step in range(4 * session, 4 * session + 4)]
    assert five == one


def test_far_steps_cost_no_more_memory() -> None:
    data = numbered(30)
    for step in range(0, 10**9, 10**8):
        data.batch_at(0, step, 64)
    assert len(data._orders) <= 3


def test_shapes_types_and_ignored_labels() -> None:
    inputs = torch.tensor([[1, 2, 0], [2, 1, 0]], dtype=torch.uint8)
    labels = torch.tensor([[3, 2, 0], [2, 3, 0]], dtype=torch.uint8)
    data = Dataset(inputs, labels, vocab_size=4)
    assert (data.size, data.seq_len, data.vocab_size, data.num_identifiers) == (2, 3, 4, 1)
    batch = data.rows(0, 5)
    assert batch.labels.tolist() == [[3, 2, IGNORE], [2, 3, IGNORE]]
    assert batch.inputs.tolist() == inputs.tolist()
    for tensor in (batch.inputs, batch.labels, batch.puzzle_identifiers, data.batch_at(0, 0, 5).inputs):
        assert tensor.dtype == torch.int32
    assert data.batch_at(0, 0, 5).puzzle_identifiers.tolist() == [0] * 5


def test_rows_are_not_augmented_and_in_order() -> None:
    tokens = torch.randint(1, 6, (7, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data = Dataset(tokens, tokens, 6, augment.sudoku)
    assert torch.equal(torch.cat([data.rows(start, 3).inputs for start in (0, 3, 6)]), tokens.to(torch.int32))
    assert not torch.equal(data.batch_at(0, 0, 7).inputs.sort(dim=0).values, tokens.sort(dim=0).values)


@pytest.mark.parametrize(
    ("inputs", "labels"), [((0, 16), (0, 16)), ((2, 16), (3, 16)), ((16,), (16,))], ids=["empty", "unequal", "flat"]
)
def test_refuses_arrays_that_are_no_puzzles(inputs: tuple[int, ...], labels: tuple[int, ...]) -> None:
    with raising(ValueError, inputs, labels):
        Dataset(torch.ones(inputs), torch.ones(labels), 6)


def test_content_hash_is_of_the_tokens() -> None:
    tokens = torch.ones(2, 16, dtype=torch.uint8)
    same = Dataset(tokens.clone(), tokens, 6, augment.sudoku)
    other = tokens.clone()
    other[1, 3] = 2
    assert Dataset(tokens, tokens, 6).content_hash == same.content_hash
    hashes = {Dataset(a, b, 6).content_hash for a, b in ((tokens, tokens), (other, tokens), (tokens, other))}
    assert len(hashes) == 3
    assert Dataset(tokens, tokens, 7).content_hash not in hashes


@pytest.mark.slow
def test_another_process_reads_the_same_batch() -> None:
    """The hash was written down from a third one."""
    code = """
import hashlib
from trm.data import augment, sudoku4
from trm.data.dataset import Dataset
train = sudoku4.build(300)[0]
batch = Dataset(*train, 6, augment.sudoku).batch_at(5, 77, 32)
print(hashlib.sha256(bytes(batch.inputs.flatten().tolist() + batch.labels.flatten().tolist())).hexdigest())
"""
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert printed.strip() == "7c528390d42c4da439e5a3a70b9bcab621b9828170b2bbdffa5debe6ee8d8c49"
