"""What accounts have given over all registered runs, and which of them train right now (P12); reads no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relay import usage
from relay.account import Account
from relay.accounts import Listed
from relay.accountstate import effective
from relay.policy import Provider, Providers
from relay.quota import hours_of, left
from relay.state import RunState
from relay.status import AccountRow
from relay.usage import Interval

NO_WINDOW = (0.0, 0.0)


@dataclass(frozen=True)
class Standing:
    """A run's newest state and its holder's newest heartbeat (store's clock), None if there is none."""

    state: RunState
    heartbeat: float | None = None

    def training(self, now: float) -> str | None:
        """The account whose lease has not run out at `now`."""
        holder = self.state.holder
        return holder.account if holder and self._sign() + holder.ttl_s > now else None

    def open_session(self, account: str, now: float) -> Interval | None:
        """The account's unreleased session: up to now, or to its last sign of life if it fell silent."""
        holder = self.state.holder
        if holder is None or holder.account != account:
            return None
        return holder.since, max(holder.since, now if self.training(now) else self._sign())

    def _sign(self) -> float:
        since = self.state.holder.since if self.state.holder else 0.0
        return max(since, self.heartbeat or 0.0)


def rows(
    listed: Mapping[str, Listed],
    runs: Sequence[Standing],
    providers: Providers,
    now: float,
    run_id: str | None = None,
) -> list[AccountRow]:
    """Registered accounts, then those that trained and are registered no more; what each gave to all runs.

    `run_id` is the run they may be asked for; None: one that has not begun.
    """
    known = {key: item for key, item in listed.items() if item.row.state != "forgotten"}
    names = dict.fromkeys([*known, *(name for run in runs for name in run.state.usage)])
    active = {run.training(now) for run in runs}
    return [
        _row(known[name], Given(name, runs, now), providers, name in active, run_id)
        if name in known
        else _stranger(Given(name, runs, now))
        for name in names
    ]


@dataclass(frozen=True)
class Given:
    """What one account has given to all runs."""

    account: str
    runs: Sequence[Standing]
    now: float

    def within(self, window: Interval) -> usage.Given:
        """Totals, and the seconds inside the window."""
        sessions = [run.open_session(self.account, self.now) for run in self.runs]
        states = [run.state for run in self.runs]
        return usage.given(states, self.account, window, [one for one in sessions if one])

    def seconds(self, window: Interval) -> float:
        """Inside the window."""
        return self.within(window).seconds_in_window


def _row(listed: Listed, given: Given, providers: Providers, training: bool, run_id: str | None) -> AccountRow:
    account = listed.account
    provider = providers.named(account.provider) if account else providers.unknown
    quota = left(account, provider, given.seconds, given.now) if account else None
    total, word = given.within(NO_WINDOW), _has_word(account, provider, run_id)
    now = effective(listed.id, listed.row, quota, training, given.now, confirmed=word, readable=account is not None)
    return AccountRow(
        id=listed.id,
        label=listed.label,
        state=now.state,
        until=now.until,
        why=now.why,
        steps=total.steps,
        sessions=total.sessions,
        seconds=total.seconds,
        quota=quota,
        owner=account.owner if account else "",
        provider=provider.name,
        tier=account.tier if account else None,
        gpu=account.gpu if account else None,
        zone=account.zone if account else None,
        availability=account.availability if account else None,
        confirmed=word,
        session_minutes=(account.session_minutes if account else None) or provider.session_limit_minutes,
        weekly_hours=hours_of(account, provider),
    )


def _has_word(account: Account | None, provider: Provider, run_id: str | None) -> bool:
    """Whether its person's word for the run is given, or not asked for."""
    return account is None or not provider.coauthor or account.has_confirmed(run_id, provider.clause_digest)


def _stranger(given: Given) -> AccountRow:
    """It trained, and is registered no more."""
    total = given.within(NO_WINDOW)
    return AccountRow(
        id=given.account,
        label=given.account,
        state="forgotten",
        steps=total.steps,
        sessions=total.sessions,
        seconds=total.seconds,
    )
