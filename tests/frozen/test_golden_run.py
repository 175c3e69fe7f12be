"""The golden store is judged, read, verified and continued as by the version that wrote it (PROTOCOL P4)."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.clock import RealRuntime
from relay.ledger import RunLedger
from storage.base import open_store
from tests.frozen import golden
from tests.frozen.write_golden import CPU, T4, SharingKind
from tests.relay.cli import Desk, ToyKind

WRITTEN = "745dd77c1f5dd31d4038d0e474f612b855d5341dfe8c417a9fbe7a80a3a3b0f7"
EXPECTED = golden.expected()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpacked(tmp_path_factory.mktemp("golden"))


def test_it_is_what_that_version_wrote_to_the_byte(unpacked: Path) -> None:
    assert hashlib.sha256((golden.FOLDER / "store.tar.xz").read_bytes()).hexdigest() == WRITTEN
    for name, raw, _ in golden.ledgers(unpacked):
        assert hashlib.sha256(b"".join(raw)).hexdigest() == EXPECTED[name]["bytes"], name


@pytest.mark.parametrize("name", EXPECTED)
def test_every_state_follows_from_slot_0_with_the_stored_bytes(unpacked: Path, name: str) -> None:
    (found,) = (golden.judged(raw, machine) for ledger, raw, machine in golden.ledgers(unpacked) if ledger == name)
    assert not found.unequal, "the state of these slots has other bytes now: whoever reads them calls them void"
    assert found.void == EXPECTED[name]["void"]
    assert hashlib.sha256(b"\n".join(found.states)).hexdigest() == EXPECTED[name]["states"]


@dataclass
class Golden:
    """A copy that may be written to, and a machine."""

    desk: Desk

    def ledger(self, run: str) -> RunLedger:
        return RunLedger(open_store(self.desk.environ["RELAY_STORE"]), golden.PROJECT, run, RealRuntime())


@pytest.fixture
def store(unpacked: Path, tmp_path: Path) -> Iterator[Golden]:
    shutil.copytree(unpacked, tmp_path / "store")
    yield Golden(Desk(tmp_path / "here", {"RELAY_STORE": (tmp_path / "store").as_uri()}))


@pytest.mark.slow
def test_the_reader_calls_the_same_slots_void(store: Golden) -> None:
    for run in golden.RUNS:
        ledger, expected = store.ledger(run), EXPECTED[run]
        points = list(ledger.walk(expected["slots"] - 1))
        assert [point.seq for point in points if point.base != point.seq] == expected["void"], run
        assert not any(damage.rotted for point in points for damage in point.damage), run
        assert points[-1].state == ledger.read().state, run
        assert points[-1].state is not None and points[-1].state.step == expected["step"], run


def test_the_links_in_history_objects_are_found(store: Golden) -> None:
    ledger = store.ledger("golden")
    state = ledger.read().state
    links = (*ledger.archived_links(state), *state.links)
    assert [link.epoch for link in links] == list(range(1, state.links_total + 1))
    assert state.history is not None and state.history.links == 100


@pytest.mark.slow
def test_it_is_shown_and_verified(store: Golden) -> None:
    for run in golden.RUNS:
        assert store.desk("status", "--run", run, "--json").json["step"] == EXPECTED[run]["step"]
        assert store.desk("verify", "--run", run, "--json").json["ok"], run
    accounts = store.desk("accounts", "list", "--json").json["accounts"]
    assert [row["id"] for row in accounts] == ["account_1", "account_2", "account_3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "kind", "path"),
    [
        ("golden", ToyKind(made={"environment": CPU, "path": "toy on cpu"}), "toy on cpu"),
        ("branch", ToyKind(made={"environment": CPU}), "toy"),
        ("imported", ToyKind(made={"environment": CPU}), "toy"),
        ("shared", SharingKind(made={"environment": T4, "table_every": 50}), "toy"),
    ],
)
def test_it_is_continued_exactly(store: Golden, run: str, kind: ToyKind, path: str) -> None:
    store.desk.kind, step = kind, EXPECTED[run]["step"]
    store.desk.train(step + 10, run=run, account="account_1")
    state = store.ledger(run).read().state
    assert state.step == step + 10 and state.head is not None
    assert state.links[-1].certified == "exact"
    assert state.head.next is not None and state.head.next.path == path
