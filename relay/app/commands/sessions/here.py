"""A session among those of its machine: it can be found there, looked on at, and finds an earlier one; ends nothing."""

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
"""What is wanted where this machine's own earlier session still runs."""


@dataclass
class LocalSessions:
    """This process and its neighbours."""

    app: App
    settings: Settings
    training: str
    """Of which run in which store (relay/core/lease/host.py)."""
    locks: FileHostLocks
    mirror: Mirror = field(init=False)

    def __post_init__(self) -> None:
        self.neighbours = MachineSessions(self.locks, self.app.root)
        self.mirror = Mirror(self.app.runtime, None)

    def enrol(self) -> None:
        """From now on later sessions of this machine find this one."""
        session = self.app.session
        self.neighbours.register(session, self.training, self.settings.account)
        if self.locks.holds(session):
            self.mirror = Mirror(self.app.runtime, self.locks.path(session, "now"))

    def earlier(self) -> Earlier | None:
        """A session of the same run and account that began before this one and still runs here."""
        return self.neighbours.earlier(self.app.session, self.training, self.settings.account)

    def now(self, other: Earlier) -> Now | None:
        """How far it is."""
        return read_now(self.locks.path(other.session, "now"))

    def leave(self) -> None:
        """This session is over."""
        self.locks.drop(self.app.session)


def here(app: App, settings: Settings, ledger_url: str) -> LocalSessions:
    """For a session of these settings."""
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
    """What the session tells can be looked on at, and a wait for the lease counts down by a person's name."""
    step, mirror = listener.progress, of.mirror
    mirror.aim(target)

    def both(progress: Progress) -> None:
        mirror.step(progress)
        step(progress)

    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # what stands in for it meanwhile has no encoding
    bar = bar_of(moves(of.app.environ, stream.isatty()), stream.encoding)
    countdown = Countdown(of.app.runtime, wait_s, shown.transfer, tell, lambda account: person(known, account), bar)
    listener.progress, listener.held = both, countdown.held
    listener.tick, listener.entered = countdown.tick, countdown.over


def person(known: Accounts, account: str) -> str:
    """`Ana's Colab (account_2)`, as far as the store tells who that is."""
    try:
        label = printable(known.label_of(account))
    except RelayError:
        label = account
    return account if label == account else f"{label} ({account})"
