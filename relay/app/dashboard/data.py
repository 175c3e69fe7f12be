"""Builds the dashboard's document (relay.dashboard/1), of bounded size; reads no store and no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.app.dashboard.curves import curves
from relay.app.dashboard.history import CommitEvent, Event, NoteEvent
from relay.app.dashboard.sessions import gpu_rows, handoff_rows, kind_of_end, redone_steps, session_rows, standing_steps
from relay.app.machine.skew import skew_text
from relay.app.messages.accounts import why_text
from relay.app.messages.advice import command
from relay.app.messages.resting import rest_of
from relay.app.messages.wording import counted, printable
from relay.app.nameless import kind_of
from relay.core.ledger import frozen
from relay.core.ledger.evaluations import Evaluation, best, newest
from relay.core.ledger.sessionreport import SessionReport
from relay.core.ledger.state import Incident, Link
from relay.core.workload import Headline, Measures
from relay.people.plan import Range
from relay.people.quota import Quota
from relay.people.status import AccountRow, RunStatus, seconds_left

MOST_ACCOUNTS = 520
MOST_INCIDENTS = 50
MOST_NOTES = 100
MOST_SETTINGS, LONGEST_SETTING = 200, 200
"""Settings of a run, and letters of a value, that the page shows."""
ADVICE = {
    frozen.REWIND: "Nothing: the steps are trained again. If it happens often, run doctor on the machine that wrote "
    "them.",
    frozen.NON_FINITE: "If it happens again the run halts: fork from an earlier checkpoint with a lower learning rate.",
    frozen.OUT_OF_MEMORY: "Use a device with more memory, or fork with a smaller batch_size.",
    frozen.CRASH: "Look at that session's own log. The same crash twice halts the run.",
    frozen.RECOMPUTED: "Compare the two sessions' devices and versions: one of them computes other bits.",
    frozen.VOID_ENTRY: "Ask who else writes to the store: somebody wrote an entry that no session may write.",
    frozen.RESUMED: "Nothing: a person cleared the halt.",
    frozen.ARCHIVED: "Nothing: a person put the run away; runs unarchive brings it back.",
    frozen.UNARCHIVED: "Nothing: the run may train again.",
    "killed": "Nothing is lost but the steps since its last commit. Shorter sessions or more commits lose less.",
    "fenced": "Another session took over while this one was silent. Check that machine's network.",
    frozen.TARGET: "Nothing: a participant changed the target for everybody; `run --new-target N` changes it again.",
    frozen.RETENTION: "Nothing: a participant keeps fewer checkpoints; agree on checkpoint.keep_last and keep_every.",
    frozen.NOTE: "Nothing: a participant wrote it.",
    frozen.TESTED: "Nothing: a later session made the test that the last commit lacks.",
    frozen.TRACKER: "Nothing is lost: the next session or track brings that tracker up to date from the ledger.",
    "failed": "Read that session's report: it says what failed and what to do.",
}


def header(view: RunStatus, links: Sequence[Link], finish: Range | None, headline: Headline) -> dict[str, Any]:
    """Return progress, finish time, lease holder and newest durable step. Times are unix seconds; None: unknown."""
    state = view.state
    left, finish = seconds_left(view), None if view.stopped else finish  # an earlier plan may exist
    evaluated, top = (newest(state), best(state)) if state else (None, None)
    return {
        "phase": view.phase,
        "step": view.step,
        "target": view.target,
        "halted": printable(state.halted) if state and state.halted else None,
        "finish": [_finite(end) for end in (finish.p10, finish.p50, finish.p90)] if finish else None,
        "training_left_s": [round(s) for s in left] if left else None,
        "lease": _lease(view),
        "safe": {"step": state.head.step, "at": state.head.committed_at, "state_hash": state.head.state_hash[:16]}
        if state and state.head
        else None,
        "validation": _validation(evaluated, headline) if evaluated else None,
        "best": _validation(top, headline) if top else None,
        "redone_steps": redone_steps(links),
        "hours": round(sum(link.seconds for link in links) / 3600, 2),
        "next": _proposed(view),
    }


def _validation(found: Evaluation, headline: Headline) -> dict[str, Any]:
    """Return the headline of an evaluation; `text`: formatted for people."""
    return {"step": found.step, "value": headline.value(found.score), "text": headline.text(found.score)}


def notices(view: RunStatus, missing: str, unreadable: int) -> list[str]:
    """Return warnings for the reader: halts, missing parts, damaged entries, differing clocks."""
    found = []
    if rest := rest_of(view.state):
        found.append(rest)
    if view.state and view.state.halted:
        found.append(f"The run is halted: {view.state.halted}")
    if view.missing:
        found.append(f"The run has not begun: {view.missing}")
    if missing:
        found.append(missing)
    if unreadable:
        damaged = counted(unreadable, "damaged entry", "damaged entries")
        found.append(f"The curves lack the data of {damaged} of the ledger; run verify.")
    if text := skew_text(view.skew_s):
        found.append(f"Clocks differ: {text}. Ages are by the store's clock.")
    return [printable(line) for line in found]


def account_rows(view: RunStatus, links: Sequence[Link]) -> list[dict[str, Any]]:
    """Return accounts with their share of the run's current steps, and their hours left with its source."""
    stands = standing_steps(links)
    mine: dict[str, int] = {}
    for link in links:
        mine[link.account] = mine.get(link.account, 0) + stands[link.epoch]
    whole = sum(mine.values())
    proposed = _proposed(view)
    return [
        _account(
            row, mine.get(row.id, 0), whole, [link for link in links if link.account == row.id], row.id == proposed
        )
        for row in view.accounts[:MOST_ACCOUNTS]
    ]


