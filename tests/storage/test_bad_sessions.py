"""Sessions over a link that changes downloads: 69, nothing recorded, and the next session goes on exactly (P7).

Each backend has one run, and each test continues it from the newest checkpoint, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from relay.core.clock import RealRuntime
from relay.core.errors import Exit, StoreUnreachable
from relay.core.ledger.changes import Noted
from relay.core.ledger.frozen import TARGET
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.passing import BadConnection
from relay.core.ledger.state import RunState
from relay.core.names import folder_name
from storage.base import Ref, Store
from tests.app.cli import Desk, Result, hurry
from tests.core.toy import hash_of, state_at
from tests.storage.badlinks import KINDS, Link, flip, flipped, link, overwrite, shorten_in_secret
from tests.storage.s3.proxy import Reply, Request

pytestmark = pytest.mark.slow

PROJECT = "sudoku_pretrain_multiaccount"


class Run:
    """A run on a store that only a bad link leads to; each session is on a machine of its own."""

    def __init__(self, bad: Link, folder: Path) -> None:
        self.link, self._folder, self._machines = bad, folder, 0
        self.address = self.machine()("init", "--run", "r", "--json").json["address"]
        desk = self.machine()
        for account in ("account_1", "account_2"):
            desk("register", account, "Somebody", "--owner", account, "--provider", "local", "--yes")
        self.machine().train(10)
        self.machine().train(20)

    def machine(self) -> Desk:
        self._machines += 1
        store = self.address if self._machines > 1 else self.link.address
        return Desk(self._folder / f"machine-{self._machines}", {"RELAY_STORE": store})

    @cached_property
    def store(self) -> Store:
        return self.link.store(self.address)

    @property
    def state(self) -> RunState:
        return RunLedger(self.store, PROJECT, "r", RealRuntime()).read().state

    def file(self, name: str) -> Ref:
        """Of the newest checkpoint."""
        (found,) = [stat.ref for stat in self.store.list("checkpoints/") if stat.name.endswith(f"{self.newest}/{name}")]
        return found

    @property
    def newest(self) -> str:
        """Folder of the newest checkpoint."""
        head = self.state.head
        assert head is not None
        return folder_name(head.step, head.epoch)

    def refused(self) -> Result:
        """A session that cannot read the run."""
        return self.machine().train(self.state.step + 20, account="account_2", code=Exit.STORAGE_UNREACHABLE)

    def goes_on(self, steps: int = 20) -> None:
        """A session reaches a state of the same bytes as in an unbroken run."""
        step = self.state.step + steps
        self.machine().train(step, "--checkpoint-every", "10", account="account_2")
        head = self.state.head
        assert head is not None and (head.step, head.state_hash) == (step, hash_of(step, state_at(step)))

    def faults(self) -> list[str]:
        """Causes of the incidents that are no change of the target."""
        return [one.cause for one in self.state.incidents if one.cause != TARGET]


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        patch.setattr("storage.selftest.MANY", 2)
        with link(request.param, patch) as bad:
            yield Run(bad, tmp_path_factory.mktemp("machines"))


def flip_late(_: Request, reply: Reply) -> None:
    """One bit of an entry, behind what a store keeps before it."""
    reply.content = flipped(reply.content, max(0, len(reply.content) - 100))


def test_i6_nothing_that_arrives_damaged_is_left_or_passed_over(run: Run) -> None:
    """The store reports its size and hash: the connection is bad, and no session waits to make sure of it."""
    ledger = RunLedger(run.store, PROJECT, "r", RealRuntime())
    before, faults = run.state, run.faults()
    for file, times in (("state.json", 2), ("manifest.json", None)):
        run.link.alter(flip, run.file(file), times=times)
        refused = run.refused()
        assert run.newest in refused.err and run.address.partition("#")[0] in refused.err
        run.link.proxy.heal()
        after = run.state
        assert (after.step, after.retained, run.faults()) == (before.step, before.retained, faults)
    ledger.append("incident", lambda _: Noted(cause="note", text="", step=20), session="9" * 32, account=None)
    noted = ledger.read()
    for change in (flip_late, shorten_in_secret):
        run.link.alter(change, ledger.chain.log.ref(noted.seq))
        refused = run.refused()
        assert isinstance(refused.errors[-1], BadConnection | StoreUnreachable)
        run.link.proxy.heal()
        assert ledger.read() == noted
    run.goes_on()
    assert (run.state.links[-1].from_step, run.state.links[-1].certified) == (before.step, "exact")
    assert run.faults() == [*faults, "note"]


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
    ref, store, newest, faults = run.file(file), run.store, run.newest, run.faults()
    good = store.get(ref)
    overwrite(store, ref, flipped(good))
    found = run.machine()("verify", "--run", "r", code=Exit.BAD_DATA)
    assert f"{newest}/{file}" in found.out and "DAMAGED" in found.out
    run.goes_on()
    assert run.faults()[len(faults)] == "rewind"
    overwrite(store, ref, good)
