"""The golden stores are judged, read, verified and continued as by the versions that wrote them (PROTOCOL P4)."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from relay.core.ledger.ledger import RunLedger
from storage.base import open_store
from tests.app.cli import Desk, ToyPlugin
from tests.frozen import golden
from tests.frozen.write_golden import CPU, T4, SharingPlugin

WRITTEN = {
    "store": "745dd77c1f5dd31d4038d0e474f612b855d5341dfe8c417a9fbe7a80a3a3b0f7",
    "passing": "2df09e9f0cf8c744ecb10688e9c0b2c2d0eadb8070ccc65ff7ae8a5bb91e439e",
}
"""SHA-256 of each archive."""
EXPECTED = {name: golden.expected(name) for name in WRITTEN}
LEDGERS = [(name, ledger) for name in WRITTEN for ledger in EXPECTED[name]]
RUNS = [(name, run) for name in WRITTEN for run in golden.RUNS[name]]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: golden.unpacked(folder, name) for name in WRITTEN}


@pytest.mark.parametrize("name", WRITTEN)
def test_it_is_what_that_version_wrote_to_the_byte(unpacked: dict[str, Path], name: str) -> None:
    assert hashlib.sha256((golden.FOLDER / f"{name}.tar.xz").read_bytes()).hexdigest() == WRITTEN[name]
    for ledger, raw, _ in golden.ledgers(unpacked[name], name):
        assert hashlib.sha256(b"".join(raw)).hexdigest() == EXPECTED[name][ledger]["bytes"], ledger


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ledger"), LEDGERS)
def test_every_state_follows_from_slot_0_with_the_stored_bytes(
    unpacked: dict[str, Path], name: str, ledger: str
) -> None:
    expected = EXPECTED[name][ledger]
    (found,) = (golden.judged(raw, rules) for one, raw, rules in golden.ledgers(unpacked[name], name) if one == ledger)
    assert not found.unequal, "the states of these slots have other bytes now: whoever reads them calls them void"
    assert found.void == expected["void"]
    assert hashlib.sha256(b"\n".join(found.states)).hexdigest() == expected["states"]


@dataclass
class Copy:
    """A copy that may be written to, and a machine."""

    desk: Desk

    def ledger(self, run: str) -> RunLedger:
        return RunLedger(open_store(self.desk.environ["RELAY_STORE"]), golden.PROJECT, run, RealRuntime())


@pytest.fixture
def copy(request: pytest.FixtureRequest, unpacked: dict[str, Path], tmp_path: Path) -> Copy:
    """Of the archive that the test names first."""
    shutil.copytree(unpacked[request.param], tmp_path / "store")
    return Copy(Desk(tmp_path / "here", {"RELAY_STORE": (tmp_path / "store").as_uri()}))


@pytest.mark.slow
@pytest.mark.parametrize(("copy", "run"), RUNS, indirect=["copy"])
def test_the_reader_calls_the_same_slots_void(copy: Copy, run: str, request: pytest.FixtureRequest) -> None:
    expected = EXPECTED[request.node.callspec.params["copy"]][run]
    ledger = copy.ledger(run)
    points = list(ledger.walk(expected["slots"] - 1))
    assert [point.seq for point in points if point.base != point.seq] == expected["void"]
    damage = [one for point in points for one in point.damage]
    assert not any(one.rotted for one in damage)
    assert [one.slot for one in damage if one.healed] == expected["healed"]
    assert points[-1].state == ledger.read().state
    assert points[-1].state is not None and points[-1].state.step == expected["step"]


@pytest.mark.parametrize("copy", ["store"], indirect=True)
def test_the_links_in_history_objects_are_found(copy: Copy) -> None:
    ledger = copy.ledger("golden")
    state = ledger.read().state
    links = (*ledger.archived_links(state), *state.links)
    assert [link.epoch for link in links] == list(range(1, state.links_total + 1))
    assert state.history is not None and state.history.links == 100


@pytest.mark.slow
@pytest.mark.parametrize(("copy", "run"), RUNS, indirect=["copy"])
def test_it_is_shown_and_verified(copy: Copy, run: str, request: pytest.FixtureRequest) -> None:
    expected = EXPECTED[request.node.callspec.params["copy"]][run]
    assert copy.desk("status", "--run", run, "--json").json["step"] == expected["step"]
    assert copy.desk("verify", "--run", run, "--json").json["ok"]


@pytest.mark.parametrize("copy", ["store"], indirect=True)
def test_accounts_are_listed(copy: Copy) -> None:
    accounts = copy.desk("accounts", "list", "--json").json["accounts"]
    assert [row["id"] for row in accounts] == ["account_1", "account_2", "account_3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("copy", "run", "kind", "path"),
    [
        ("store", "golden", ToyPlugin(made={"environment": CPU, "path": "toy on cpu"}), "toy on cpu"),
        ("store", "branch", ToyPlugin(made={"environment": CPU}), "toy"),
        ("store", "imported", ToyPlugin(made={"environment": CPU}), "toy"),
        ("store", "shared", SharingPlugin(made={"environment": T4, "table_every": 50}), "toy"),
        ("passing", "golden", ToyPlugin(made={"environment": CPU, "path": "toy on cpu"}), "toy on cpu"),
    ],
    indirect=["copy"],
)
def test_it_is_continued_exactly(copy: Copy, run: str, kind: ToyPlugin, path: str) -> None:
    copy.desk.plugin, step = kind, copy.ledger(run).read().state.step
    copy.desk.train(step + 10, run=run, account="account_1")
    state = copy.ledger(run).read().state
    assert state.step == step + 10 and state.head is not None
    assert state.links[-1].certified == "exact"
    assert state.head.next is not None and state.head.next.path == path


@pytest.mark.parametrize("copy", ["passing"], indirect=True)
def test_a_kept_checkpoint_is_still_known(copy: Copy) -> None:
    state = copy.ledger("golden").read().state
    assert [kept.key for kept in state.kept] == [(20, 2)]
    assert [link.epoch for link in state.links] == [1, 2, 7, 8, 14, 20, 25], "no slot passed over can have begun one"
