"""Formats accounts as documents and as text: all in a table, or one with all its details."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.messages.accounts import why_text
from relay.app.messages.wording import counted, duration, iso, printable
from relay.app.terminal.cells import Column, table
from relay.app.terminal.paragraphs import paragraph
from relay.core.ledger import usage
from relay.core.ledger.state import Link, RunState
from relay.core.ledger.usage import OnGpu
from relay.core.runs.registered import Standing
from relay.people.quota import Quota
from relay.people.status import AccountRow, RunStatus
from relay.people.zones import local

NARROWEST, BROADEST = 40, 200
SHORT = "%Y-%m-%d %H:%M"
"""Time format of the table; its last line names the zone."""


def row_document(row: AccountRow, now: float) -> dict[str, Any]:
    """Return one item of relay.accounts/1: durations in seconds, times in ISO-8601 UTC."""
    return {
        "id": row.id,
        "label": printable(row.label),
        "state": row.state,
        "until": iso(row.until),
        "why": why_text(row) or None,
        "owner": printable(row.owner) or None,
        "provider": row.provider,
        "tier": printable(row.tier or "") or None,
        "gpu": printable(row.gpu or "") or None,
        "zone": row.zone,
        "availability": printable(row.availability or "") or None,
        "confirmed": row.confirmed,
        "session_minutes": row.session_minutes,
        "weekly_hours": row.weekly_hours,
        "sessions": row.sessions,
        "steps": row.steps,
        "seconds": round(row.seconds, 1),
        "quota": _quota_document(row.quota, now),
    }


def listing(rows: Sequence[AccountRow], now: float, width: int | None, utf8: bool) -> str:
    """Return a table no wider than `width`. Without a width (no terminal), return one line for each account."""
    if not rows:
        return "No account is registered."
    ordered = sorted(rows, key=lambda row: _natural(row.id))
    if width is None:
        return "\n".join(_line(row, now) for row in ordered)
    columns = [
        Column(title, [cell(row, now) for row in ordered], rank, widest=widest, whole=title == "id")
        for title, rank, widest, cell in COLUMNS
    ]
    kept = [column for column in columns if any(column.cells)]
    text = table(kept, max(NARROWEST, min(BROADEST, width)), utf8)
    return f"{text}\nTimes are in your own zone: {local(now, '%Z')}."


def hours_left(quota: Quota | None, now: float) -> str:
    """Return the hours left, the whole quota, and the source of these numbers."""
    if quota is None:
        return "unknown"
    whole = f" of {_hours(quota.of_s)}" if quota.of_s else ""
    if quota.source == "estimated":
        early = ", what was said is from before the reset" if quota.stale else ""
        return f"{_hours(quota.left_s)}{whole} h, estimated{early}"
    return f"{_hours(quota.left_s)}{whole} h, {quota.source} {duration(quota.age_s(now))} ago"


def _left(row: AccountRow, now: float) -> str:
    return "" if row.quota is None else hours_left(row.quota, now).partition(", what")[0]


COLUMNS: tuple[tuple[str, int, int, Callable[[AccountRow, float], str]], ...] = (
    ("id", 0, 24, lambda row, now: printable(row.id)),
    ("label", 4, 28, lambda row, now: printable(row.label)),
    ("owner", 6, 20, lambda row, now: printable(row.owner)),
    ("provider", 5, 20, lambda row, now: row.provider),
    ("GPU", 8, 16, lambda row, now: printable(row.gpu or "")),
    ("state", 1, 14, lambda row, now: row.state),
    ("until", 2, 16, lambda row, now: local(row.until, SHORT)),
    ("hours left", 3, 44, _left),
    ("reset", 7, 16, lambda row, now: local(row.quota.resets_at, SHORT) if row.quota else ""),
)
"""Title, rank, greatest width and cell. Columns that do not fit are omitted; `accounts show` prints all."""


def _line(row: AccountRow, now: float) -> str:
    more = [f"until {local(row.until)}" if row.until else "", _left(row, now), row.provider]
    return f"{printable(row.id)}  {row.state}  {printable(row.label)}  ({'; '.join(m for m in more if m)})"


def _quota_document(quota: Quota | None, now: float) -> dict[str, Any] | None:
    if quota is None:
        return None
    return {
        "left_s": round(quota.left_s, 1),
        "of_s": quota.of_s,
        "source": quota.source,
        "read_at": iso(quota.read_at),
        "age_s": round(quota.age_s(now)),
        "resets_at": iso(quota.resets_at),
        "stale_reading": quota.stale,
    }


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f}".removesuffix(".0")


def _natural(account: str) -> list[tuple[int, int, str]]:
    """Sort key that puts account_2 before account_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", account) if part]


def facts(pairs: Sequence[tuple[str, str]], width: int | None) -> Iterator[str]:
    """Yield the lines of one account, with the names in a column of their own, folded to `width`."""
    longest, wide = max(len(name) for name, _ in pairs), None if width is None else max(NARROWEST, width)
    yield from (paragraph(f"  {name}", printable(text), wide, longest + 4) for name, text in pairs if text)


SHOWN = 5


