"""All sessions of a run as a table, with totals by account and by GPU; knows only links and the reader's zone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size

from relay.app.messages.wording import counted, duration, iso, printable
from relay.app.terminal.cells import cut
from relay.core.ledger.sessionreport import per_hour
from relay.core.ledger.state import Link
from relay.people.zones import local

UNTOLD = "unknown"
LONGEST = 24
"""Columns of an id, and the least that is left for how a session ended."""
ROOM = 20
"""Columns for how a session ended, before others go: `interrupted (SIGINT)`."""
OPTIONAL = ("link", "start", "GPU", "min")
"""Columns that go first where the terminal is narrow."""


@dataclass(frozen=True)
class Total:
    """What sessions gave together."""

    name: str
    sessions: int
    steps: int
    seconds: float

    @property
    def per_hour(self) -> float | None:
        """Steps per hour of lease; None where no step or no time is known."""
        return per_hour(self.steps, self.seconds)


def totals(links: Iterable[Link], key: Callable[[Link], str]) -> list[Total]:
    """By `key`, most steps first."""
    groups: dict[str, list[Link]] = {}
    for link in links:
        groups.setdefault(key(link), []).append(link)
    found = [
        Total(name, len(group), sum(link.to_step - link.from_step for link in group), sum(x.seconds for x in group))
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda total: (-total.steps, total.name))


def sessions_document(project: str, run: str, links: Sequence[Link], missing: str) -> dict[str, Any]:
    """relay.sessions/1. Durations are seconds; `missing` says which sessions cannot be listed."""
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
    """One session as the ledger tells it."""
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


def sessions_text(links: Sequence[Link], missing: str, width: int | None) -> str:
    """The table, then totals; no line is wider than `width`, less wanted columns go first."""
    if not links:
        return "No session has trained this run yet." + (f" {missing}" if missing else "")
    parts = [
        *([missing, ""] if missing else []),
        *_table(links, width),
        "",
        *_sums("account", totals(links, lambda link: link.account), width),
        "",
        *_sums("GPU", totals(links, _gpu), width),
        "",
        f"{counted(len(links), 'session')}. Times are {_zone(links[-1].started)}.",
    ]
    return "\n".join(parts)


def _zone(at: float) -> str:
    """The reader's own zone at that time, with its offset where the name does not say it."""
    name = local(at, "%Z")
    return name if name.startswith("UTC") else local(at, "%Z (UTC%:z)")


Column = tuple[str, bool, Callable[[Link], str]]
"""Title, whether it is a number, and its cell."""
COLUMNS: tuple[Column, ...] = (
    ("epoch", True, lambda link: f"{link.epoch}"),
    ("account", False, lambda link: link.account),
    ("GPU", False, lambda link: link.gpu or UNTOLD),
    ("start", False, lambda link: local(link.started, "%Y-%m-%d %H:%M")),
    ("min", True, lambda link: f"{link.seconds / 60:,.1f}"),
    ("steps", True, lambda link: f"{link.to_step - link.from_step:,}"),
    ("steps/h", True, lambda link: "" if (pace := _pace(link)) is None else f"{pace:,.0f}"),
    ("link", False, lambda link: "NOT exact" if link.certified == "not-exact" else link.certified),
    ("end", False, lambda link: printable(link.end)),
)


def _table(links: Sequence[Link], width: int | None) -> list[str]:
    columns = list(COLUMNS)
    for title in (*OPTIONAL, ""):
        sizes = _sizes(columns, links)
        if width is None or sum(sizes[:-1]) + 2 * (len(sizes) - 1) + min(sizes[-1], ROOM) <= width:
            break
        columns = [column for column in columns if column[0] != title]
    if width is not None:
        sizes[-1] = max(4, min(sizes[-1], width - sum(sizes[:-1]) - 2 * (len(sizes) - 1)))
    rows = [[column[2](link) for column in columns] for link in links]
    return [_line(columns, cells, sizes) for cells in ([column[0] for column in columns], *rows)]


def _sizes(columns: Sequence[Column], links: Sequence[Link]) -> list[int]:
    return [min(LONGEST if title != "end" else 100, max(cell_len(title), *(cell_len(cell(x)) for x in links)))
            for title, _, cell in columns]  # fmt: skip


def _line(columns: Sequence[Column], cells: Sequence[str], sizes: Sequence[int]) -> str:
    shown = [
        cell.rjust(size) if number else set_cell_size(cut(cell, size), size)
        for (_, number, _), cell, size in zip(columns, cells, sizes, strict=True)
    ]
    return "  ".join(shown).rstrip()


def _sums(title: str, found: Sequence[Total], width: int | None) -> list[str]:
    """Numbers are never cut; a name is, where the terminal has no room for it."""
    rows = [(title, "sessions", "steps", "time", "steps/h"), *map(_sum, found)]
    sizes = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    room = LONGEST if width is None else width - sum(sizes[1:]) - 2 * len(sizes[1:])
    size = max(cell_len(title), min(sizes[0], LONGEST, room))
    return [
        "  ".join(
            [set_cell_size(cut(name, size), size), *(n.rjust(s) for n, s in zip(numbers, sizes[1:], strict=True))]
        ).rstrip()
        for name, *numbers in rows
    ]


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
