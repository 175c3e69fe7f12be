"""Reads a run for the dashboard, at first and again: only what is new, old commits bit by bit; writes nothing (P1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relay.app.commands.common import App
from relay.app.commands.reading import every_link, names_in, overview
from relay.app.commands.stores import open_stores
from relay.app.dashboard.data import Seen, document
from relay.app.dashboard.history import Commits
from relay.app.nameless import without_names
from relay.app.providers import shipped
from relay.app.redact import nameless
from relay.app.views.sessiontext import agrees, read_report
from relay.core.errors import store_errors
from relay.core.ledger.frozen import OPEN
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import Link, RunState
from relay.core.names import Names
from relay.core.settings.config import Resolved
from relay.people.participants import Crew
from relay.people.plan import Range, finish_range
from relay.people.status import View as Shown

SLICE_S, SLICE_REMOTE_S = 0.7, 3.0
"""Of reading what is old, between two looks at what is new: in a folder, and over a network."""
AGAIN_S = 15.0
"""Heartbeats, accounts and hours left are read as often as this where no entry is new."""
PLAN_S = 300.0
LATE = 3
"""Newest sessions whose report may still come."""


class Source:
    """One run as the dashboard sees it; not to be shared by threads."""

    def __init__(self, app: App, resolved: Resolved[Any], redacted: bool) -> None:
        self.app, self.resolved, self.redacted = app, resolved, redacted
        self.stores = open_stores(app, resolved, read_only=True)
        self.names = Names(resolved.settings.project, resolved.settings.run)
        self.ledger = RunLedger(self.stores.ledger, self.names.project, self.names.run, app.runtime)
        self.commits = Commits(self.ledger)
        self.reports: dict[int, SessionReport | None] = {}
        """By epoch; None where a session left none."""
        self.finish: Range | None = None
        self._planned_at = self._shown_at = -1e9
        self._last: Shown | None = None
        self._seq = -1
        self._links: tuple[int, tuple[tuple[Link, ...], str]] | None = None

    @property
    def run(self) -> str:
        """Its name."""
        return self.names.run

    @property
    def local(self) -> bool:
        """Whether a look costs next to nothing."""
        return self.stores.ledger.address.startswith("file:")

    def all(self) -> Mapping[str, Any]:
        """Everything, however long that takes. Raises as `news` does."""
        self._plan(self._shown())
        return self.told()

    def told(self) -> Mapping[str, Any]:
        """Everything but when the run will be done, however long that takes. Raises as `news` does."""
        return self._document(lambda: True)

    def first(self) -> Mapping[str, Any]:
        """What can be had soon. Raises as `news` does."""
        return self._document(self._for_a_while())

    def news(self) -> Mapping[str, Any] | None:
        """A newer document, None if there is none. Raises RelayError, StoreError."""
        now = self.app.runtime.monotonic()
        view = self.ledger.peek()
        aged = now - self._shown_at > AGAIN_S
        if (view.seq if view else -1) != self._seq or aged or (view and self._unread(view.state)):
            return self._document(self._for_a_while())
        if view and now - self._planned_at > PLAN_S:
            before = self.finish
            self._plan(self._shown())
            return self._document(self._for_a_while()) if self.finish != before else None
        return None

    def _unread(self, state: RunState) -> int:
        """Entries and reports that may still tell something."""
        return self.commits.unread + len(self._wanted(state))

    def _document(self, more: Callable[[], bool]) -> Mapping[str, Any]:
        view = self.ledger.peek()
        seq = view.seq if view else -1
        shown = self._shown(seq)
        links, missing = self._sessions(view)
        if view:
            self.commits.read(view, more)
            self._read_reports(view.state, links, more)
        told = {epoch: report for epoch, report in self.reports.items() if report is not None}
        seen = Seen(
            view=without_names(shown) if self.redacted else shown,
            links=links,
            missing=missing,
            reports={link.epoch: told[link.epoch] for link in links if self._believed(told, link)},
            events=self.commits.events,
            unread=self._unread(view.state) if view else 0,
            unreadable=self.commits.unreadable,
            finish=self.finish,
        )
        found = document(seen, self.app.plugin.measures)
        self._seq = seq
        return nameless(found, names_in(self.stores)) if self.redacted else found

    def _shown(self, seq: int | None = None) -> Shown:
        """Accounts, heartbeats and all: read anew for another `seq`, and every AGAIN_S."""
        now = self.app.runtime.monotonic()
        if self._last is None or seq != self._seq or now - self._shown_at > AGAIN_S:
            self._last, self._shown_at = overview(self.app, self.resolved).view, now
        return self._last

    def _sessions(self, view: View | None) -> tuple[tuple[Link, ...], str]:
        """All links; those that have left the state are read once."""
        if view is None:
            return (), ""
        archived = view.state.history.links if view.state.history else 0
        if self._links is None or self._links[0] != archived:
            links, missing = every_link(self.ledger, view.state)
            old = links[: len(links) - len(view.state.links)]
            self._links = archived, (old, missing)
        old, missing = self._links[1]
        return (*old, *view.state.links), missing

    def _wanted(self, state: RunState) -> list[int]:
        """Epochs of ended sessions whose report has not been looked for, newest first."""
        links = self._links[1][0] if self._links else ()
        return [x.epoch for x in reversed((*links, *state.links)) if x.epoch not in self.reports and x.end != OPEN]

    def _read_reports(self, state: RunState, links: tuple[Link, ...], more: Callable[[], bool]) -> None:
        """Newest first; a report that may still come is looked for again."""
        for link in links[-LATE:]:
            if self.reports.get(link.epoch) is None:
                self.reports.pop(link.epoch, None)
        for epoch in self._wanted(state):
            if not more():
                return
            with store_errors(self.stores.ledger):
                self.reports[epoch] = read_report(self.stores.ledger, self.names, state, epoch)[0]

    def _believed(self, told: Mapping[int, SessionReport], link: Link) -> bool:
        return link.epoch in told and agrees(told[link.epoch], link)

    def _plan(self, shown: Shown) -> None:
        """When the run will be done; a second or two."""
        self._planned_at = self.app.runtime.monotonic()
        over = shown.state is None or shown.phase in ("halted", "finished", "archived", "deleted")
        course = None if over else Crew(shown, shipped()).course()
        self.finish = finish_range(course) if course and course.members else None

    def _for_a_while(self) -> Callable[[], bool]:
        until = self.app.runtime.monotonic() + (SLICE_S if self.local else SLICE_REMOTE_S)
        return lambda: self.app.runtime.monotonic() < until