@dataclass(frozen=True)
class Told:
    """One account and its work in all runs of a store."""

    row: AccountRow
    view: RunStatus
    runs: Sequence[Standing]

    @property
    def states(self) -> list[RunState]:
        """The states of all runs."""
        return [standing.state for standing in self.runs]

    @property
    def training(self) -> Standing | None:
        """The run that the account trains now."""
        return next((one for one in self.runs if one.training(self.view.now) == self.row.id), None)

    @property
    def by_gpu(self) -> dict[str, OnGpu]:
        """The work of ended sessions on each kind of GPU, most steps first."""
        found = usage.by_gpu(self.states, self.row.id)
        return dict(sorted(found.items(), key=lambda item: (-item[1].steps, item[0])))

    @property
    def untold_steps(self) -> int:
        """Steps on an unknown GPU."""
        return max(0, self.row.steps - sum(one.steps for one in self.by_gpu.values()))

    @property
    def steps_here(self) -> int:
        """The account's steps in the requested run."""
        mine = self.view.state.usage.get(self.row.id) if self.view.state else None
        return mine.steps if mine else 0

    def newest(self, most: int) -> list[tuple[RunState, Link]]:
        """Return the newest sessions over all runs, newest first. Sessions that have left the states are missing."""
        mine = [(state, link) for state in self.states for link in state.links if link.account == self.row.id]
        return sorted(mine, key=lambda pair: pair[1].started, reverse=True)[:most]

    @property
    def share(self) -> float | None:
        """The account's share of the run's steps; None if the run has none yet."""
        whole = sum(one.steps for one in self.view.state.usage.values()) if self.view.state else 0
        return self.steps_here / whole if whole > 0 else None


def account_document(told: Told) -> dict[str, Any]:
    """Return relay.account-status/1: durations in seconds, times in ISO-8601 UTC."""
    row, busy = told.row, told.training
    holder = busy.state.holder if busy else None
    return {
        "schema": "relay.account-status/1",
        "project": told.view.project,
        "run": told.view.run,
        "now": iso(told.view.now),
        **row_document(row, told.view.now),
        "steps_in_run": told.steps_here,
        "share_of_run": None if told.share is None else round(told.share, 4),
        **work_document(told, SHOWN),
        "steps_on_unknown_gpu": told.untold_steps,
        "training": busy
        and holder
        and {
            "run": f"{busy.state.project}/{busy.state.run}",
            "epoch": holder.epoch,
            "since": iso(holder.since),
            "ends_by": iso(holder.latest_end),
        },
    }


def account_text(told: Told, width: int | None = None) -> str:
    """Return the account as text for a terminal of that width; times in the reader's own zone."""
    row, now = told.row, told.view.now
    pairs = [
        ("state", state_words(row)),
        ("trains now", _training(told)),
        ("hours left", hours_left(row.quota, now)),
        ("given", given_words(row)),
        ("this run", _part(told)),
        *work_pairs(told, SHOWN),
    ]
    label = f": {printable(row.label)}" if row.label != row.id else ""
    return "\n".join([f"{printable(row.id)}{label}", *facts(pairs, width)])


def state_words(row: AccountRow) -> str:
    """Return the state, its end and its reason."""
    until = f" until {local(row.until)}" if row.until else ""
    why = why_text(row)
    return f"{row.state}{until}{f' ({why})' if why else ''}"


def given_words(row: AccountRow) -> str:
    """Return the account's sessions, steps and time over all runs."""
    return f"{counted(row.sessions, 'session')}, {counted(row.steps, 'step')}, {duration(row.seconds)} in all runs"


def work_document(told: Told, most: int) -> dict[str, Any]:
    """Return the account's work by GPU, and its newest sessions."""
    return {
        "by_gpu": {gpu: {"seconds": on.seconds, "steps": on.steps} for gpu, on in told.by_gpu.items()},
        "recent_sessions": [_session_document(state, link) for state, link in told.newest(most)],
    }


def work_pairs(told: Told, most: int) -> Iterator[tuple[str, str]]:
    """Yield the same as pairs of title and text."""
    yield from (
        ("GPU", f"{gpu}: {counted(on.steps, 'step')}, {duration(on.seconds)}") for gpu, on in told.by_gpu.items()
    )
    if told.untold_steps:
        yield "GPU", f"unknown: {counted(told.untold_steps, 'step')}"
    yield from (("session", _session_line(state, link)) for state, link in told.newest(most))


def _session_document(state: RunState, link: Link) -> dict[str, Any]:
    return {
        "run": f"{state.project}/{state.run}",
        "epoch": link.epoch,
        "started_at": iso(link.started),
        "seconds": round(link.seconds, 1),
        "from_step": link.from_step,
        "to_step": link.to_step,
        "gpu": link.gpu,
        "end": printable(link.end),
    }


def _session_line(state: RunState, link: Link) -> str:
    on = f" on {link.gpu}" if link.gpu else ""
    return (
        f"{local(link.started)}, {state.run}: steps {link.from_step:,} to {link.to_step:,} in "
        f"{duration(link.seconds)}{on}, {printable(link.end)}"
    )


def _training(told: Told) -> str:
    busy = told.training
    holder = busy.state.holder if busy else None
    if busy is None or holder is None:
        return "no"
    end = f"until {local(holder.latest_end)} at the latest" if holder.latest_end is not None else "with no known end"
    return f"yes, run {busy.state.run} since {local(holder.since)}, {end}"


def _part(told: Told) -> str:
    if told.share is None:
        return "nobody has given it a step yet"
    return f"{counted(told.steps_here, 'step')}, {told.share:.1%} of all that were given to it"