def storage(view: RunStatus, reports: Mapping[int, SessionReport]) -> dict[str, Any]:
    """Return kept checkpoints, their size, and upload speed. The store's own limit is unknown to a reader."""
    state = view.state
    retained = state.retained if state else ()
    metrics = state.metrics if state else {}
    head = state.head if state else None
    waiting = [
        {"epoch": epoch, "account": report.account, "step": report.to_step}
        for epoch, report in sorted(reports.items())
        if report.unsent and report.to_step >= view.step
    ]
    return {
        "kind": kind_of(view.store),
        "store": view.store,
        "checkpoints": len(retained),
        "bytes": sum(one.bytes for one in retained),
        "oldest_step": retained[0].step if retained else None,
        "damaged": sum(one.damaged for one in retained),
        "deletable": len(state.retired) if state else 0,
        "checkpoint_bytes": head.bytes if head else None,
        "upload_s": metrics.get("upload_s"),
        "stall_ms": metrics.get("stall_ms"),
        "unsent": waiting,
    }


def incident_rows(view: RunStatus, links: Sequence[Link]) -> list[dict[str, Any]]:
    """Return incidents of the ledger and failed sessions, newest first, each with advice."""
    noted = [_incident(one, view.run) for one in (view.state.incidents if view.state else ())]
    ends = [
        _death(link) for link in links[-MOST_INCIDENTS * 4 :] if kind_of_end(link) in ("killed", "fenced", "failed")
    ]
    return sorted([*noted, *ends], key=lambda one: (-one["at"], one["cause"]))[:MOST_INCIDENTS]


def _lease(view: RunStatus) -> dict[str, Any]:
    holder = view.holder
    if holder is None:
        return {"state": "none" if view.stopped else "free"}
    return {
        "state": "held" if view.training else "run out",
        "account": holder.account,
        "epoch": holder.epoch,
        "since": holder.since,
        "expires": view.expires_at,
        "ends_by": holder.latest_end,
    }


def _proposed(view: RunStatus) -> str | None:
    """Return the account that the last holder proposed; None if the run is stopped or finished."""
    over = view.stopped or view.phase == "finished"
    return view.state.next if view.state and not over else None


def _account(row: AccountRow, mine: int, whole: int, links: Sequence[Link], proposed: bool) -> dict[str, Any]:
    return {
        "id": row.id,
        "label": printable(row.label),
        "state": row.state,
        "until": row.until,
        "why": why_text(row) or None,
        "sessions": len(links),
        "stands": mine,
        "share": round(mine / whole, 4) if whole else None,
        "seconds": round(sum(link.seconds for link in links)),
        "gpu": next((link.gpu for link in reversed(links) if link.gpu), row.gpu),
        "quota": _quota(row.quota),
        "next": proposed,
    }


