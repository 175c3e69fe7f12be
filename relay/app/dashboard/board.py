"""Builds the document of several runs (relay.board/1): a store's runs, some of them side by side; reads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.app.dashboard.curves import curves
from relay.app.dashboard.data import setting_text
from relay.app.dashboard.history import Event
from relay.app.dashboard.machine import MACHINE
from relay.app.messages.wording import printable
from relay.core.ledger.evaluations import best
from relay.core.ledger.state import Link, RunState
from relay.core.workload import Headline, Measures
from relay.people.status import RunStatus

SCHEMA = "relay.board/1"
LEAST, MOST = 2, 8
"""Runs side by side."""
MOST_RUNS = 500
ABSENT = "–"
"""In the place of a setting that a run does not have."""


@dataclass(frozen=True)
class Side:
    """One run as it was read for a comparison."""

    view: RunStatus
    measures: Measures
    links: Sequence[Link] = ()
    events: Sequence[Event] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As the run pinned them, by dotted key; empty if they cannot be read."""


def run_row(
    view: RunStatus, headline: Headline | None, labels: Mapping[str, str], trouble: bool = False
) -> dict[str, Any]:
    """Return a run's line. `labels`: of accounts by id; `headline`: None if its metrics are unknown."""
    state = view.state
    last = state.links[-1] if state and state.links else None
    return {
        "project": view.project,
        "run": view.run,
        "state": "unreadable" if trouble else view.phase,
        "step": view.step,
        "target": view.target,
        "best": best_of(state, headline),
        "last": None if last is None else _ended(last, view),
        "who": None if last is None else printable(labels.get(last.account, last.account)),
        "sessions": state.links_total if state else 0,
        "hours": round(sum(one.seconds for one in state.usage.values()) / 3600, 2) if state else 0.0,
    }


def best_of(state: RunState | None, headline: Headline | None) -> dict[str, Any] | None:
    """Return the best evaluation; None without one."""
    found = best(state) if state else None
    if found is None or headline is None:
        return None
    return {"step": found.step, "value": headline.value(found.score), "text": headline.text(found.score)}


def side_row(side: Side, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a run's line with its curves."""
    links = side.links
    drawn = curves(side.events, links, side.measures)
    return {
        **run_row(side.view, side.measures.headline, labels),
        "accounts": len({link.account for link in links}),
        "gpus": sorted({link.gpu for link in links if link.gpu}),
        "metrics": newest(drawn),
        "curves": drawn,
    }


def newest(drawn: Mapping[str, Any]) -> dict[str, float]:
    """Return the newest value of each metric of training."""
    found = {}
    for one, values in zip(drawn["series"], drawn["line"]["values"], strict=True):
        known = [value for value in values if value is not None]
        if known and one["name"] not in MACHINE:
            found[one["name"]] = known[-1]
    return found


def differences(sides: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Return the settings that differ, as {key, values}, and the number of equal ones. `sides`: by dotted key."""
    keys = sorted(set().union(*sides))
    rows = [{"key": printable(key), "values": [_told(side, key) for side in sides]} for key in keys]
    apart = [row for row, key in zip(rows, keys, strict=True) if any(_apart(sides, key))]
    return apart, len(rows) - len(apart)


def board(
    title: str, store: str, now: float, runs: Sequence[Mapping[str, Any]], notices: Sequence[str] = ()
) -> dict[str, Any]:
    """Return relay.board/1 without a comparison. Times are unix seconds by the store's clock."""
    return {
        "schema": SCHEMA,
        "title": title,
        "store": store,
        "now": now,
        "notices": list(notices),
        "runs": list(runs)[:MOST_RUNS],
        **side_by_side((), {}),
    }


def side_by_side(sides: Sequence[Side], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of relay.board/1 that compares runs."""
    apart, same = differences([side.settings for side in sides]) if sides else ([], 0)
    return {"sides": [side_row(side, labels) for side in sides], "differences": apart, "same": same}


def _ended(link: Link, view: RunStatus) -> float:
    if view.training:
        return view.now
    return link.ended if link.ended is not None else link.started + link.seconds


def _told(side: Mapping[str, Any], key: str) -> str:
    return setting_text(side[key]) if key in side else ABSENT


def _apart(sides: Sequence[Mapping[str, Any]], key: str) -> list[bool]:
    first = sides[0]
    return [(key in side) != (key in first) or side.get(key) != first.get(key) for side in sides[1:]]
