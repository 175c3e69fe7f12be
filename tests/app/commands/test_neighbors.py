"""What other runs and accounts of a store cost a command: few requests for a name, and details side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.core.runs.registered import READERS
from storage.base import Ref, Stat, Store
from tests.app.cli import Desk, wrap_stores
from tests.storage.counting import CountingStore

NEIGHBORS = 24
A_RUN = 8
"""Most requests for the newest state of a run."""


class Busy(CountingStore):
    """Counts requests, and how many point reads are under way at the same time."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reading, self.most = 0, 0

    def stat(self, ref: Ref) -> Stat:
        with self._under_way():
            return super().stat(ref)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        with self._under_way():
            return super().get(ref, limit=limit)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        with self._lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        try:
            time.sleep(0.001)  # so that others come in between
            yield
        finally:
            with self._lock:
                self.reading -= 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A store with many runs; one account has trained in one of them."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    for number in range(NEIGHBORS):
        desk("init", "--run", f"{number:05}_{'abcdefgh'[number % 8] * (number % 7 + 3)}", "--ephemeral")
    return desk


def asked(desk: Desk, monkeypatch: pytest.MonkeyPatch, *words: str, code: int | None = 0) -> Busy:
    """The requests of one command."""
    made: list[Busy] = []
    wrap_stores(monkeypatch, lambda store: made.append(Busy(store)) or made[-1])  # type: ignore[func-returns-value]
    desk(*words, code=code)
    monkeypatch.undo()
    return max(made, key=lambda one: one.total)


UNKNOWN = ["status", "next", "plan", "report", "verify", "doctor", "export", "stop", "evaluate", "gc", "invite"]


@pytest.mark.slow
@pytest.mark.parametrize("command", UNKNOWN)
def test_naming_the_neighbors_of_an_unknown_run_reads_none_of_them(
    crowded: Desk, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    found = asked(crowded, monkeypatch, command, "--run", "nosuchrun", code=None)
    known = 110 if command == "doctor" else 60  # a self-test, and the speed
    assert 0 < found.total < known, found.counts


@pytest.mark.slow
def test_a_list_of_runs_reads_them_side_by_side(crowded: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.active_count()
    found = asked(crowded, monkeypatch, "runs", "list")
    assert found.total <= A_RUN * NEIGHBORS + 60, found.counts
    assert 2 <= found.most <= READERS and threading.active_count() <= others, "no reader is left"


@pytest.mark.slow
def test_what_accounts_did_in_other_runs_is_read_side_by_side(crowded: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(crowded.folder)
    desk.train(4, run="trained")
    for command in ("report", "next", "accounts list"):
        found = asked(desk, monkeypatch, *command.split(), "--run", "trained")
        assert found.total <= A_RUN * (NEIGHBORS + 1) + 80, found.counts
        assert 2 <= found.most <= READERS
    row = desk("accounts", "list", "--run", "nosuchrun", "--json").json["accounts"][0]
    assert (row["id"], row["steps"]) == ("account_1", 4)
    assert asked(desk, monkeypatch, "status", "--run", "trained").total < 60, "a status shows no account"


@pytest.mark.slow
def test_accounts_are_read_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    names = [f"account_{number:02}" for number in range(NEIGHBORS)]
    for name in names:
        desk("register", name, f"Machine of {name}", "--owner", f"Owner {name}", "--provider", "lab")
    found = asked(desk, monkeypatch, "accounts", "list")
    assert 2 <= found.most <= READERS
    assert [row["id"] for row in desk("accounts", "list", "--json").json["accounts"]] == names
