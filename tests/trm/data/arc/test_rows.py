"""Batches of ARC data: functions of (seed, step), groups uniform, puzzles whole, pairs distinct."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from relay.torch.peers import Peers
from tests.trm.data.arc import files
from trm.data.arc import generate
from trm.data.arc.rows import ArcData, held_out, of_build
from trm.data.arc.variants import build


@pytest.fixture(scope="module")
def data() -> ArcData:
    made = build(files.tasks((2, 2)), generate.TEST, 3, 10)
    return of_build(made, made.train)


def drawn(data: ArcData, seed: int, epoch: int) -> torch.Tensor:
    return data._visited(seed, epoch, 0, data.rows_each_epoch)


def test_a_batch_depends_on_seed_and_step_only(data: ArcData) -> None:
    """Not on earlier calls; and other seeds and steps give other batches."""
    made = build(files.tasks((2, 2)), generate.TEST, 3, 10)
    fresh = of_build(made, made.train)
    late = fresh.batch_at(5, 1000, 16)
    for step in range(995, 1000):
        data.batch_at(5, step, 16)
    for ours, again in zip(vars(data.batch_at(5, 1000, 16)).values(), vars(late).values(), strict=True):
        assert torch.equal(ours, again)
    inputs = [data.batch_at(seed, step, 16).inputs for seed, step in ((5, 1000), (6, 1000), (5, 1001))]
    assert not torch.equal(inputs[0], inputs[1]) and not torch.equal(inputs[0], inputs[2])


def test_batches_join_to_epochs_whatever_their_size(data: ArcData) -> None:
    """Every size of batch reads the same sequence, across epochs, without losing a row."""
    wanted = torch.cat([drawn(data, 1, epoch) for epoch in range(3)])
    for size in (7, 64, data.rows_each_epoch + 5):
        count = len(wanted) // size
        got = torch.cat([data.batch_at(1, step, size).inputs for step in range(count)])
        assert torch.equal(got, data._batch(wanted[: count * size]).inputs)


def test_an_epoch_visits_every_group_once_with_all_pairs_of_one_variant(data: ArcData) -> None:
    split = data.split
    for epoch in range(20):
        rows = drawn(data, 3, epoch).numpy()
        assert len(set(rows.tolist())) == len(rows)
        pairs, identifiers = split.where(rows)
        changes = np.flatnonzero(np.diff(identifiers)) + 1
        visits = np.split(np.arange(len(rows)), changes)
        assert len(visits) == data.visits
        seen = sorted(tuple(sorted(pairs[visit].tolist())) for visit in visits)
        assert seen == [tuple(range(low, high)) for low, high in zip(split.pairs[:-1], split.pairs[1:], strict=True)]


@pytest.mark.slow
def test_groups_variants_and_first_pairs_are_uniform(data: ArcData) -> None:
    """Chi-square over 10,000 visits of one place: the order of groups, their variants, the order of pairs."""
    split, epochs = data.split, 10_000 // 20
    firsts, variants, places = Counter[int](), Counter[int](), Counter[int]()
    for epoch in range(epochs):
        rows = drawn(data, 9, epoch).numpy()
        pairs, identifiers = split.where(rows)
        groups = np.searchsorted(split.pairs, pairs, side="right") - 1
        firsts[int(groups[0])] += 1
        starts = np.flatnonzero(np.diff(identifiers, prepend=-1))
        for at in starts:
            own = int(np.searchsorted(split.identifiers, identifiers[at])) - int(split.variants[groups[at]])
            variants[own] += 1
            places[int(pairs[at] - split.pairs[groups[at]])] += 1
    for counts, kinds in ((firsts, data.visits), (variants, 4)):
        total = sum(counts.values())
        chi = sum((counts[kind] - total / kinds) ** 2 / (total / kinds) for kind in range(kinds))
        assert chi < kinds - 1 + 5 * (2 * (kinds - 1)) ** 0.5, counts
    assert len(places) == 14 and max(places.values()) < 2 * min(places[place] for place in range(12))


def test_rows_of_processes_partition_the_batch(data: ArcData) -> None:
    """What each of N processes takes: together, in their order, they are the batch of one."""
    whole = data.batch_at(2, 17, 24)
    for size in (1, 2, 3, 4):
        parts = list[torch.Tensor]()
        for rank in range(size):
            peers = Peers.__new__(Peers)
            peers.rank, peers.size = rank, size
            parts.append(data.batch_at(2, 17, 24).inputs[peers.rows(24)])
        assert torch.equal(torch.cat(parts), whole.inputs)
    assert int(whole.puzzle_identifiers.min()) > 0, "blank is never trained on"


def test_groups_of_drawn_batches_are_uniform(data: ArcData) -> None:
    """Chi-square over 10,000 batches of 4: the group of the first row, and of all rows, in proportion to its pairs."""
    split, count, size = data.split, 10_000, 4
    epochs = -(-count * size // data.rows_each_epoch)
    rows = torch.cat([drawn(data, 9, epoch) for epoch in range(epochs)])[: count * size].numpy()
    groups = np.searchsorted(split.pairs, split.where(rows)[0], side="right") - 1
    for some in (groups[::size], groups):
        counts, expected = np.bincount(some, minlength=data.visits), len(some) * np.diff(split.pairs) / split.pairs[-1]
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert chi < data.visits - 1 + 5 * (2 * (data.visits - 1)) ** 0.5, counts


def test_held_out_pairs_leave_the_training_rows() -> None:
    made = build(files.tasks((2, 2)), generate.TEST, 3, 10)
    groups = np.array([0, 3])
    train, valid = held_out(made.train, groups)
    assert train.count == made.train.count - 2 * 4 and valid.count == 2
    every = of_build(made, made.train)
    known = {tuple(row) for row in of_build(made, train).rows(0, train.count).inputs.tolist()}
    for group, row in zip(groups, of_build(made, valid).rows(0, 2).inputs.tolist(), strict=True):
        place = int(made.train.rows[group] + np.diff(made.train.pairs)[group] - 1)
        assert made.train.where(np.array([place]))[0] == made.train.pairs[group + 1] - 1
        assert tuple(row) not in known
        grid = [token for token in every.rows(place, 1).inputs[0].tolist() if token >= 2]
        assert grid == [token for token in row if token >= 2], "the same grid, at the corner"
