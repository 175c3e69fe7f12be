"""What a session's report takes from the command line: its place, the account's label and hours, the next command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from relay.accounts import Accounts
from relay.context import Desk
from relay.env import Machine
from relay.handoff import command_for
from relay.quota import Quota
from relay.sessionreport import SessionReport
from relay.sessiontext import markdown
from relay.standing import Standing, rows
from relay.state import RunState


def desk_of(
    machine: Machine,
    known: Accounts,
    account: str,
    other_runs: Callable[[], Iterable[RunState]],
    stores: Mapping[str, str],
) -> Desk:
    """`stores` by variable are what the next person must set."""
    label = known.all()[account].label

    def quota(state: RunState) -> Quota | None:
        mine = state.model_copy(update={"holder": None})  # the lease has been given back, whatever was read last
        runs = [Standing(one) for one in (mine, *other_runs())]
        found = rows(known.all(), runs, known.providers, state.updated)
        return next((row.quota for row in found if row.id == account), None)

    def words(report: SessionReport) -> str:
        command = command_for(report.next, report.run, stores) if report.next else None
        return markdown(report, label, command)

    return Desk(provider=machine.provider, cloud=machine.cloud, quota=quota, words=words)
