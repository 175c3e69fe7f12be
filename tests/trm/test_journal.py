"""The journal of a large table: what is written, what is replayed to the same bits, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trm.journal import Chunk, Journal, Record, joined, packed, unpacked
from trm.optim import sign_sgd_

CPU = torch.device("cpu")


def trained(seed: int, steps: int, rows: int, width: int, batch: int, drain: int) -> tuple[Tensor, Tensor, list[Chunk]]:
    """A table before and after some steps of made-up gradients, and what was noted, taken every `drain` steps."""
    g = torch.Generator().manual_seed(seed)
    table = torch.randn(rows, width, generator=g)
    before, journal, chunks = table.clone(), Journal(batch, width, CPU, 7), list[Chunk]()
    for step in range(steps):
        ids = torch.randint(0, rows, (batch,), generator=g, dtype=torch.int32)
        grads = torch.randn(batch, width, generator=g) * torch.randint(0, 2, (batch, width), generator=g)
        grads[batch // 2 :] *= -1 if step % 2 else 1e-30
        lr, decay = 0.01 * (step + 1) / 3, 0.1
        journal.open(lr, decay)
        journal.note(ids, sign_sgd_(table, ids, grads, torch.tensor(lr, dtype=torch.float64), decay))
        if (step + 1) % drain == 0 or journal.full:
            chunks.append(journal.take())
    return before, table, [*chunks, journal.take()]


SMALL = st.integers(1, 9)


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(0, 40), SMALL, SMALL, st.integers(1, 7), SMALL)
@settings(max_examples=60, deadline=None)
def test_a_replay_gives_the_same_bits(seed: int, steps: int, rows: int, width: int, batch: int, drain: int) -> None:
    before, after, chunks = trained(seed, steps, rows, width, batch, drain)
    record = joined([chunk.record for chunk in chunks], width)
    assert chunks[0].start == 7 and chunks[-1].stop == 7 + steps
    record.check((rows, width))
    assert record.steps == steps and record.bytes == sum(c.record.bytes for c in chunks)
    record.replay(before)
    assert torch.equal(before.view(torch.int32), after.view(torch.int32))
    if steps > 1:  # in two parts, the first of them read again
        half = joined([chunks[0].record], width)
        rest = joined([Chunk(7, half).record, *(c.record for c in chunks[1:])], width)
        assert all(torch.equal(getattr(rest, name), value) for name, value in vars(record).items())


ODD = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 1e18, -1e18, 0.1, -0.3])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_replay_gives_the_same_bits_of_odd_values_too(data: st.DataObject) -> None:
    """Zeros of both signs, subnormals, a rate of 0 (warm-up), with and without decay, a row many times in a step."""
    rows, width, batch, steps = (data.draw(st.integers(1, 5)) for _ in range(4))

    def drawn(count: int) -> Tensor:
        return torch.tensor(data.draw(st.lists(ODD, min_size=count * width, max_size=count * width))).view(count, width)

    table, journal = drawn(rows), Journal(batch, width, CPU, 0)
    before = table.clone()
    for _ in range(steps):
        lr, decay = data.draw(st.sampled_from([0.0, 1e-2, 1e-45, 0.123])), data.draw(st.sampled_from([0.0, 0.1, 1 / 3]))
        ids = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=batch, max_size=batch)))
        rate = data.draw(st.sampled_from([lr, torch.tensor(lr, dtype=torch.float64)]))
        journal.open(lr, decay)
        journal.note(ids, sign_sgd_(table, ids, drawn(batch), rate, decay))
    record = journal.take().record
    record.check((rows, width))
    record.replay(before)
    assert torch.equal(before.view(torch.int32), table.view(torch.int32))


@given(st.integers(1, 30), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_signs_are_two_bits_an_element(width: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    sign = torch.randint(-1, 2, (5, width), generator=g).float()
    assert packed(sign).shape == (5, -(-width // 4)) and torch.equal(unpacked(packed(sign), width), sign)


def test_the_buffer_says_when_it_is_full_and_is_bounded() -> None:
    journal = Journal(4096, 512, CPU, 0)
    assert journal.room * 4096 * 132 <= 2 * (32 << 20)
    steps = 0
    while not journal.full:
        journal.open(0.1, 0.1)
        steps += 1
    assert steps == journal.room
    assert journal.take().stop == steps and not journal.full


def test_a_step_that_is_replayed_in_a_graph_writes_into_its_own_slot() -> None:
    """The place is read from the device's memory, so that a captured step needs no other code for each."""
    journal = Journal(2, 4, CPU, 0)
    for ids in ([1, 1], [2, 3]):
        journal.open(0.1, 0.0)
        for _ in range(3):  # a warm-up writes where the step itself will
            journal.note(torch.tensor(ids), torch.ones(2, 4))
    record = journal.take().record
    assert record.counts.tolist() == [1, 2] and record.rows.tolist() == [1, 2, 3]


def test_a_chunk_is_asked_for_on_many_threads_and_lets_the_device_go() -> None:
    chunk = trained(1, 5, 4, 4, 3, 100)[2][0]
    assert chunk.bytes >= chunk.record.bytes
    assert chunk.record is chunk.record and isinstance(chunk._steps, Record)
    assert chunk.bytes == chunk.record.bytes


def good() -> Record:
    return joined([chunk.record for chunk in trained(3, 6, 5, 6, 4, 100)[2]], 6)


def with_value(name: str, place: int, value: float) -> Callable[[Record], Record]:
    def change(record: Record) -> Record:
        tensor = getattr(record, name).clone()
        tensor.view(-1)[place] = value
        return replace(record, **{name: tensor})

    return change


HOSTILE: dict[str, Callable[[Record], Record]] = {
    "a row below the table": with_value("rows", 0, -1),
    "a row above the table": with_value("rows", 0, 5),
    "a row far away": with_value("rows", -1, 2**31 - 1),
    "a row twice in a step": lambda r: replace(r, rows=torch.zeros_like(r.rows)),
    "counts that add up to more": with_value("counts", 0, 9),
    "a negative count": lambda r: replace(r, counts=torch.tensor([-1, r.counts.sum() + 1]), rates=r.rates[:2]),
    "a sign that is none": with_value("signs", 3, 2),
    "a rate that is not finite": with_value("rates", 2, float("nan")),
    "too few rates": lambda r: replace(r, rates=r.rates[:-1]),
    "rates of another shape": lambda r: replace(r, rates=r.rates.flatten()),
    "signs of another width": lambda r: replace(r, signs=r.signs[:, :1]),
    "fewer rows": lambda r: replace(r, rows=r.rows[:-1]),
    "rows of two dimensions": lambda r: replace(r, rows=r.rows[None]),
    "very many steps": lambda r: replace(
        r, counts=torch.zeros(10**6 + 1, dtype=torch.int32), rates=torch.zeros(10**6 + 1, 2), rows=r.rows[:0],
        signs=r.signs[:0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_journal_that_cannot_be_replayed_is_refused(what: str) -> None:
    good().check((5, 6))
    with pytest.raises(ValueError, match=r"."):
        HOSTILE[what](good()).check((5, 6))
