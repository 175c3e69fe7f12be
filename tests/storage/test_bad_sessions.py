"""Sessions over a link that changes downloads: 69, nothing recorded, and the next session goes on exactly (P7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from relay.core.errors import Exit, StoreUnreachable
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import TARGET
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.passing import BadConnection
from relay.core.ledger.state import RunState
from storage.base import Ref, Store
from tests.app.cli import Desk
from tests.core.toy import hash_of, state_at
from tests.storage.badlinks import KINDS, Link, flip, flipped, link, overwrite, shorten_in_secret
from tests.storage.s3.proxy import Change, Reply, Request

pytestmark = pytest.mark.slow

PROJECT = "sudoku_pretrain_multiaccount"


class Run:
    """A run at step 20, on a store that only a bad link leads to; each session is on a machine of its own."""

    def __init__(self, bad: Link, folder: Path) -> None:
        self.link, self._folder, self._machines = bad, folder, 0
        desk = self.machine()
        self.address = desk("init", "--run", "r", "--json").json["address"]
        for account in ("account_1", "account_2"):
            self.machine()("register", account, "Somebody", "--owner", account, "--provider", "local", "--yes")
        for target in (10, 20):
            self.machine().train(target)

    def machine(self) -> Desk:
        self._machines += 1
        store = self.address if self._machines > 1 else self.link.address
        return Desk(self._folder / f"machine-{self._machines}", {"RELAY_STORE": store})

    @property
    def store(self) -> Store:
        return self.link.store(self.address)

    def file(self, name: str) -> Ref:
        """Of the newest checkpoint."""
        (found,) = [stat.ref for stat in self.store.list("checkpoints/") if stat.name.endswith(f"step_20.e2/{name}")]
        return found

    @property
    def state(self) -> RunState:
        return RunLedger(self.store, PROJECT, "r", RealRuntime()).read().state

    def reached(self, step: int) -> bool:
        """In the same bytes as an unbroken run."""
        head = self.state.head
        return head is not None and (head.step, head.state_hash) == (step, hash_of(step, state_at(step)))


def faults(state: RunState) -> list[str]:
    """Causes of the incidents that are no change of the target."""
    return [one.cause for one in state.incidents if one.cause != TARGET]


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    monkeypatch.setattr(RealRuntime, "sleep", lambda self, seconds: None)
    with link(request.param, monkeypatch) as bad:
        yield Run(bad, tmp_path)


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
def test_i6_a_good_checkpoint_that_arrives_damaged_is_never_left(run: Run, file: str) -> None:
    before = run.state
    run.link.alter(flip, run.file(file), times=2 if file == "state.json" else None)
    refused = run.machine().train(40, account="account_2", code=Exit.STORAGE_UNREACHABLE)
    assert "step_20.e2" in refused.err and run.address.partition("#")[0] in refused.err
    run.link.proxy.heal()
    after = run.state
    assert (after.step, after.retained, faults(after)) == (before.step, before.retained, faults(before))
    run.machine().train(40, "--checkpoint-every", "10", account="account_2")
    assert run.reached(40)
    assert (run.state.links[-1].from_step, run.state.links[-1].certified) == (20, "exact")
    assert not faults(run.state)
    run.machine()("verify", "--run", "r")


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
def test_verify_blames_the_connection_and_not_good_files(run: Run, file: str) -> None:
    run.link.alter(flip, run.file(file))
    for command in ("verify", "doctor") if file == "manifest.json" else ("verify",):
        refused = run.machine()(command, "--run", "r", code=Exit.STORAGE_UNREACHABLE)
        assert run.address.partition("#")[0] in refused.out + refused.err and "DAMAGED" not in refused.out
    run.link.proxy.heal()
    run.machine()("verify", "--run", "r")


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
def test_i6_real_damage_is_still_left_by_a_rewind_and_named_by_verify(run: Run, file: str) -> None:
    ref, store = run.file(file), run.store
    overwrite(store, ref, flipped(store.get(ref)))
    found = run.machine()("verify", "--run", "r", code=Exit.BAD_DATA)
    assert f"step_20.e2/{file}" in found.out and "DAMAGED" in found.out
    run.machine().train(40, "--checkpoint-every", "10", account="account_2")
    assert faults(run.state)[0] == "rewind"
    assert run.reached(40)


def flip_late(_: Request, reply: Reply) -> None:
    """One bit of an entry, behind what a store keeps before it."""
    reply.content = flipped(reply.content, max(0, len(reply.content) - 100))


@pytest.mark.parametrize("change", [flip_late, shorten_in_secret])
def test_i6_an_entry_that_arrives_wrong_is_not_passed_over(run: Run, change: Change) -> None:
    """The store tells its size and hash: the connection is bad, and nobody waits to make sure of it."""
    ledger = RunLedger(run.store, PROJECT, "r", RealRuntime())
    ledger.append("incident", lambda _: Noted(cause="note", text="", step=20), session="9" * 32, account=None)
    before = ledger.read()
    run.link.alter(change, ledger.chain.log.ref(before.seq))
    refused = run.machine().train(40, account="account_2", code=Exit.STORAGE_UNREACHABLE)
    assert isinstance(refused.errors[-1], BadConnection | StoreUnreachable)
    run.link.proxy.heal()
    assert ledger.read() == before
    run.machine().train(40, "--checkpoint-every", "10", account="account_2")
    assert run.reached(40)
    assert faults(run.state) == ["note"]
