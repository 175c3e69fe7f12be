"""The changes that each kind of entry makes to a run, its holder, links, failures and usage (I4, I5, P5, P10, P12)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from relay.core.ledger.canonical import dumps
from relay.core.ledger.changes import Commit, Lease, Noted, Refused, Release, Resume, Retire, Rewind, TookOver
from relay.core.ledger.entry import Entry, encode
from relay.core.ledger.frozen import (
    MAX_ACCOUNTS,
    MAX_ENTRY_BYTES,
    MAX_FAILURES,
    MAX_FURTHER,
    MAX_GPUS,
    MAX_INCIDENTS,
    MAX_INTERVALS,
    MAX_LINKS,
    MAX_RETAINED,
    MAX_RETIRED,
    MAX_SHARING,
)
from relay.core.ledger.rules import apply, links_to_archive
from relay.core.ledger.state import Failure, History, Incident, Link, NextDigest, Origin, Retired, RunState, Usage
from relay.core.names import Names
from tests.core.making import checkpoint, genesis, id_of
from tests.core.rulings import NOW, by, committed, do, leased, new, refused


def test_genesis_begins_once() -> None:
    state = new()
    assert (state.epoch, state.step, state.head, state.created) == (0, 0, None, NOW)
    refused(state, "genesis", genesis(), by(0), "begun already")
    refused(None, "genesis", genesis(), by(1), "epoch 0")
    refused(None, "lease", Lease(), by(1), "not begun")


def test_a_fork_begins_at_its_own_copy_of_a_checkpoint() -> None:
    origin = Origin(project="p", run="r", entry="e" * 64, step=50, state_hash="b" * 64)
    state = do(None, "genesis", genesis(origin=origin, head=checkpoint(50, 0, metric=0.5)), by(0))
    assert (state.step, state.head and state.head.key, state.best) == (50, (50, 0), (50, 0))
    unmeasured = do(None, "genesis", genesis(origin=origin, head=checkpoint(50, 0)), by(0))
    assert unmeasured.best is None, "nothing is best that was never measured"
    refused(None, "genesis", genesis(origin=origin), by(0), "both an origin and a checkpoint")
    refused(None, "genesis", genesis(origin=origin, head=checkpoint(50, 3)), by(0), "epoch 3")


def test_i4_epochs_grow_by_one_per_lease_and_never_reset() -> None:
    state = leased(new())
    for epoch in (0, 1, 3):
        refused(state, "lease", Lease(took_over=TookOver(epoch=1, reason="x", seconds=0)), by(epoch), "does not follow")
    released = do(state, "release", Release(reason="budget"), by(1))
    assert (released.epoch, released.holder) == (1, None)
    refused(released, "lease", Lease(), by(1), "does not follow")
    assert leased(released).epoch == 2


def test_a_lease_over_a_holder_says_how_it_was_found_dead_and_counts_its_time() -> None:
    state = leased(new())
    refused(state, "lease", Lease(), by(2), "another session than the holder")
    wrong = TookOver(epoch=7, reason="silent", seconds=1.0)
    refused(state, "lease", Lease(took_over=wrong), by(2), "another session than the holder")
    refused(new(), "lease", Lease(took_over=wrong), by(1), "another session than the holder")
    after = leased(state, session=2, account="ben", at=NOW + 500)
    assert after.deaths == 1
    assert (after.links[0].end, after.links[0].seconds, after.links[0].ended) == ("silent", 50.0, NOW + 500)
    assert (after.usage["ana"].seconds, after.usage["ana"].intervals) == (50.0, ((int(NOW), int(NOW) + 50),))
    assert (after.usage["ben"].sessions, after.usage["ben"].seconds) == (1, 0.0)
    assert after.holder and after.holder.session == id_of(2)
    worked = leased(committed(state, 70), session=2, account="ben", at=NOW + 500)
    assert worked.links[0].seconds == worked.usage["ana"].seconds == 70.0, "its newest commit is a later sign of life"


def test_a_lease_needs_an_account() -> None:
    refused(new(), "lease", Lease(), by(1, account=None), "no account")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("commit", Commit(checkpoint=checkpoint(20, 1))),
        ("retire", Retire()),
        ("rewind", Rewind(damaged=((10, 1),), to=(5, 1), evidence="x")),
        ("release", Release(reason="budget")),
        ("incident", Noted(cause="c", text="t", step=0, failure=Failure(
            cause="c", step=1, config_hash="0" * 64, fingerprint="0" * 64))),
    ],
)  # fmt: skip
def test_i5_only_the_current_session_writes(kind: str, change: BaseModel) -> None:
    state = committed(leased(new()), 5, 10)
    refused(state, kind, change, by(1, session=9), "does not hold the lease")
    refused(state, kind, change, by(1, account="ben"), "does not hold the lease")
    refused(state, kind, change, by(0), "does not hold the lease|not the run's epoch")
    refused(leased(state, session=2), kind, change, by(1), "does not hold the lease|not the run's epoch")
    ended = do(state, "release", Release(reason="budget"), by(1))
    refused(ended, kind, change, by(1), "does not hold the lease")


def test_a_release_ends_the_link_and_names_a_successor() -> None:
    state = committed(leased(new()), 10)
    after = do(state, "release", Release(reason="budget", next="ben", seconds=300.0), by(1, at=NOW + 300))
    assert (after.holder, after.next, after.links[-1].end, after.links[-1].ended) == (None, "ben", "budget", NOW + 300)
    assert after.usage["ana"].seconds == 300.0
    assert leased(after, account="ben").next is None


def failure(step: int = 7, fingerprint: str = "1" * 64, cause: str = "non-finite") -> Failure:
    return Failure(cause=cause, step=step, config_hash="c" * 64, fingerprint=fingerprint)


def fail(state: RunState, what: Failure) -> RunState:
    noted = Noted(cause=what.cause, text="loss is nan", step=what.step, failure=what)
    return do(state, "incident", noted, by(state.epoch))


def test_the_same_failure_twice_halts_the_run_with_advice() -> None:
    state = fail(leased(new()), failure())
    assert state.halted is None and state.incidents[-1].text == "loss is nan"
    other = fail(state, failure(fingerprint="2" * 64))
    assert other.halted is None, "another machine's failure is another failure"
    halted = fail(other, failure())
    assert halted.halted and "learning rate" in halted.halted and "fork" in halted.halted
    ended = do(halted, "release", Release(reason="failed"), by(1))
    refused(ended, "lease", Lease(), by(2), "halted")
    resumed = do(ended, "resume", Resume(why="new driver"), by(1, session=9, account=None))
    assert (resumed.halted, resumed.failures) == (None, ())
    assert leased(resumed).epoch == 2
    refused(resumed, "resume", Resume(), by(1), "not halted")


def test_one_nan_seen_at_the_snapshots_of_faster_and_slower_sessions_is_one_failure() -> None:
    state = fail(leased(new()), failure(step=734))
    assert fail(state, failure(step=667)).halted
    crashed = fail(leased(new()), failure(cause="crash", step=734))
    assert fail(crashed, failure(cause="crash", step=667)).halted is None, "a crash happens where it is seen"


def test_a_commit_between_two_equal_failures_forgets_the_first() -> None:
    state = committed(fail(leased(new()), failure()), 5)
    assert (state.failures, state.deaths) == ((), 0)
    assert fail(state, failure()).halted is None


def test_anybody_may_note_an_incident_in_the_current_epoch() -> None:
    state = do(leased(new()), "incident", Noted(cause="skew", text="90 s", step=3), by(1, session=8, account=None))
    assert (state.incidents[-1].cause, state.incidents[-1].step, state.incidents_total) == ("skew", 3, 1)
    refused(state, "incident", Noted(cause="skew", text="", step=3), by(0, session=8), "not the run's epoch")


def test_void_entries_are_an_incident_of_the_next_one() -> None:
    state = do(leased(new()), "commit", Commit(checkpoint=checkpoint(5, 1)), by(1), (4, 5))
    assert (state.step, state.incidents[-1].cause, state.incidents_total) == (5, "void-entry", 1)
    assert "slots 4 to 5" in state.incidents[-1].text


def test_full_links_must_go_to_a_history_object() -> None:
    state = new()
    for number in range(MAX_LINKS):
        assert links_to_archive(state) == ()
        state = leased(state, at=NOW + 60 * number)
    moved = links_to_archive(state)
    assert moved == state.links[: MAX_LINKS // 2]
    dead = TookOver(epoch=state.epoch, reason="silent", seconds=1.0)
    refused(state, "lease", Lease(took_over=dead), by(state.epoch + 1), "history object exactly when")
    short = History(ref="x", sha256="0" * 64, links=1)
    refused(state, "lease", Lease(took_over=dead, history=short), by(state.epoch + 1), "does not hold the links")
    history = History(ref="x", sha256="0" * 64, links=len(moved))
    after = leased(state, history=history)
    assert (after.history, after.links[0].epoch, after.links_total) == (history, 51, MAX_LINKS + 1)
    early = leased(new())
    refused(early, "lease", Lease(took_over=dead.model_copy(update={"epoch": 1}), history=short), by(2), "exactly when")


def test_a_run_has_room_for_many_accounts_and_says_when_it_is_full() -> None:
    state = new()
    some = leased(state).usage["ana"]
    full = state.model_copy(update={"usage": {f"account_{n}": some for n in range(MAX_ACCOUNTS)}})
    refused(full, "lease", Lease(), by(1, account="one_more"), "accounts have trained")
    assert leased(full, account="account_7").epoch == 1


@pytest.mark.parametrize("kind", ["lease", "commit", "retire", "rewind", "release", "incident", "resume", "genesis"])
def test_a_malformed_change_is_refused_not_a_crash(kind: str) -> None:
    state = committed(leased(new()), 10)
    changes: tuple[dict[str, Any], ...] = ({"unknown": 1}, {"ttl_s": "180"}, {"checkpoint": 3}, {"x": float("nan")})
    for change in changes:
        with pytest.raises(Refused) as error:
            apply(None if kind == "genesis" else state, kind, change, by(1))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("kinds", [0, MAX_ACCOUNTS // 2, MAX_ACCOUNTS, MAX_ACCOUNTS + MAX_FURTHER])
def test_the_largest_state_there_can_be_fits_into_an_entry(kinds: int, shares: bool) -> None:
    """`kinds`: of GPU, over all accounts; they take the room of intervals. `shares`: checkpoints borrow files."""
    wide, long = "\U0001f600" * 500, "x" * 200
    head = checkpoint(2**53 - 1, 2**53 - 1, names=Names("p" * 64, "r" * 64), ref=long, committed_at=1.7e9 + 1 / 7)
    head = head.model_copy(update={"next": NextDigest(step=2**53 - 1, path=long, digest="d" * 64), "metric": 1 / 3})
    head = head.model_copy(update={"base": head.key}) if shares else head
    at, step = 1.7e9 + 1 / 7, 2**53 - 1
    link = Link(epoch=step, account="a" * 64, from_step=step, to_step=step, commits=step, certified="not-exact",
                why=wide, started=at, seconds=1e6 / 7, ended=at, end=wide, gpu="G" * 22)  # fmt: skip
    room = MAX_INTERVALS - kinds * 3 // 2
    spans = [room // MAX_ACCOUNTS + (n < room % MAX_ACCOUNTS) for n in range(MAX_ACCOUNTS)]
    rows = [kinds // MAX_ACCOUNTS + (n < kinds % MAX_ACCOUNTS) for n in range(MAX_ACCOUNTS)]
    full = leased(new()).model_copy(
        update={
            "origin": Origin(project="p" * 64, run="r" * 64, entry="e" * 64, step=step, state_hash="b" * 64),
            "head": head,
            "retained": (head,) * (MAX_SHARING if shares else MAX_RETAINED),
            "retired": (Retired(step=step, epoch=step, at=at),) * MAX_RETIRED,
            "best": head.key,
            "metrics": {f"{n:064d}": 1 / 3 for n in range(32)},
            "links": (link,) * MAX_LINKS,
            "usage": {
                f"{n:064d}": Usage(
                    sessions=999,
                    steps=10**6,
                    seconds=1e6 / 7,
                    intervals=((10**9, 10**9 + 1),) * span,
                    by_gpu=((7, 10**6, 10**6),) * rows[n],
                )
                for n, span in enumerate(spans)
            },
            "gpus": tuple(f"{n:022d}" for n in range(MAX_GPUS)),
            "incidents": (Incident(at=at, epoch=step, step=step, account="a" * 64, cause=wide, text=wide),)
            * MAX_INCIDENTS,
            "failures": (Failure(cause=wide, step=step, config_hash="c" * 64, fingerprint="f" * 64),) * MAX_FAILURES,
            "halted": wide[:50],
        }
    )
    change = Commit(checkpoint=head, certified="unknown", why=wide, metrics=full.metrics)
    plain = {"seq": step, "base": step - 1, "parent": "f" * 64, "nonce": id_of(1), "kind": "commit"}
    rest = {"session": id_of(2), "account": "a" * 64, "epoch": step, "at": at}
    both = {"change": change.model_dump(mode="json"), "state": full.model_dump(mode="json")}
    assert 200_000 < len(encode(Entry.model_validate_json(dumps(plain | rest | both)))) <= MAX_ENTRY_BYTES
