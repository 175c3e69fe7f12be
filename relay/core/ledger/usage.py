"""Usage of accounts: intervals, totals, and kinds of GPU (P12). Pure; reads no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relay.core.ledger.frozen import INTERVALS_OF_TWO_KINDS, KEPT_S, MAX_FURTHER, MAX_GPUS, MAX_INTERVALS, WHOLE
from relay.core.ledger.state import RunState, Usage

MOST_S = 1e11
"""More seconds than any account has used; a forged state may claim more than a sum can hold."""

Table = Mapping[str, Usage]
Interval = tuple[float, float]
"""From, to: unix seconds by the store's clock."""


@dataclass(frozen=True)
class Given:
    """One account's usage over all runs, including open sessions."""

    sessions: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class OnGpu:
    """Usage of one kind of GPU, in whole seconds."""

    seconds: int
    steps: int


def started(usage: Table, account: str) -> dict[str, Usage]:
    """Add a session of the account."""
    mine = usage.get(account, Usage())
    return {**usage, account: mine.model_copy(update={"sessions": mine.sessions + 1})}


def trained(usage: Table, account: str, steps: int, gpu: int | None = None) -> dict[str, Usage]:
    """Add steps of the account, on the run's kind of GPU with that index."""
    mine = _on_gpu(usage, account, gpu, steps=steps)
    return _bounded({**usage, account: mine.model_copy(update={"steps": mine.steps + steps})})


def ended(
    usage: Table, account: str, since: float, seconds: float, at: float, gpu: int | None = None
) -> dict[str, Usage]:
    """Add an ended session from `since` for `seconds`, and drop intervals that ended 15 days before `at`."""
    interval = (round(since), round(since + seconds))
    mine = _on_gpu(usage, account, gpu, seconds=interval[1] - interval[0])
    grown = mine.model_copy(
        update={"seconds": mine.seconds + seconds, "intervals": tuple(sorted((*mine.intervals, interval)))}
    )
    return _bounded(_pruned({**usage, account: grown}, at - KEPT_S))


def known(gpus: tuple[str, ...], gpu: str | None) -> tuple[str, ...]:
    """The run's kinds of GPU with one more, if it is new and there is room."""
    return gpus if gpu is None or gpu in gpus or len(gpus) >= MAX_GPUS else (*gpus, gpu)


def place_of_gpu(state: RunState) -> int | None:
    """Index of the newest session's kind of GPU among the run's; None: unknown, or one too many."""
    link = state.link
    return state.gpus.index(link.gpu) if link and link.gpu in state.gpus else None


def by_gpu(states: Iterable[RunState], account: str) -> dict[str, OnGpu]:
    """Seconds of the account's ended sessions, and its steps, by kind of GPU over all runs.

    The totals may be larger: the kind is unknown for sessions of the first version, and for kinds beyond the room in a
    state.
    """
    found: dict[str, OnGpu] = {}
    for state in states:
        for place, seconds, steps in state.usage.get(account, Usage()).by_gpu:
            earlier = found.get(state.gpus[place], OnGpu(0, 0))
            found[state.gpus[place]] = OnGpu(earlier.seconds + seconds, earlier.steps + steps)
    return found


def given(states: Iterable[RunState], account: str, open_sessions: Sequence[Interval] = ()) -> Given:
    """The account's usage over all runs; `open_sessions` are its sessions that have not ended yet."""
    mine = [state.usage[account] for state in states if account in state.usage]
    return Given(
        sessions=sum(usage.sessions for usage in mine),
        steps=sum(usage.steps for usage in mine),
        seconds=sum(min(max(0.0, usage.seconds), MOST_S) for usage in mine)
        + sum(end - start for start, end in open_sessions),
    )


def seconds_within(
    states: Iterable[RunState], account: str, window: Interval, open_sessions: Sequence[Interval] = ()
) -> float:
    """Seconds of the account's usage within the window."""
    ended = [interval for state in states if account in state.usage for interval in state.usage[account].intervals]
    return sum(overlap(interval, window) for interval in (*ended, *open_sessions))


def leases_of(states: Iterable[RunState], account: str) -> list[RunState]:
    """Runs whose holder is this account; it should hold at most one lease (P12)."""
    return [state for state in states if state.holder and state.holder.account == account]


def overlap(interval: Interval, window: Interval) -> float:
    """Seconds that two intervals have in common."""
    return max(0.0, min(interval[1], window[1]) - max(interval[0], window[0]))


def _on_gpu(usage: Table, account: str, gpu: int | None, seconds: int = 0, steps: int = 0) -> Usage:
    """Add to the account's usage of one kind of GPU; unchanged if there is no room for one more kind."""
    mine = usage.get(account, Usage())
    if gpu is None or (seconds, steps) == (0, 0):
        return mine
    rows = {place: (place, s, n) for place, s, n in mine.by_gpu}
    further = sum(max(0, len(one.by_gpu) - 1) for one in usage.values())
    if gpu not in rows and rows and further >= MAX_FURTHER:
        return mine
    _, s, n = rows.get(gpu, (gpu, 0, 0))
    rows[gpu] = (gpu, min(s + seconds, WHOLE), min(n + steps, WHOLE))
    return mine.model_copy(update={"by_gpu": tuple(rows.values())})


def _pruned(usage: dict[str, Usage], oldest: float) -> dict[str, Usage]:
    stale = {account: one for account, one in usage.items() if one.intervals and one.intervals[0][1] < oldest}
    fresh = {
        account: one.model_copy(update={"intervals": tuple(i for i in one.intervals if i[1] >= oldest)})
        for account, one in stale.items()
    }
    return {**usage, **fresh}


def _bounded(usage: dict[str, Usage]) -> dict[str, Usage]:
    """Limit the intervals to MAX_INTERVALS in all: the busiest account's oldest two become one of the same length.

    Two kinds of GPU take the room of three intervals.
    """
    room = MAX_INTERVALS - sum(len(one.by_gpu) for one in usage.values()) * INTERVALS_OF_TWO_KINDS // 2
    while sum(len(one.intervals) for one in usage.values()) > room:
        account = max(usage, key=lambda name: (len(usage[name].intervals), name))
        if len(usage[account].intervals) < 2:  # more accounts than the rules allow: a stranger's state
            break
        (a, b), (c, d), *rest = usage[account].intervals
        merged = (d - (b - a) - (d - c), d)
        usage = {**usage, account: usage[account].model_copy(update={"intervals": (merged, *rest)})}
    return usage
