"""Registers a session among those of this machine, so that later ones can find and follow it; ends no session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from relay.app.commands.common import App
from relay.app.machine.mirror import Mirror, Now, read_now
from relay.app.messages.wording import printable
from relay.app.terminal.progress import Display
from relay.app.terminal.terminal import moves
from relay.app.terminal.waiting import Countdown, bar_of
from relay.core.errors import RelayError
from relay.core.lease.host import Earlier, FileHostLocks, MachineSessions, default_folder, training_id
from relay.core.session.context import Listener
from relay.core.settings.config import Settings
from relay.core.workload import Progress
from relay.people.accounts import Accounts

Choice = Literal["refuse", "attach", "replace"]
"""The action if this machine's own earlier session still runs."""


@dataclass
class LocalSessions:
    """This process and the other sessions of this machine."""

    app: App
    settings: Settings
    training: str
    """Identifies the run and its store (relay/core/lease/host.py)."""
    locks: FileHostLocks
    mirror: Mirror = field(init=False)

    def __post_init__(self) -> None:
        self.neighbors = MachineSessions(self.locks, self.app.root)
        self.mirror = Mirror(self.app.runtime, None)

    def enrol(self) -> None:
        """Register this session, so that later sessions of this machine find it."""
        session = self.app.session
        self.neighbors.register(session, self.training, self.settings.account)
        if self.locks.holds(session):
            self.mirror = Mirror(self.app.runtime, self.locks.path(session, "now"))

    def earlier(self) -> Earlier | None:
        """Return a session of the same run and account that began before this one and still runs here."""
        return self.neighbors.earlier(self.app.session, self.training, self.settings.account)

    def now(self, other: Earlier) -> Now | None:
        """Return the progress of the other session."""
        return read_now(self.locks.path(other.session, "now"))

    def leave(self) -> None:
        """Remove this session from the register."""
        self.locks.drop(self.app.session)


def here(app: App, settings: Settings, ledger_url: str) -> LocalSessions:
    """Return the sessions of this machine for these settings."""
    training = training_id(ledger_url, settings.project, settings.run)
    return LocalSessions(app, settings, training, FileHostLocks(default_folder()))


def followed(
    listener: Listener,
    of: LocalSessions,
    shown: Display,
    tell: Callable[[str], None],
    known: Accounts,
    wait_s: float,
    target: int,
) -> None:
    """Copy the session's progress to a file for `--attach`; during a wait, count down with the holder's name."""
    step, mirror = listener.progress, of.mirror
    mirror.aim(target)

    def both(progress: Progress) -> None:
        mirror.step(progress)
        step(progress)

    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # the stand-in for stderr has no encoding
    bar = bar_of(moves(of.app.environ, stream.isatty()), stream.encoding)
    countdown = Countdown(of.app.runtime, wait_s, shown.transfer, tell, lambda account: person(known, account), bar)
    listener.progress, listener.held = both, countdown.held
    listener.tick, listener.entered = countdown.tick, countdown.over


def person(known: Accounts, account: str) -> str:
    """Return for example `Ana's Colab (account_2)`, or only the id if the label cannot be read."""
    try:
        label = printable(known.label_of(account))
    except RelayError:
        label = account
    return account if label == account else f"{label} ({account})"
