"""The number of sessions that fit into a store: from its sizes and retention, and honestly unknown otherwise."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from relay.app.checks.space import ENTRY, UNKNOWN_FREE, UNKNOWN_GROWTH, sessions_until_full
from relay.core.checkpoint.retention import ROOM, Keep
from relay.core.ledger.state import Checkpoint, Link, RunState
from tests.app.cli import Desk, advised

SIZE = 100_000_000
HASH = "a" * 64


def run(sessions: int, commits: int = 4, steps: int = 1000, retained: int = 3) -> RunState:
    """A run whose sessions each made so many steps and commits."""
    links = tuple(
        Link(
            epoch=n + 1,
            account="a",
            from_step=n * steps,
            to_step=(n + 1) * steps,
            commits=commits,
            started=0.0,
            end="x",
        )
        for n in range(sessions)
    )
    kept = tuple(
        Checkpoint(
            step=n + 1, epoch=1, manifest=f"m{n}", ref=f"m{n}", sha256=HASH, state_hash=HASH, bytes=SIZE, next=None
        )
        for n in range(retained if sessions else 0)
    )
    return RunState(
        project="p", run="r", run_id="0" * 32, ledger_store="0" * 32, checkpoint_store="0" * 32, config_hash=HASH,
        created=0.0, updated=0.0, epoch=sessions, links=links, retained=kept, head=kept[-1] if kept else None,
    )  # fmt: skip


def test_what_cannot_be_known_is_said_to_be() -> None:
    assert sessions_until_full(run(2), 9, None, Keep()) == (None, UNKNOWN_FREE)
    assert sessions_until_full(run(0), 1, 10**9, Keep()) == (None, UNKNOWN_GROWTH)
    assert sessions_until_full(run(2, commits=0), 5, 10**9, Keep()) == (None, UNKNOWN_GROWTH)


def test_without_room_for_the_checkpoints_of_an_hour_there_is_none_for_a_session() -> None:
    state = run(1)
    needed = SIZE * (1 + 4)  # one more retained than now, and four commits that must not be deleted for an hour
    assert sessions_until_full(state, 6, needed - 1, Keep())[0] == 0
    assert sessions_until_full(state, 6, needed + 6 * ENTRY, Keep())[0] == 1


def test_only_the_ledger_grows_where_nothing_is_kept_for_good() -> None:
    found, _ = sessions_until_full(run(10), 60, SIZE * 5 + 1000 * 6 * ENTRY, Keep())
    assert found == 1000


def test_every_nth_checkpoint_is_kept_until_retention_thins_them_out() -> None:
    state = run(4)
    free = SIZE * 5 + 10 * SIZE
    found, _ = sessions_until_full(state, 24, free, Keep(every=1000))
    assert found == 9, "one checkpoint a session, and its entries"
    bounded, _ = sessions_until_full(state, 24, SIZE * 5 + SIZE * ROOM + 500 * 6 * ENTRY, Keep(every=1000))
    assert bounded == 500, "retention keeps a bounded number, so that only the ledger grows in the end"


def test_a_session_says_before_it_trains_that_disk_or_store_are_nearly_full(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.train(3)
    assert "SPACE" not in desk.train(6).err
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, used=10**9 - 5000, free=5000))
    said = desk.train(9).err
    spaces = [line for line in said.splitlines() if line.startswith("SPACE: 0.0 MB ")]
    assert len(spaces) == 2 and "sync/" in spaces[0] + spaces[1]
    assert advised(said, "gc") == [["gc", "--run", "r", "--dry-run"]] and advised(said, "runs") == [["runs", "list"]]
    assert desk.status()["step"] == 9, "a warning only"
    for look in ("status", "report"):
        assert "SPACE: 0.0 MB" in desk(look, "--run", "r").err
