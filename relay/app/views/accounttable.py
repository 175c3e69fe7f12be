"""Shows accounts to people: one table, or one account with all that is known of it; reads no store and no clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from relay.app.messages.accounts import why_text
from relay.app.messages.wording import duration, iso, printable
from relay.app.terminal.cells import cut, drawn, in_ascii, table
from relay.app.terminal.paragraphs import paragraph
from relay.people.quota import Quota
from relay.people.status import AccountRow
from relay.people.zones import local

NARROWEST, BROADEST = 40, 200
SHORT = "%Y-%m-%d %H:%M"
"""Times in the table; the zone stands below it."""
GAP = 3
"""Blanks and a line between two columns."""
Column = tuple[str, Callable[[AccountRow, float], str]]


def document(row: AccountRow, now: float) -> dict[str, Any]:
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
    wide = max(NARROWEST, min(BROADEST, width))
    columns = _fitting(ordered, now, wide)
    shown = table(utf8)
    for title in columns:
        shown.add_column(title, overflow="fold", max_width=WIDEST[title])
    for texts in zip(*columns.values(), strict=True):
        shown.add_row(*(Text(text if utf8 else in_ascii(text)) for text in texts))
    zone = f"\nTimes are in your own zone: {local(now, '%Z')}." if columns.keys() & {"until", "reset"} else ""
    return drawn(shown, wide, utf8) + zone


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


COLUMNS: tuple[Column, ...] = (
    ("id", lambda row, now: printable(row.id)),
    ("label", lambda row, now: printable(row.label)),
    ("owner", lambda row, now: printable(row.owner)),
    ("provider", lambda row, now: row.provider),
    ("GPU", lambda row, now: printable(row.gpu or "")),
    ("state", lambda row, now: row.state),
    ("until", lambda row, now: local(row.until, SHORT)),
    ("hours left", _left),
    ("reset", lambda row, now: local(row.quota.resets_at, SHORT) if row.quota else ""),
)
WIDEST = {
    "id": 24,
    "label": 28,
    "owner": 20,
    "provider": 20,
    "GPU": 16,
    "state": 14,
    "until": 16,
    "hours left": 44,
    "reset": 16,
}
"""Columns of a terminal that one of ours takes at most: an id goes on in the next line, everything else is cut."""
WEIGHT = ("id", "state", "until", "hours left", "label", "provider", "owner", "reset", "GPU")
"""Columns, the most wanted first; what does not fit is left out, and `accounts show` has it all."""


def _fitting(rows: Sequence[AccountRow], now: float, width: int) -> dict[str, list[str]]:
    """The columns that fit, in their order, each with its texts; empty ones are left out."""
    texts = {title: [_fitted(title, cell(row, now)) for row in rows] for title, cell in COLUMNS}
    kept, room = set(), width
    for title in WEIGHT:
        need = min(WIDEST[title], max(*map(cell_len, texts[title]), len(title))) + GAP
        if any(texts[title]) and need <= room:
            kept.add(title)
            room -= need
    return {title: found for title, found in texts.items() if title in kept}


def _fitted(title: str, text: str) -> str:
    """An id is never cut: it must be typed."""
    return text if title == "id" else cut(text, WIDEST[title])


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
