"""Shows accounts to people: one table, or one account with all that is known of it; reads no store and no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from relay.app.messages.accounts import why_text
from relay.app.messages.wording import duration, iso, printable
from relay.app.terminal.cells import Column, table
from relay.app.terminal.paragraphs import paragraph
from relay.people.quota import Quota
from relay.people.status import AccountRow
from relay.people.zones import local

NARROWEST, BROADEST = 40, 200
SHORT = "%Y-%m-%d %H:%M"
"""Times in the table; the zone stands below it."""


def row_document(row: AccountRow, now: float) -> dict[str, Any]:
    """One item of relay.accounts/1; seconds, and times in ISO-8601 UTC."""
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
    """A table no wider than `width`; without a width, as where nobody looks at a terminal, a line an account."""
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
    """How much, of how much, and how that is known."""
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
"""Title, rank, greatest width and cell. What does not fit is left out, and `accounts show` has it all."""


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
    """account_2 before account_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", account) if part]


def facts(pairs: Sequence[tuple[str, str]], width: int | None) -> Iterator[str]:
    """Lines of one account, the names in a column of their own; folded for a terminal of that width."""
    longest, wide = max(len(name) for name, _ in pairs), None if width is None else max(NARROWEST, width)
    yield from (paragraph(f"  {name}", printable(text), wide, longest + 4) for name, text in pairs if text)
