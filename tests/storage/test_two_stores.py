"""Ledger and checkpoints on different storage: sessions, a kill, gc, verify, fork; and either of the two silent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.core.names import Names
from storage.base import Store, open_store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, hurry, wrap_stores
from tests.storage.fakes.process import ROOT
from tests.storage.shared import SHARED, Shared

pytestmark = pytest.mark.slow

PROJECT, RUN = "sudoku_pretrain_multiaccount", "r"
STORES = [("local", "dropbox"), ("drive", "s3-ministack")]
"""Ledger and checkpoints: with and without a clock of its own, ids or names, each remote kind once."""
LEDGER, CHECKPOINTS = "RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE"


class Ahead(Wrapper):
    """Tells a time at which nobody reads any more what was given up."""

    def now(self) -> float:
        return self.inner.now() + 7200


class Two:
    """Two shared folders and one person's machine."""

    def __init__(self, ledger: Shared, checkpoints: Shared, folder: Path) -> None:
        self.ledger, self.checkpoints = ledger, checkpoints
        self.desk = Desk(folder, {LEDGER: ledger.address, CHECKPOINTS: checkpoints.address})

    def begin(self) -> None:
        begun = self.desk("init", "--run", RUN, "--json").json
        for shared, address in ((self.ledger, begun["address"]), (self.checkpoints, begun["checkpoint_address"])):
            assert "#id=" in address
            assert address.startswith(shared.address + "#id=") or shared.asks_for_new
        self.desk.environ |= {LEDGER: begun["address"], CHECKPOINTS: begun["checkpoint_address"]}
        for number in (1, 2):
            self.desk("register", f"account_{number}", "Somebody", "--provider", "local", "--yes")

    def die_before_the_second_commit(self) -> None:
        """A process of its own, killed with the second checkpoint's files sent and its commit not."""
        words = ["run", "--run", RUN, "--account", "account_1", "--target-steps", "12", "--checkpoint-every", "4"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **self.ledger.environ, **self.checkpoints.environ}
        moment = {"TOY_KILL_AT": "after put manifest", "TOY_KILL_NTH": "2", "HOME": str(self.desk.folder)}
        done = subprocess.run(
            [sys.executable, "-m", "tests.processes.program", *words],
            cwd=self.desk.folder,
            env=environ | self.desk.environ | moment | {"RELAY_EPHEMERAL": "1", "RELAY_SYNC_DIR": "elsewhere"},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == -9, done.stderr

    def store(self, role: str) -> Store:
        """A client, to look at what is there."""
        return open_store(self.desk.environ[role].partition("#")[0])

    def files(self, run: str = RUN) -> set[str]:
        """Checkpoints that have files."""
        found = self.store(CHECKPOINTS).list(Names(PROJECT, run).checkpoints)
        return {stat.name.split("/")[3] for stat in found if "step_" in stat.name}


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    ledger, checkpoints = (SHARED[name](tmp_path / role) for name, role in zip(request.param, "lc", strict=True))
    for shared in (ledger, checkpoints):
        for name, value in shared.environ.items():
            monkeypatch.setenv(name, value)
    for role in "lc":
        (tmp_path / role).mkdir()
    hurry(monkeypatch)  # patience with a silent store
    yield Two(ledger, checkpoints, tmp_path / "desk")


each_pair = pytest.mark.parametrize("two", STORES, indirect=True, ids=["-and-".join(pair) for pair in STORES])


@each_pair
def test_a_run_lives_in_two_stores_through_kill_handoff_fork_and_clearing(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.begin()
    two.die_before_the_second_commit()
    first = two.desk.status()["step"]
    assert first in (4, 8), "where the disk is slow, the first commit takes both steps"
    two.desk.train(12, "--checkpoint-every", "4", account="account_2")
    state = two.desk.status()
    assert state["step"] == 12 and [link["account"] for link in state["links"]] == ["account_1", "account_2"]
    assert not [s for s in two.store(LEDGER).list("checkpoints/") if "step_" in s.name], "no file beside the ledger"
    assert not list(two.store(CHECKPOINTS).list("runs/")), "no entry beside the files"
    two.desk("verify", "--run", RUN)
    two.desk("fork", "--run", RUN, "--to", "other", "--from-step", str(first))
    two.desk.train(14, run="other")
    two.desk("verify", "--run", "other")
    retained = {f"step_{first}.e1", *(name for name in two.files() if name.endswith(".e2"))}
    assert len(two.files() - retained) == 1, "what the killed session sent and could not commit"
    with monkeypatch.context() as later:
        wrap_stores(later, Ahead)
        two.desk("gc", "--run", RUN)
    assert two.files() == retained
    two.desk("verify", "--run", RUN)
    shown = two.desk("doctor", "--run", RUN, "--json").json["stores"]
    assert [one["used_for"] for one in shown] == ["ledger", "checkpoints"]
    assert all(one["reachable"] and one["put_if_absent"] for one in shown)


@each_pair
def test_either_store_that_does_not_answer_is_named_and_nothing_is_lost(two: Two) -> None:
    two.begin()
    two.desk.train(4)
    for role, shared in ((LEDGER, two.ledger), (CHECKPOINTS, two.checkpoints)):
        begun, _, identity = two.desk.environ[role].partition("#")
        with shared.silent() as elsewhere:
            address = elsewhere or begun
            there = {role: f"{address}#{identity}"}
            refused = two.desk("run", "--run", RUN, "--target-steps", "8", code=None, **there)
            assert refused.code == (78 if address.startswith("file:") else 69), "78: what is there is no folder"
            assert address.partition("?")[0] in refused.err
            shown = two.desk("doctor", "--run", RUN, "--json", code=refused.code, **there).json["stores"]
            assert [bool(one["put_if_absent"]) for one in shown] == [role != LEDGER, role != CHECKPOINTS]
    two.desk.train(8)
    assert two.desk.status()["step"] == 8


@each_pair
def test_another_store_in_place_of_either_is_refused_before_anything_is_written(two: Two, tmp_path: Path) -> None:
    """Also before the run has begun: an address that names an identity means that store and no other."""
    places = [
        role for role, shared in ((LEDGER, two.ledger), (CHECKPOINTS, two.checkpoints)) if not shared.asks_for_new
    ]
    for role in places:
        address = two.desk.environ[role]
        refused = two.desk("init", "--run", RUN, code=78, **{role: f"{address}#id={'0' * 32}"}).err
        assert address in refused and "0" * 32 in refused
    assert not [stat for role in places for stat in two.store(role).list("")]
    two.begin()
    two.desk.train(4)
    for role in (LEDGER, CHECKPOINTS):
        other = (tmp_path / f"other-{role.lower()}").as_uri()
        refused = two.desk("run", "--run", RUN, "--target-steps", "8", code=78, **{role: other}).err
        assert (other if role == LEDGER else "RELAY_CHECKPOINT_STORE") in refused
    assert two.desk.status()["step"] == 4
