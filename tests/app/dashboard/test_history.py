"""Commits read back from the newest entry: each slot once, only the bases of the newest state, both lines right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.app.dashboard.curves import fold
from relay.app.dashboard.history import CommitEvent, Commits, Event, RewindEvent
from relay.app.dashboard.sessions import standing_steps
from relay.core.errors import StorageUnreachable
from relay.core.ledger.changes import KINDS, Commit, Rewind
from relay.core.ledger.entry import decode
from storage.base import Ref, Unavailable
from storage.memory import MemoryStore
from storage.wrapper import Wrapper
from tests.core.making import NAMES, Client, begun, checkpoint, forged, overwrite, raw


def commit(client: Client, step: int, **more: Any) -> None:
    metrics = {"lm_loss": 1.0 / step}
    client.append("commit", lambda _: Commit(checkpoint=checkpoint(step, client.epoch), metrics=metrics, **more))


def rolled_back(store: MemoryStore) -> Client:
    """Five commits, then damage: 200 steps are trained again by another session, and 100 more."""
    _, first = begun(store)
    for step in (100, 200, 300, 400, 500):
        commit(first, step, seconds=float(step))
    first.release(seconds=500.0)
    second = Client(store, 2, "account_2")
    second.lease()
    bad = ((400, first.epoch), (500, first.epoch))
    second.append("rewind", lambda _: Rewind(damaged=bad, to=(300, first.epoch), evidence="damaged"))
    for step in (400, 500, 600):
        commit(second, step, seconds=float(step - 300))
    return second


def test_a_rollback_of_200_steps_loses_none_and_doubles_none() -> None:
    client = rolled_back(MemoryStore())
    view = client.ledger.read()
    commits = Commits(client.ledger)
    commits.read(view, lambda: True)
    line, redone = fold(commits.events)
    assert [one.step for one in line] == [100, 200, 300, 400, 500, 600]
    assert [one.epoch for one in line] == [1, 1, 1, 2, 2, 2]
    assert [(one.step, one.epoch) for one in redone] == [(400, 1), (500, 1)]
    stands = standing_steps(view.state.links)
    assert stands == {1: 300, 2: 300} and sum(stands.values()) == view.state.step == 600


def test_right_after_the_rollback_nothing_stands_beyond_it() -> None:
    line, redone = fold([done(100, 1), done(200, 2), done(300, 3), RewindEvent(4, 100)])
    assert [one.step for one in line] == [100] and [one.step for one in redone] == [200, 300]


class Counting(Wrapper):
    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.read: list[str] = []

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        self.read.append(ref)
        return super().read_range(ref, start, length)


class Away(Wrapper):
    """A store that is away now and then."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.left = 10**9
        """Reads until it is away for one."""

    def read_range(self, ref: Ref, start: int, length: int) -> bytes:
        self.left -= 1
        if self.left < 0:
            self.left = 10**9
            raise Unavailable("away for a moment")
        return super().read_range(ref, start, length)


@pytest.mark.parametrize("left", [0, 1, 4, 9])
def test_a_read_that_fails_is_made_again_and_nothing_before_it_is_lost(left: int) -> None:
    inner = MemoryStore()
    rolled_back(inner)
    whole, store = Commits(Client(inner, 3).ledger), Away(inner)
    view = Client(inner, 3).ledger.read()
    whole.read(view, lambda: True)
    commits = Commits(Client(store, 4).ledger)
    store.left = left
    with pytest.raises(StorageUnreachable):
        commits.read(view, lambda: True)
    commits.read(view, lambda: True)
    assert commits.events == whole.events and not commits.unread


def test_each_slot_is_read_once_and_then_only_new_ones_bit_by_bit() -> None:
    inner = MemoryStore()
    writer = rolled_back(inner)
    store = Counting(inner)
    reader = Client(store, 3)
    view = reader.ledger.read()
    commits, turns = Commits(reader.ledger), 0
    store.read.clear()
    while True:
        budget = iter((True, True, True, False))
        commits.read(view, lambda budget=budget: next(budget))  # type: ignore[misc]
        turns += 1
        if not commits.unread:
            break
    assert turns > 3 and len(store.read) == len(set(store.read)) == view.seq + 1
    assert len(commits.events) == 9
    store.read.clear()
    commit(writer, 700)
    view = reader.ledger.read()
    store.read.clear()
    commits.read(view, lambda: True)
    assert len(store.read) == 1 and [e.step for e in commits.events][-1] == 700


def test_an_outsider_s_commit_is_not_drawn_and_a_damaged_entry_is_told() -> None:
    store = MemoryStore()
    client = rolled_back(store)
    last = client.ledger.read()
    data = raw(store, last.seq)
    change = Commit(checkpoint=checkpoint(9_999, client.epoch)).model_dump(mode="json")
    entry = decode(data, KINDS, last.seq)
    store.put_if_absent(f"{NAMES.ledger}{last.seq + 1:020d}.json", forged(data, entry, kind="commit", change=change))
    commit(client, 700)
    overwrite(store, 3, b"rotten")
    reader = Client(store, 4)
    commits = Commits(reader.ledger)
    commits.read(reader.ledger.read(), lambda: True)
    line, _ = fold(commits.events)
    assert [one.step for one in line] == [100, 300, 400, 500, 600, 700]  # slot 3 was the commit of step 200
    assert commits.unreadable == 1


def done(step: int, slot: int = 0, epoch: int = 1) -> CommitEvent:
    return CommitEvent(slot, step, epoch, 0.0, 0.0, "", {})


@given(st.lists(st.one_of(st.builds(done, st.integers(1, 50)), st.builds(RewindEvent, st.just(0), st.integers(0, 50)))))
def test_the_line_only_grows_and_every_commit_is_in_one_of_the_two(events: list[Event]) -> None:
    line, redone = fold(events)
    steps = [one.step for one in line]
    assert steps == sorted(set(steps))
    made = [event for event in events if isinstance(event, CommitEvent)]
    assert sorted(map(id, [*line, *redone])) == sorted(map(id, made))
