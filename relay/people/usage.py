"""Sums what accounts gave to all registered runs, and marks those that train now (P12). Reads no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relay.core.ledger.state import RunState
from relay.core.ledger.usage import Interval, given, seconds_within
from relay.core.runs.registered import Standing
from relay.people.accounts import AccountEntry
from relay.people.accountstate import effective
from relay.people.policy import Providers
from relay.people.quota import hours_of, left, reset_of
from relay.people.status import AccountRow


def rows(
    listed: Mapping[str, AccountEntry],
    runs: Sequence[Standing],
    providers: Providers,
    now: float,
    run_id: str | None = None,
) -> list[AccountRow]:
    """Registered accounts, then those that trained and are no longer registered, with their usage over all runs.

    `run_id` is the run for which confirmations are checked; None if it has not begun.
    """
    known = {key: item for key, item in listed.items() if item.row.state != "forgotten"}
    names = dict.fromkeys([*known, *(name for run in runs for name in run.state.usage)])
    active = {run.training(now) for run in runs}
    return [
        _row(known[name], UsageSummary(name, runs, now), providers, name in active, run_id)
        if name in known
        else UsageSummary(name, runs, now).row
        for name in names
    ]


@dataclass(frozen=True)
class UsageSummary:
    """Usage of one account over all runs, the open session included."""

    account: str
    runs: Sequence[Standing]
    now: float

    @property
    def row(self) -> AccountRow:
        """Its row without registration data, as for a forgotten account."""
        found = given(self._states, self.account, self._open)
        return AccountRow(
            self.account, self.account, "forgotten", steps=found.steps, sessions=found.sessions, seconds=found.seconds
        )

    def seconds(self, window: Interval) -> float:
        """Seconds used within the window."""
        return seconds_within(self._states, self.account, window, self._open)

    @property
    def _states(self) -> list[RunState]:
        return [run.state for run in self.runs]

    @property
    def _open(self) -> list[Interval]:
        return [session for run in self.runs if (session := run.open_session(self.account, self.now))]


def _row(
    listed: AccountEntry, work: UsageSummary, providers: Providers, training: bool, run_id: str | None
) -> AccountRow:
    """A registered account. If its object cannot be read, only registry and ledger data."""
    account, blank, now = listed.account, work.row, work.now
    if account is None:
        found = effective(listed.row, None, training, now, readable=False)
        return replace(blank, state=found.state, until=found.until, why=found.why)
    provider = providers.named(account.provider)
    quota = left(account, provider, work.seconds, now)
    word = not provider.coauthor or account.has_confirmed(run_id, provider.clause_digest)
    found = effective(listed.row, quota, training, now, confirmed=word)
    return replace(
        blank,
        label=account.label,
        state=found.state,
        until=found.until,
        why=found.why,
        quota=quota,
        owner=account.owner,
        provider=provider.name,
        tier=account.tier,
        gpu=account.gpu,
        zone=account.zone,
        availability=account.availability,
        confirmed=word,
        session_minutes=account.session_minutes or provider.session_limit_minutes,
        weekly_hours=hours_of(account, provider),
        reset=reset_of(account, provider),
    )
