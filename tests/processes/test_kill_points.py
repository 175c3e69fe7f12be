"""SIGKILL at every named moment of a first start, a restore, a commit, a clean-up, a release and a resend.

Each session is killed at one moment, and the next one resumes by itself and is killed at the next: so every restart is
proved too. A session that never comes to its moment ends by itself, which fails the test.
"""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

from tests.processes.field import Field, Nursery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STAGES = ("halfway", "unnamed", "named", "after")
"""Of a write: half the bytes are there; all are, under no name; under their name, not yet durable; it has returned."""
FILES = ("state", "ema", "weights.bin")
BEGINNING = ("append identity", "append run", "append genesis", "put account", "append account", "append lease")


def stages(*writes: str) -> tuple[str, ...]:
    return tuple(f"{stage} {write}" for write in writes for stage in STAGES)


SAVING = (
    *("before outbox fresh", "after outbox fresh", "between saving state.json"),
    *("before outbox seal", "after outbox seal"),
)
SENDING = (*stages(*(f"put {file}" for file in FILES)), *(f"after read {file}" for file in FILES))
COMMITTING = (
    *(*stages("put manifest"), "before read manifest", "after read manifest"),
    *(*stages("append commit"), "before outbox remove", "after outbox remove"),
)
AFTERWARDS = (*stages("append retire", "put heartbeat", "append release"),)
DELETING = tuple(f"{when} delete {file}" for file in (*FILES, "manifest") for when in ("before", "after"))
RESTORING = (
    *("before append lease", *stages("append lease"), "before read manifest", "after read manifest"),
    *(f"{when} read {file}" for file in FILES for when in ("before", "after")),
    *("before outbox arrived", "before outbox seal", "after outbox arrived", "before load", "after load"),
    *("before outbox tidy", "after outbox tidy"),
)
RESENDING = (
    *("before outbox adopt", "before outbox fresh", "after outbox fresh", "before outbox seal", "after outbox seal"),
    *("after outbox adopt", *stages("put state", "put manifest", "append commit")),
)


def killed_at_each(field: Field, moments: tuple[str, ...], machines: tuple[str, ...]) -> None:
    """A chain of sessions, one a moment, each an hour of store time after the one before."""
    field.call(field.train(30, every=5, machine=machines[0]))
    before = 30
    turns = zip(moments, itertools.cycle(machines), itertools.count(1))
    for moment, machine, turn in turns:
        session = field.train(
            before + 60,
            account=f"account_{turn % 3}",
            machine=machine,
            every=15,
            ttl_s=0.9,
            wait_s=60,
            ahead_s=4000 * turn,
            kill_at=moment,
        )
        assert session.wait() == -signal.SIGKILL, f"never came to {moment!r}: {session.code}\n{session.err}"
        step = field.assert_whole().step
        assert step >= before, f"{moment}: went back from {before} to {step}"
        before = step
    end = before + 20
    field.call(field.train(end, machine=machines[0], wait_s=60, ahead_s=4000 * len(moments) + 4000))
    assert field.assert_whole().step == end


@pytest.mark.parametrize("write", BEGINNING)
def test_killed_at_each_moment_of_a_first_start(write: str, tmp_path: Path, nursery: Nursery) -> None:
    for stage in STAGES:
        field = Field(tmp_path / stage, nursery)
        assert field.train(20, kill_at=f"{stage} {write}").wait() == -signal.SIGKILL
        field.call(field.train(20, account="account_2"))
        assert field.assert_whole().step == 20


def test_killed_at_each_moment_of_a_restore(field: Field) -> None:
    killed_at_each(field, RESTORING, ("one", "one", "two"))


def test_killed_at_each_moment_of_saving_and_sending(field: Field) -> None:
    killed_at_each(field, SAVING + SENDING, ("one", "two", "two"))


def test_killed_at_each_moment_of_a_commit(field: Field) -> None:
    killed_at_each(field, COMMITTING, ("one", "two"))


def test_killed_at_each_moment_after_a_commit(field: Field) -> None:
    killed_at_each(field, AFTERWARDS, ("one", "two", "three"))


def test_killed_at_each_moment_of_a_clean_up(field: Field) -> None:
    """First a session retires checkpoints; the later ones delete them."""
    killed_at_each(field, ("after append release", *DELETING), ("one", "two", "three"))


def test_killed_at_each_moment_of_sending_again_what_a_killed_session_left(field: Field) -> None:
    """On one machine only: its outbox has a complete checkpoint that no entry names."""
    killed_at_each(field, ("halfway append commit", *RESENDING), ("one",))
