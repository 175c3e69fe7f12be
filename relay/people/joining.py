"""Builds a session's context for an account. Every session that trains starts here, so admission cannot be skipped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import relay
from relay.core.checkpoint.local import claimed_folder_of
from relay.core.checkpoint.packing import Facts
from relay.core.lease.host import HostLocks
from relay.core.ledger.sessionreport import Left
from relay.core.ledger.state import RunState
from relay.core.ledger.verified import mark_of
from relay.core.runs.binned import take_out_of_bin
from relay.core.runs.opening import Pair, RunHandle, config_hash
from relay.core.runs.registered import Standing, other_runs
from relay.core.session.context import Context, Handoff, Plan
from relay.core.workload import Workload
from relay.people.accounts import Accounts
from relay.people.admission import Visit, enter
from relay.people.participants import Crew
from relay.people.status import AccountRow, RunStatus
from relay.people.turns import first_after
from relay.people.usage import rows
from storage.base import Store


def session_context(
    stores: Pair,
    opened: RunHandle,
    heartbeat_store: Store,
    home: Path,
    locks: HostLocks,
    known: Accounts,
    visit: Visit,
    workload: Workload,
    config: dict[str, Any],
    plan: Plan,
) -> Context:
    """Everything `run_session` needs, for the account of `visit`, which enters the run first.

    Optional parts have defaults that the caller may replace: signal, listener, startup, warm, observer, the desk's
    words. heartbeat_store: the ledger's store through a client without retries. home: the run's folder on this machine.
    config: the run's pinned configuration. Raises BadConfig (78) if that folder belongs to another run.
    """
    run_id, account = opened.view.state.run_id, visit.account
    opened.ledger.chain.mark = mark_of(home, run_id)

    def others() -> list[RunState]:
        return other_runs(opened.registry, opened.names, stores.runtime, plan.workers)

    enter(visit, run_id, known)
    take_out_of_bin(stores.both, opened.names)
    return Context(
        runtime=stores.runtime,
        ledger=opened.ledger,
        heartbeat_store=heartbeat_store,
        checkpoint_store=stores.checkpoints,
        workload=workload,
        facts=Facts(config_hash(config), workload.fingerprint(), relay.__version__),
        session=stores.session,
        account=account,
        plan=plan,
        local_folder=claimed_folder_of(home, run_id),
        locks=locks,
        other_runs=others,
        successor=lambda state: successor(known, state, account),
        desk=Handoff(visit.machine, quota=lambda state: left_of(known, state, account, others())),
    )


def left_of(known: Accounts, state: RunState, account: str, others: Iterable[RunState]) -> Left | None:
    """The account's remaining hours, read again from the registry and the ledgers."""
    found = _rows(known, _released(state), others)
    hours = next((row.quota for row in found if row.id == account), None)
    return Left.model_validate(hours, from_attributes=True) if hours else None


def successor(known: Accounts, state: RunState, account: str) -> str | None:
    """The account to propose as next, by the hours given to this run; not `account` if there is another."""
    mine = _released(state)
    listed = tuple(_rows(known, mine, ()))
    view = RunStatus(state.project, state.run, state.target_steps, state.updated, mine, accounts=listed)
    return first_after(Crew(view, known.providers), account)


def _released(state: RunState) -> RunState:
    """The run as it is once its lease has been released."""
    return state.model_copy(update={"holder": None})


def _rows(known: Accounts, mine: RunState, others: Iterable[RunState]) -> list[AccountRow]:
    runs = [Standing(one) for one in (mine, *others)]
    return rows(known.all(), runs, known.providers, mine.updated, mine.run_id)
