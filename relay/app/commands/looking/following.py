"""`report --watch`: shows the report or the table of sessions again when the ledger has grown; writes nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from relay.app.commands.command import Call
from relay.app.commands.common import App, emit, say, speaks_utf8
from relay.app.commands.joining import run_target
from relay.app.commands.reading import every_link, overview_in
from relay.app.redact import nameless
from relay.app.terminal.follow import Appended, Redrawn, Source, follow
from relay.app.terminal.paragraphs import terminal_width
from relay.app.terminal.terminal import moves
from relay.app.views.sessionstable import sessions_text
from relay.core.ledger.ledger import RunLedger
from relay.people.status import RunStatus

AGAIN_S = 60.0
"""Seconds after which accounts, heartbeats and other runs are read again although the ledger has not grown."""


Draw = Callable[[RunStatus], str]


class FollowedReport:
    """The report of a run. It reads the newest entry of the ledger, and the rest only after a change or AGAIN_S."""

    def __init__(self, call: Call, draw: Draw) -> None:
        self._call, self._draw, self._runtime = call, draw, call.app.runtime
        self._stores = call.stores()
        self._ledger = RunLedger(self._stores.ledger, call.settings.project, call.settings.run, self._runtime)
        self._view: RunStatus | None = None
        self._seq, self._read_at = -1, 0.0

    @property
    def key(self) -> object:
        """The newest entry, and the states that can change without an entry."""
        view = self._now()
        return self._seq, view.phase, [(row.id, row.state) for row in view.accounts]

    @property
    def over(self) -> bool:
        """Whether the run is finished, archived or deleted."""
        return self._now().phase in ("finished", "archived", "deleted")

    def look(self) -> None:
        """Implements `Source.look`."""
        found = self._ledger.peek()
        seq, now = (found.seq if found else -1), self._runtime.monotonic()
        fell_silent = self._view is not None and self._view.training and not self._now().training
        if self._view is None or seq != self._seq or fell_silent or now - self._read_at >= AGAIN_S:
            view = overview_in(self._stores, self._call.app, self._call.resolved, self._call.redact).view
            self._view, self._seq, self._read_at = view, seq, self._runtime.monotonic()

    def text(self) -> str:
        """Implements `Source.text`."""
        return self._draw(self._now())

    def _now(self) -> RunStatus:
        """Return the last view, with `now` moved to the current time."""
        assert self._view is not None, "looked at first"
        return replace(self._view, now=self._view.now + self._runtime.monotonic() - self._read_at)


class FollowedSessions:
    """The table of all sessions, read again when the ledger has grown."""

    def __init__(self, call: Call) -> None:
        opened, self._stores = call.require()
        self._call, self._ledger = call, opened.ledger
        self._target = run_target(call.app, call.resolved, opened, self._stores.ledger)
        self._text, self._seq, self._over = "", -1, False

    @property
    def key(self) -> object:
        """The newest entry."""
        return self._seq

    @property
    def over(self) -> bool:
        """Whether the run is archived, or has reached the target with a free lease."""
        return self._over

    def look(self) -> None:
        """Implements `Source.look`."""
        found = self._ledger.read()
        if found.seq == self._seq:
            return
        state = found.state
        links, missing = every_link(self._ledger, state)
        self._text = nameless(
            sessions_text(links, missing, terminal_width(), speaks_utf8()), self._call.names(self._stores)
        )
        there = state.step >= (state.target_steps or self._target) and state.holder is None
        self._seq, self._over = found.seq, there or state.archived is not None

    def text(self) -> str:
        """Implements `Source.text`."""
        return self._text


def watch(source: Source, app: App, every_s: float) -> None:
    """Follow the source until the target or Ctrl-C. The run itself is not affected."""
    try:
        if moves(os.environ, sys.stdout.isatty()):
            with Redrawn(plain=not speaks_utf8()) as screen:
                follow(source, app.runtime, every_s, screen)
        else:
            follow(source, app.runtime, every_s, Appended(_append, say))
    except KeyboardInterrupt:
        say("Ended. The run goes on without it.")


def _append(text: str) -> None:
    emit(False, {}, text)
