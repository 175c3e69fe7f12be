"""Reads a run for the dashboard, later only new entries; reads old commits in slices; writes nothing (P1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relay.app.commands.common import App
from relay.app.commands.reading import every_link, names_in, overview
from relay.app.commands.stores import open_stores
from relay.app.dashboard.data import Seen, document
from relay.app.dashboard.history import Commits
from relay.app.nameless import public_page, without_names
from relay.app.providers import shipped
from relay.app.redact import without_secrets
from relay.app.views.sessiontext import agrees, read_report
from relay.core.errors import BadData, store_errors
from relay.core.ledger.frozen import OPEN
from relay.core.ledger.ledger import RunLedger, View
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import Link, RunState
from relay.core.names import Names
from relay.core.runs.salvage import pinned_config
from relay.core.settings.config import Resolved, flat
from relay.people.participants import Crew
from relay.people.plan import Range, finish_range
from relay.people.status import RunStatus as Shown

SLICE_S, SLICE_REMOTE_S = 0.7, 3.0
"""Seconds spent on old entries between two looks for new ones: in a folder, and over a network."""
AGAIN_S = 15.0
"""Seconds after which heartbeats, accounts and quotas are read again although no entry is new."""
PLAN_S = 300.0
LATE = 3
"""Number of newest sessions whose report may still arrive."""


class Source:
    """One run as the dashboard shows it. Not thread-safe."""

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
        self._settings: Mapping[str, Any] | None = None
        self._links: tuple[int, tuple[tuple[Link, ...], str]] | None = None

    @property
    def run(self) -> str:
        """The run's name."""
        return self.names.run

    @property
    def local(self) -> bool:
        """Whether the store is a local folder, which is fast to read."""
        return self.stores.ledger.address.startswith("file:")

    def all(self) -> Mapping[str, Any]:
        """Return the whole document, however long that takes. Raises as `news` does."""
        self._plan(self._shown())
        return self.told()

    def told(self) -> Mapping[str, Any]:
        """Return the document without the forecast, however long that takes. Raises as `news` does."""
        return self._document(lambda: True)

    def first(self) -> Mapping[str, Any]:
        """Return a first document soon; it may be incomplete. Raises as `news` does."""
        return self._document(self._for_a_while())

    def news(self) -> Mapping[str, Any] | None:
        """Return a newer document, or None if nothing is new. Raises RelayError, StoreError."""
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
        """Return the number of entries and reports that are not read yet."""
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
            notes=self.commits.notes,
            settings=self._pinned() if view else {},
        )
        found: dict[str, Any] = without_secrets(document(seen, self.app.plugin.measures), self.app.secrets)
        self._seq = seq
        return public_page(found, names_in(self.stores)) if self.redacted else found

    def _shown(self, seq: int | None = None) -> Shown:
        """Return the view with accounts and heartbeats, read again for another `seq` and every AGAIN_S."""
        now = self.app.runtime.monotonic()
        if self._last is None or seq != self._seq or now - self._shown_at > AGAIN_S:
            self._last, self._shown_at = overview(self.app, self.resolved).view, now
        return self._last

    def _sessions(self, view: View | None) -> tuple[tuple[Link, ...], str]:
        """Return all links. Links that have left the state are read only once."""
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
        """Return the epochs of ended sessions whose report was not looked for, newest first."""
        links = self._links[1][0] if self._links else ()
        return [x.epoch for x in reversed((*links, *state.links)) if x.epoch not in self.reports and x.end != OPEN]

    def _read_reports(self, state: RunState, links: tuple[Link, ...], more: Callable[[], bool]) -> None:
        """Read reports, newest first. Recent sessions without a report are checked again, as it may still arrive."""
        for link in links[-LATE:]:
            if self.reports.get(link.epoch) is None:
                self.reports.pop(link.epoch, None)
        for epoch in self._wanted(state):
            if not more():
                return
            with store_errors(self.stores.ledger):
                self.reports[epoch] = read_report(self.stores.ledger, self.names, state, epoch)[0]

    def _pinned(self) -> Mapping[str, Any]:
        """Return the run's settings by dotted key; empty while they cannot be read."""
        if self._settings is None:
            try:
                self._settings = dict(flat(pinned_config(self.ledger)))
            except BadData:
                return {}
        return self._settings

    def _believed(self, told: Mapping[int, SessionReport], link: Link) -> bool:
        return link.epoch in told and agrees(told[link.epoch], link)

    def _plan(self, shown: Shown) -> None:
        """Forecast the end of the run; takes a second or two."""
        self._planned_at = self.app.runtime.monotonic()
        over = shown.state is None or shown.phase in ("halted", "finished", "archived", "deleted")
        course = None if over else Crew(shown, shipped()).course()
        self.finish = finish_range(course) if course and course.members else None

    def _for_a_while(self) -> Callable[[], bool]:
        until = self.app.runtime.monotonic() + (SLICE_S if self.local else SLICE_REMOTE_S)
        return lambda: self.app.runtime.monotonic() < until
