"""One holder at a time: suspension past the lease, and many sessions racing on one store, as real processes."""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path

import pytest

from relay.core.ledger.frozen import SILENT
from tests.processes.field import RUN, Field, Session, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def content(field: Field) -> dict[Path, bytes]:
    """Every stored object but signs of life, which decide nothing; unfinished writes have no name."""
    paths = (path for path in field.store.rglob("[!.]*") if path.is_file())
    return {path: path.read_bytes() for path in paths if not path.name.startswith("heartbeat.")}


def suspended(field: Field, target: int, moment: str = "landed-commit", **toy: object) -> Session:
    """A session stopped like a laptop that is closed, while it trains or at a moment of a commit."""
    session = field.train(target, ttl_s=1, trace=1, **toy)
    session.until(moment)
    session.send(signal.SIGSTOP)
    return session


@pytest.mark.parametrize("moment", ["landed-commit", "before_put_weights.bin", "after_put_manifest"])
def test_i5_suspended_past_its_lease_and_superseded_it_is_fenced_and_writes_nothing(field: Field, moment: str) -> None:
    asleep = suspended(field, 10**9, moment, put_s=0.2)
    field.call(field.train(field.step() + 60, account="account_2", machine="two", ttl_s=1, wait_s=60))
    before, state = content(field), field.assert_whole()
    assert state.epoch == 2 and state.holder is None
    asleep.send(signal.SIGCONT)
    assert asleep.wait() == 76, asleep.err
    after = content(field)
    late = after.keys() - before.keys()
    assert all(f".e{state.epoch - 1}" in path.parent.name for path in late), "it finished writing what nobody names"
    assert {path: data for path, data in after.items() if path not in late} == before
    assert field.assert_whole() == state


def test_i5_the_later_holder_is_at_work_when_the_fenced_one_wakes(field: Field) -> None:
    asleep = suspended(field, 10**9)
    later = field.train(10**9, account="account_2", machine="two", ttl_s=30, wait_s=60)
    later.until("landed-commit")
    asleep.send(signal.SIGCONT)
    assert asleep.wait() == 76, asleep.err
    reached = field.step()
    until(lambda: field.step() > reached)
    later.send(signal.SIGTERM)
    assert later.wait() == 143
    assert [link.account for link in field.assert_whole().links] == ["account_1", "account_2"]


def test_suspended_past_its_lease_it_goes_on_if_nobody_took_over(field: Field) -> None:
    asleep = suspended(field, 400)
    time.sleep(2.0)
    asleep.send(signal.SIGCONT)
    field.call(asleep)
    assert field.assert_whole().step == 400 and field.assert_whole().epoch == 1


@pytest.mark.parametrize("racers", [2, 20])
def test_of_sessions_started_at_once_one_trains_and_the_others_touch_nothing(field: Field, racers: int) -> None:
    if racers == 2:
        field.call(field.train(10))  # a run that has begun; twenty race for a run that has not
    taken = field.step()
    sessions = [field.train(10**9, account=f"account_{n}", machine=f"m{n}", ttl_s=60) for n in range(racers)]
    until(lambda: sum(s.poll() is not None for s in sessions) == racers - 1, 120)
    winner = sessions[[s.code for s in sessions].index(None)]
    winner.until("landed-commit")
    winner.send(signal.SIGTERM)
    assert winner.wait() == 143, winner.err
    assert not [(s.code, s.err) for s in sessions if s is not winner and s.wait() != 73]
    assert [bool(s.noted("landed-lease")) for s in sessions] == [s is winner for s in sessions]
    state = field.assert_whole()
    assert state.epoch == state.links_total == 1 + (taken > 0) and state.step > taken and state.holder is None
    assert not [s for s in sessions if s is not winner and s.noted("step")], "nobody else trained"


@pytest.mark.parametrize("racers", [2, 8])
def test_with_wait_they_take_turns_and_nothing_is_lost(field: Field, racers: int) -> None:
    """Each wants to go to a step of its own; a session that finds it reached does nothing."""
    sessions = [
        field.train(
            20 * racers,
            *("--until-step", str(20 * (n + 1))),
            account=f"account_{n}",
            machine=f"m{n}",
            ttl_s=12,
            wait_s=200,
        )
        for n in range(racers)
    ]
    assert {session.wait(200) for session in sessions} <= {0, 75}
    state = field.assert_whole()
    assert state.step == 20 * racers and state.holder is None
    links = state.links
    assert [link.epoch for link in links] == list(range(1, len(links) + 1))
    assert all(link.to_step == following.from_step for link, following in itertools.pairwise(links))
    assert len({link.account for link in links}) == len(links), "each had at most one turn"


def test_killed_racers_are_replaced_and_one_epoch_has_one_holder(field: Field) -> None:
    sessions = [
        field.train(10**9, account=f"account_{n}", machine=f"m{n}", ttl_s=1, wait_s=200, every=5) for n in range(4)
    ]
    for _ in range(3):
        until(lambda: any(s.poll() is None and s.noted("landed-commit") for s in sessions), 60)
        holder = next(s for s in sessions if s.poll() is None and s.noted("landed-commit"))
        holder.kill()
    until(lambda: any(s.poll() is None and s.noted("landed-commit") for s in sessions), 60)
    sessions[[s.poll() for s in sessions].index(None)].send(signal.SIGTERM)
    assert sorted(session.wait() for session in sessions) == [-9, -9, -9, 143]
    state = field.assert_whole(RUN)
    assert state.epoch == state.links_total == 4 and [link.end for link in state.links[:3]] == [SILENT] * 3
