"""What accounts have given over all registered runs, and which of them train right now (P12); reads no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relay.account import Account
from relay.accounts import Listed
from relay.accountstate import effective
from relay.policy import Provider, Providers
from relay.quota import hours_of, left
from relay.state import RunState
from relay.status import AccountRow
from relay.usage import Given, Interval, given, seconds_within


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
        _row(known[name], Work(name, runs, now), providers, name in active, run_id)
        if name in known
        else _stranger(Work(name, runs, now))
        for name in names
    ]


@dataclass(frozen=True)
class Work:
    """What one account has given to all runs, the open session included."""

    account: str
    runs: Sequence[Standing]
    now: float

    @property
    def total(self) -> Given:
        """Since the first session."""
        return given(self._states, self.account, self._open)

    def seconds(self, window: Interval) -> float:
        """Inside the window."""
        return seconds_within(self._states, self.account, window, self._open)

    @property
    def _states(self) -> list[RunState]:
        return [run.state for run in self.runs]

    @property
    def _open(self) -> list[Interval]:
        return [session for run in self.runs if (session := run.open_session(self.account, self.now))]


def _row(listed: Listed, work: Work, providers: Providers, training: bool, run_id: str | None) -> AccountRow:
    account = listed.account
    provider = providers.named(account.provider) if account else providers.unknown
    quota = left(account, provider, work.seconds, work.now) if account else None
    total, word = work.total, _has_word(account, provider, run_id)
    now = effective(listed.id, listed.row, quota, training, work.now, confirmed=word, readable=account is not None)
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


def _stranger(work: Work) -> AccountRow:
    """It trained, and is registered no more."""
    total = work.total
    return AccountRow(
        id=work.account,
        label=work.account,
        state="forgotten",
        steps=total.steps,
        sessions=total.sessions,
        seconds=total.seconds,
    )
