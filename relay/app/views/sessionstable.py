"""Formats all sessions of a run as a table, with totals by account and by GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.messages.wording import counted, duration, iso, printable
from relay.app.terminal.cells import Column, table
from relay.core.ledger.sessionreport import per_hour
from relay.core.ledger.state import Link
from relay.people.zones import local

UNTOLD = "unknown"
LONGEST = 24
"""Columns of an account's id; a longer one continues on the next line."""


@dataclass(frozen=True)
class Total:
    """Totals of several sessions."""

    name: str
    sessions: int
    steps: int
    seconds: float

    @property
    def per_hour(self) -> float | None:
        """Steps per hour of lease; None if steps or time are unknown."""
        return per_hour(self.steps, self.seconds)


def totals(links: Iterable[Link], key: Callable[[Link], str]) -> list[Total]:
    """Return totals by `key`, most steps first."""
    groups: dict[str, list[Link]] = {}
    for link in links:
        groups.setdefault(key(link), []).append(link)
    found = [
        Total(name, len(group), sum(link.to_step - link.from_step for link in group), sum(x.seconds for x in group))
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda total: (-total.steps, total.name))


def sessions_document(project: str, run: str, links: Sequence[Link], missing: str) -> dict[str, Any]:
    """Return relay.sessions/1. Durations are seconds; `missing` describes the sessions that cannot be listed."""
    return {
        "schema": "relay.sessions/1",
        "project": project,
        "run": run,
        "sessions": [session(link) for link in links],
        "missing": missing or None,
        "by_account": [_total(total) for total in totals(links, lambda link: link.account)],
        "by_gpu": [_total(total) for total in totals(links, _gpu)],
    }


def session(link: Link) -> dict[str, Any]:
    """Return one session with the data of the ledger."""
    return {
        "epoch": link.epoch,
        "account": link.account,
        "gpu": link.gpu,
        "started_at": iso(link.started),
        "ended_at": iso(link.ended),
        "seconds": round(link.seconds, 1),
        "from_step": link.from_step,
        "to_step": link.to_step,
        "steps_per_hour": None if (pace := _pace(link)) is None else round(pace, 1),
        "commits": link.commits,
        "certified": link.certified,
        "why": printable(link.why) or None,
        "end": printable(link.end),
    }


def sessions_text(links: Sequence[Link], missing: str, width: int | None, utf8: bool = True) -> str:
    """Return the table and the totals. No line is wider than `width`; less important columns are omitted first."""
    if not links:
        return "No session has trained this run yet." + (f" {missing}" if missing else "")
    parts = [
        *([missing, ""] if missing else []),
        _table(links, width, utf8),
        "",
        _sums("account", totals(links, lambda link: link.account), width, utf8),
        "",
        _sums("GPU", totals(links, _gpu), width, utf8),
        "",
        f"{counted(len(links), 'session')}. Times are {_zone(links[-1].started)}.",
    ]
    return "\n".join(parts)


def _zone(at: float) -> str:
    """Return the reader's zone at that time, with its offset if the name does not show it."""
    name = local(at, "%Z")
    return name if name.startswith("UTC") else local(at, "%Z (UTC%:z)")


COLUMNS: tuple[tuple[str, int, Callable[[Link], str]], ...] = (
    ("epoch", 0, lambda link: f"{link.epoch}"),
    ("account", 0, lambda link: link.account),
    ("GPU", 2, lambda link: link.gpu or UNTOLD),
    ("start", 3, lambda link: local(link.started, "%Y-%m-%d %H:%M")),
    ("min", 1, lambda link: f"{link.seconds / 60:,.1f}"),
    ("steps", 0, lambda link: f"{link.to_step - link.from_step:,}"),
    ("steps/h", 0, lambda link: "" if (pace := _pace(link)) is None else f"{pace:,.0f}"),
    ("link", 4, lambda link: "NOT exact" if link.certified == "not-exact" else link.certified),
    ("end", 0, lambda link: printable(link.end)),
)
"""Title, rank and cell."""
NUMBERS = ("epoch", "min", "sessions", "steps", "time", "steps/h")


def _table(links: Sequence[Link], width: int | None, utf8: bool) -> str:
    columns = [_column(title, [cell(link) for link in links], rank) for title, rank, cell in COLUMNS]
    return table(columns, width, utf8)


def _sums(title: str, found: Sequence[Total], width: int | None, utf8: bool) -> str:
    rows = [(title, "sessions", "steps", "time", "steps/h"), *map(_sum, found)]
    return table([_column(name, cells) for name, *cells in zip(*rows, strict=True)], width, utf8)


def _column(title: str, cells: Sequence[str], rank: int = 0) -> Column:
    return Column(title, cells, rank, right=title in NUMBERS, widest=LONGEST if title == "account" else 100)


def _sum(total: Total) -> tuple[str, ...]:
    pace = "" if total.per_hour is None else f"{total.per_hour:,.0f}"
    return total.name, f"{total.sessions:,}", f"{total.steps:,}", duration(total.seconds), pace


def _total(total: Total) -> dict[str, Any]:
    return {
        "name": total.name,
        "sessions": total.sessions,
        "steps": total.steps,
        "seconds": round(total.seconds, 1),
        "steps_per_hour": None if total.per_hour is None else round(total.per_hour, 1),
    }


def _gpu(link: Link) -> str:
    return link.gpu or UNTOLD


def _pace(link: Link) -> float | None:
    return per_hour(link.to_step - link.from_step, link.seconds)