def _quota(quota: Quota | None) -> dict[str, Any] | None:
    if quota is None:
        return None
    return {
        "left_s": round(quota.left_s),
        "of_s": None if quota.of_s is None else round(quota.of_s),
        "source": quota.source,
        "read_at": quota.read_at,
        "resets_at": quota.resets_at,
        "stale": quota.stale,
    }


def _incident(one: Incident, run: str) -> dict[str, Any]:
    advice = ADVICE.get(one.cause, f"Look at `{command('verify', run)}`.")
    return _told(one.at, one.epoch, one.step, one.account, one.cause, one.text, advice)


def _death(link: Link) -> dict[str, Any]:
    kind = kind_of_end(link)
    at = link.ended if link.ended is not None else link.started + link.seconds
    text = f"Session {link.epoch} of {link.account} ended: {link.end}."
    return _told(at, link.epoch, link.to_step, link.account, kind, text, ADVICE[kind])


def _told(at: float, epoch: int, step: int, account: str | None, cause: str, text: str, todo: str) -> dict[str, Any]:
    return {
        "at": at,
        "epoch": epoch,
        "step": step,
        "account": account,
        "cause": printable(cause),
        "text": printable(text),
        "todo": todo,
    }


def _finite(end: float) -> float | None:
    return round(end) if end < float("inf") else None


SCHEMA = "relay.dashboard/1"


@dataclass(frozen=True)
class Seen:
    """The parts of a run that were read."""

    view: RunStatus
    links: Sequence[Link] = ()
    """All readable sessions, oldest first."""
    missing: str = ""
    """Which sessions are missing, and why."""
    reports: Mapping[int, SessionReport] = field(default_factory=dict)
    """By epoch; only those that agree with the ledger."""
    events: Sequence[Event] = ()
    unread: int = 0
    """Entries and reports that have not been read yet."""
    unreadable: int = 0
    finish: Range | None = None
    notes: Sequence[NoteEvent] = ()
    """Oldest first."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As the run pinned them, by dotted key."""


def note_rows(notes: Sequence[NoteEvent]) -> list[dict[str, Any]]:
    """Return the newest notes, oldest first."""
    return [
        {"at": one.at, "epoch": one.epoch, "step": one.step, "account": one.account, "text": printable(one.text)}
        for one in notes[-MOST_NOTES:]
    ]


def setting_rows(settings: Mapping[str, Any]) -> list[list[str]]:
    """Return [key, value] of each setting, sorted by key."""
    return [[printable(key), setting_text(value)] for key, value in sorted(settings.items())[:MOST_SETTINGS]]


def setting_text(value: object) -> str:
    """Return the value of a setting for people, cut to LONGEST_SETTING."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST_SETTING else f"{text[: LONGEST_SETTING - 1]}…"


def document(seen: Seen, measures: Measures) -> dict[str, Any]:
    """Return relay.dashboard/1. Times are unix seconds by the store's clock, durations seconds, sizes bytes."""
    view, links = seen.view, seen.links
    commits = [event for event in seen.events if isinstance(event, CommitEvent)]
    return {
        "schema": SCHEMA,
        "project": view.project,
        "run": view.run,
        "now": view.now,
        "clock": "this machine" if view.clock_is_local else "store",
        "notices": notices(view, seen.missing, seen.unreadable),
        "header": header(view, links, seen.finish, measures.headline),
        "accounts": account_rows(view, links),
        "accounts_total": len(view.accounts),
        "sessions": session_rows(links, seen.reports, commits),
        "sessions_total": view.state.links_total if view.state else 0,
        "gpus": gpu_rows(links),
        "curves": curves(seen.events, links, measures),
        "unread": seen.unread,
        "handoffs": handoff_rows(links, commits),
        "storage": storage(view, seen.reports),
        "incidents": incident_rows(view, links),
        "incidents_total": view.state.incidents_total if view.state else 0,
        "notes": note_rows(seen.notes),
        "settings": setting_rows(seen.settings),
    }
