"""Builds the page's rows about sessions: how each ended, its current steps, and its use of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

from relay.app.dashboard.history import CommitEvent
from relay.app.dashboard.machine import DRAWN, MACHINE
from relay.app.messages.wording import printable
from relay.app.views.sessionstable import totals
from relay.core.ledger.frozen import FENCED, FIRST_SESSION, GONE, NOT_SENT, OPEN, SENT_AGAIN, SIGNALED, TARGET_REACHED
from relay.core.ledger.sessionreport import SessionReport, per_hour
from relay.core.ledger.state import Link
from relay.people.history import DIED

MOST_SESSIONS = 500
MOST_REPORTS = 150
"""Newest sessions whose whole report is part of the document."""


def kind_of_end(link: Link) -> str:
    """Return one of open, reached, planned, stopped, killed, fenced or failed; the page has a color for each."""
    if link.end == OPEN:
        return "open"
    if link.end == TARGET_REACHED:
        return "reached"
    if link.end in GONE:
        return "killed"
    if link.end == FENCED:
        return "fenced"
    if link.end in DIED or link.end.endswith(NOT_SENT):
        return "failed"
    return "stopped" if link.end.startswith(SIGNALED) else "planned"


def standing_steps(links: Sequence[Link]) -> dict[int, int]:
    """Return {epoch: steps of the session that no later session redid}; their sum is the durable step."""
    found: dict[int, int] = {}
    least: int | None = None
    for link, begins in reversed([*zip(links, trained_from(links), strict=True)]):
        ends = link.to_step if least is None else min(link.to_step, least)
        found[link.epoch] = max(0, ends - begins)
        least = begins if least is None else min(begins, least)
    return found


def trained_from(links: Sequence[Link]) -> list[int]:
    """Return the step from which each session trained itself; steps that it sent again from a copy do not count."""
    before = [0, *(link.to_step for link in links)]
    return [
        max(link.from_step, min(left, link.to_step)) if link.why == SENT_AGAIN else link.from_step
        for left, link in zip(before, links, strict=False)
    ]


def redone_steps(links: Sequence[Link]) -> int:
    """Return the number of steps that were lost to damage and trained again by a later session."""
    made = sum(link.to_step - begins for link, begins in zip(links, trained_from(links), strict=True))
    return made - sum(standing_steps(links).values())


def session_rows(
    links: Sequence[Link], reports: Mapping[int, SessionReport], commits: Sequence[CommitEvent] = ()
) -> list[dict[str, Any]]:
    """Return the rows of the newest MOST_SESSIONS, oldest first. Times are unix seconds, durations seconds."""
    machines, newest = machine_of(commits), {link.epoch for link in links[-MOST_REPORTS:]}
    stands, before = standing_steps(links), hours_before(links)
    made = {link.epoch: link.to_step - begins for link, begins in zip(links, trained_from(links), strict=True)}
    return [
        _row(link, made[link.epoch], reports.get(link.epoch))
        | {"hours": round(before[link.epoch], 3), "stands": stands[link.epoch], "machine": machines.get(link.epoch)}
        | {"report": _report(reports[link.epoch]) if link.epoch in newest & reports.keys() else None}
        for link in links[-MOST_SESSIONS:]
    ]


def machine_of(commits: Sequence[CommitEvent]) -> dict[int, dict[str, float]]:
    """Return {epoch: the mean of each measurement of the machine over the session's commits}."""
    found: dict[int, dict[str, list[float]]] = {}
    for one in commits:
        for name, (_, _, factor) in MACHINE.items():
            if (value := one.metrics.get(name)) is not None and abs(value) < DRAWN:
                found.setdefault(one.epoch, {}).setdefault(name, []).append(factor * value)
    return {
        epoch: {name: float(f"{fmean(values):.6g}") for name, values in told.items()} for epoch, told in found.items()
    }


def _report(report: SessionReport) -> dict[str, Any]:
    """Return what a session's report adds to its row."""
    return {
        "provider": report.provider,
        "environment": {name: printable(text) for name, text in report.environment.items()},
        "code_version": printable(report.code_version) or None,
        "wall_s": round(report.wall_s),
        "stall_ms": round(1000 * max(report.stall_s)) if report.stall_s else None,
        "at_risk_s": round(report.at_risk_s),
        "exit_code": report.exit_code,
        "metrics": {printable(name): value for name, value in report.metrics.items()},
        "incidents": [f"{printable(one.cause)}: {printable(one.text)}" for one in report.incidents],
        "next": report.next,
    }


def hours_before(links: Sequence[Link]) -> dict[int, float]:
    """Return {epoch: hours of lease of all earlier sessions}."""
    sums = accumulate((link.seconds / 3600 for link in links), initial=0.0)
    return {link.epoch: before for link, before in zip(links, sums, strict=False)}


def _row(link: Link, made: int, report: SessionReport | None) -> dict[str, Any]:
    pace = per_hour(made, link.seconds)
    return {
        "epoch": link.epoch,
        "account": link.account,
        "gpu": link.gpu,
        "started": round(link.started),
        "seconds": round(link.seconds),
        "from_step": link.from_step,
        "to_step": link.to_step,
        "steps_per_hour": None if pace is None else round(pace, 1),
        "commits": link.commits,
        "kind": kind_of_end(link),
        "end": printable(link.end),
        "certified": link.certified,
        "why": printable(link.why) or None,
        "goodput": report.goodput if report else None,
        "phases": {name: round(s, 1) for name, s in report.phases.items() if s >= 0.05} if report else None,
    }


def gpu_rows(links: Sequence[Link]) -> list[dict[str, Any]]:
    """Return the totals of each kind of GPU; `name`: None if unknown."""
    return [
        {
            "name": total.name or None,
            "sessions": total.sessions,
            "steps": total.steps,
            "seconds": round(total.seconds),
            "steps_per_hour": None if total.per_hour is None else round(total.per_hour, 1),
        }
        for total in totals(links, lambda link: link.gpu or "")
    ]


def handoff_rows(links: Sequence[Link], commits: Iterable[CommitEvent]) -> list[dict[str, Any]]:
    """Return the sessions that continued from another's checkpoint, newest first, with its hash if known."""
    made: dict[int, list[CommitEvent]] = {link.from_step: [] for link in links}
    for one in commits:
        if one.step in made:
            made[one.step].append(one)
    committed = [link for link in links if link.commits or link.certified != "unknown"]
    pairs = list(pairwise(committed))[-MOST_SESSIONS:]
    return [
        {
            "epoch": link.epoch,
            "after": earlier.account,
            "account": link.account,
            "step": link.from_step,
            "state_hash": _hash(made.get(link.from_step, ()), link.epoch),
            "certified": link.certified,
            "why": None if link.why in ("", FIRST_SESSION) else printable(link.why),
        }
        for earlier, link in reversed(pairs)
    ]


def _hash(commits: Sequence[CommitEvent], before: int) -> str | None:
    """Return the state hash of the newest of these commits from an earlier epoch; None if there is none."""
    return next((one.state_hash for one in reversed(commits) if one.epoch < before), None)
