"""What a session's end tells of people: its account's label and hours, whom to ask next, and how; decides no end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from relay.app.machine.env import Machine
from relay.app.messages.handoff import command_for
from relay.app.views.sessiontext import markdown
from relay.core.ledger.sessionreport import Left, SessionReport
from relay.core.ledger.state import RunState
from relay.core.runs.registered import Standing
from relay.core.session.context import Desk
from relay.core.workload import Headline
from relay.people.accounts import Accounts
from relay.people.crew import Crew
from relay.people.standing import rows
from relay.people.status import AccountRow, View
from relay.people.turns import first_after
from relay.people.zones import reading_in


def desk_of(
    machine: Machine,
    known: Accounts,
    account: str,
    other_runs: Callable[[], Iterable[RunState]],
    stores: Mapping[str, str],
    headline: Headline,
) -> Desk:
    """`stores` by variable are what the next person must set."""
    label = known.label_of(account)

    def quota(state: RunState) -> Left | None:
        found = _rows(known, _released(state), other_runs())
        hours = next((row.quota for row in found if row.id == account), None)
        return Left.model_validate(hours, from_attributes=True) if hours else None

    def words(report: SessionReport) -> str:
        command = command_for(report.next, report.run, stores) if report.next else None
        with reading_in("UTC"):  # it lies in the store, for readers everywhere
            return markdown(report, headline, label, command)

    return Desk(provider=machine.provider, cloud=machine.cloud, quota=quota, words=words)


def successor(known: Accounts, state: RunState, account: str) -> str | None:
    """Whom to propose as next, by what accounts gave this run; another one if there is one."""
    mine = _released(state)
    listed = tuple(_rows(known, mine, ()))
    view = View(state.project, state.run, state.target_steps, state.updated, mine, accounts=listed)
    return first_after(Crew(view, known.providers), account)


def _released(state: RunState) -> RunState:
    """The run once its lease has been given back, whatever was read last."""
    return state.model_copy(update={"holder": None})


def _rows(known: Accounts, mine: RunState, others: Iterable[RunState]) -> list[AccountRow]:
    runs = [Standing(one) for one in (mine, *others)]
    return rows(known.all(), runs, known.providers, mine.updated, mine.run_id)
