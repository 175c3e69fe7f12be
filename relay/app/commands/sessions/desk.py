"""Words a session's report for its people: the account's label, and the command of whoever is next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay.app.messages.handoff import command_for
from relay.app.views.sessiontext import markdown
from relay.core.ledger.sessionreport import SessionReport
from relay.core.workload import Headline
from relay.people.zones import reading_in


def words_of(label: str, stores: Mapping[str, str], headline: Headline) -> Callable[[SessionReport], str]:
    """`stores` by variable are what the next person must set."""

    def words(report: SessionReport) -> str:
        command = command_for(report.next, report.run, stores) if report.next else None
        with reading_in("UTC"):  # it lies in the store, for readers everywhere
            return markdown(report, headline, label, command)

    return words
