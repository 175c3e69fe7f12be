"""A session's context is built from a run, its stores, an account and a workload alone, and trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.app.providers import shipped
from relay.core.errors import Exit
from relay.core.runs.opening import Pair, RunHandle, begin_run
from relay.core.session.context import Context, Outcome, Plan
from relay.core.session.session import run_session
from relay.people.accounts import Accounts
from relay.people.admission import Visit
from relay.people.joining import session_context
from storage.memory import MemoryStore
from tests.core.fake_runtime import World
from tests.core.lab import NoLocks
from tests.core.toy import ToyWorkload, state_at
from tests.people.registering import register


class Team:
    """Accounts of one store, each on a machine of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.world = folder, World()
        self.store = MemoryStore(clock=lambda: self.world.now)
        self.built: list[Context] = []

    def known(self, stores: Pair) -> Accounts:
        return Accounts(stores.registry(), shipped())

    def trains(self, account: str, target: int) -> Outcome:
        process = self.world.process()

        def body() -> Outcome:
            stores = Pair(self.store, self.store, process, process.token())
            toy = ToyWorkload(sleep=process.sleep)
            opened: RunHandle = begin_run(stores, "p", "r", toy.config(), init=True)
            known = self.known(stores)
            register(known, account, account, login=account)
            home, visit = self.folder / account, Visit(account, "other", "r", opened.view.state.run_id)
            plan = Plan(target, every_steps=10, evaluate_every=0)
            context = session_context(
                stores, opened, self.store, home, NoLocks(), known, visit, toy, toy.config(), plan
            )
            self.built.append(context)
            return run_session(context)

        process.start(body)
        self.world.run()
        assert isinstance(process.outcome, Outcome)
        return process.outcome


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    team = Team(tmp_path)
    yield team
    team.world.close()


def test_two_accounts_train_a_run_one_after_the_other(team: Team) -> None:
    assert team.trains("ana", 25).exit_code == Exit.OK
    outcome = team.trains("ben", 40)
    assert (outcome.exit_code, outcome.durable_step, outcome.certified) == (Exit.OK, 40, "exact")
    built = team.built[-1]
    assert isinstance(built.workload, ToyWorkload) and built.workload.values == state_at(41)
    state = built.ledger.read().state
    assert [link.account for link in state.links] == ["ana", "ben"]
    assert state.links[0].epoch == 1 and built.successor(state) == "ana", "the other one, whose turn it is"


def test_an_account_enters_before_it_trains(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim is on record, so that no second account of the same person slips in beside it."""
    entered: list[str] = []
    real: Callable[[Accounts, str], None] = Accounts.claim
    monkeypatch.setattr(Accounts, "claim", lambda known, account: (entered.append(account), real(known, account))[1])
    team.trains("ana", 5)
    assert entered == ["ana"]
