"""What accounts have given over all registered runs, and which of them train right now (P12); reads no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relay import usage
from relay.accounts import Listed
from relay.policy import Provider, Providers
from relay.quota import Quota
from relay.state import RunState
from relay.status import AccountRow

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

    def open_seconds(self, account: str, now: float) -> float:
        """What the account's unreleased session has given: up to now, or to its last sign of life if it fell silent."""
        holder = self.state.holder
        if holder is None or holder.account != account:
            return 0.0
        return max(0.0, (now if self.training(now) else self._sign()) - holder.since)

    def _sign(self) -> float:
        since = self.state.holder.since if self.state.holder else 0.0
        return max(since, self.heartbeat or 0.0)


def rows(listed: Mapping[str, Listed], runs: Sequence[Standing], providers: Providers, now: float) -> list[AccountRow]:
    """Registered accounts, then those that trained and are registered no more; what each gave to all runs."""
    known = {key: item for key, item in listed.items() if item.row.state != "forgotten"}
    names = dict.fromkeys([*known, *(name for run in runs for name in run.state.usage)])
    return [_row(name, known.get(name), runs, providers, now) for name in names]


def _row(name: str, listed: Listed | None, runs: Sequence[Standing], providers: Providers, now: float) -> AccountRow:
    provider = providers.named(listed.account.provider) if listed and listed.account else None
    total = usage.given(
        [run.state for run in runs], name, _week(provider, now), sum(run.open_seconds(name, now) for run in runs)
    )
    state = listed.row.state if listed else "forgotten"
    return AccountRow(
        id=name,
        label=listed.label if listed else name,
        state="active" if any(run.training(now) == name for run in runs) else state,
        steps=total.steps,
        sessions=total.sessions,
        seconds=total.seconds,
        quota=_quota(provider, total.seconds_in_window, now),
        provider=provider.name if provider else "unknown",
    )


def _quota(provider: Provider | None, used_s: float, now: float) -> Quota | None:
    """The provider's weekly hours less what was measured in this week; None where it has none."""
    if provider is None or provider.weekly_hours is None:
        return None
    whole = provider.weekly_hours * 3600
    end = _week(provider, now)[1] if provider.reset else None
    return Quota(max(0.0, whole - used_s), whole, "estimated", now, end)


def _week(provider: Provider | None, now: float) -> tuple[float, float]:
    """The provider's present week; of no length where it has none."""
    if provider is None or provider.reset is None:
        return NO_WINDOW
    return usage.week(now, provider.reset.zone, provider.reset.day, provider.reset.hour)
