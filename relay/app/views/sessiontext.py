"""Reads a session's report from a store and formats it as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relay.app.messages.advice import command
from relay.app.messages.links import last
from relay.app.messages.wording import counted, duration, metric, printable, size
from relay.core.errors import KINDS
from relay.core.lease.heartbeat import find
from relay.core.ledger.frozen import TARGET_REACHED
from relay.core.ledger.sessionreport import MAX_BYTES, Left, Newer, SessionReport, decode, per_hour
from relay.core.ledger.state import Link, RunState
from relay.core.names import Names
from relay.core.session.timing import in_order
from relay.core.workload import Headline
from relay.people.zones import local
from storage.base import Missing, Store, TooLong
from storage.packages import UPGRADE

_MARKS = re.compile(r"([\\`*\[\]<>|&~]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""Includes the start of an address, which many Markdown readers turn into a link."""
VERSIONS = ("python", "torch", "cuda", "cudnn", "triton", "driver", "instructions", "threads")


def read_report(store: Store, names: Names, state: RunState, epoch: int) -> tuple[SessionReport | None, str]:
    """Return the report of that epoch's session, or None and the reason. Raises StoreError.

    Any writer of the store can write a report, so its run and epoch are checked.
    """
    place = find(store, names.session(epoch))
    if place is None and state.deleted is not None:
        return None, "Its report went with the run, which was deleted."
    if place is None:
        return None, "It left no report: it was killed, lost its lease, had no time left, or is of an earlier version."
    try:
        found = decode(store.get(place.ref, limit=MAX_BYTES))
    except Newer as error:
        return None, f"Its report cannot be read: {error}: {UPGRADE}."
    except (Missing, TooLong, ValueError) as error:
        return None, f"Its report is not one that a session writes ({printable(str(error))[:160]}), and is left aside."
    if (found.project, found.run, found.run_id, found.epoch) != (state.project, state.run, state.run_id, epoch):
        return None, "Its report is of another session, and is left aside."
    return found, ""


def agrees(report: SessionReport, link: Link) -> bool:
    """Return whether the report agrees with the ledger in the fields that both have."""
    told = (report.account, report.from_step, report.certified if link.commits else link.certified)
    return told == (link.account, link.from_step, link.certified) and report.to_step <= link.to_step


def markdown(report: SessionReport, headline: Headline, label: str | None = None, to_type: str | None = None) -> str:
    """Return the whole report. `label` is the account's; `to_type` is the command for the next person.

    Text of other people is shown as text: its Markdown, links and control characters have no effect.
    """
    who = f"`{report.account}`" + (f" ({plain(label)})" if label and label != report.account else "")
    lines = [
        f"# Session {report.epoch} of {plain(report.project)}/{plain(report.run)}",
        "",
        f"- **Account:** {who}",
        f"- **Where:** {_where(report)}",
        f"- **Versions:** {_versions(report)}",
        f"- **Time:** {local(report.started)} (lease), {duration(report.wall_s)} from start to end",
        f"- **Steps:** {report.from_step:,} to {report.to_step:,}, {_pace(report)}",
        f"- **Goodput:** {report.goodput:.0%} of the time was spent in training steps",
        f"- **Link:** {_link(report)}",
        f"- **End:** {plain(report.end) or 'not reported'} (exit code {report.exit_code}{_meaning(report.exit_code)})",
        f"- **A kill could have cost:** {_risk(report)}",
        f"- **Quota:** {_quota(report)}",
        f"- **Next:** {_next(report)}",
        *(
            ["- **Not sent:** a checkpoint is on that machine only; run again there, or push it"]
            if report.unsent
            else []
        ),
        "",
        "## Where the time went",
        "",
        *_table(("Phase", "Time", "Share"), _phases(report)),
        "",
        *_stalls(report.stall_s),
        "## Metrics",
        "",
        *(_metrics(report, headline) or ["None was recorded."]),
        "",
        f"## Checkpoints ({report.commits:,})",
        "",
        *(_checkpoints(report) or ["None was committed."]),
        *_incidents(report),
        *(["", f"## Next, as {report.next}", "", "```sh", to_type.replace("`", ""), "```"] if to_type else []),
    ]
    return "\n".join(lines) + "\n"


def of_link(link: Link, state: RunState, why: str) -> str:
    """Describe a session that left no report, from the ledger alone."""
    pace = per_hour(link.to_step - link.from_step, link.seconds)
    lines = [
        f"# Session {link.epoch} of {plain(state.project)}/{plain(state.run)}",
        "",
        why,
        "",
        f"- **Account:** `{link.account}`",
        f"- **GPU:** {link.gpu or 'not reported'}",
        f"- **Time:** {local(link.started)} (lease), {duration(link.seconds)} reported so far",
        f"- **Steps:** {link.from_step:,} to {link.to_step:,}" + ("" if pace is None else f", {pace:,.0f} steps/h"),
        f"- **Commits:** {link.commits:,}",
        f"- **Link:** {plain(last([link]) or 'not compared')}",
        f"- **End:** {plain(link.end)}",
    ]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Escape foreign text for Markdown."""
    return _MARKS.sub(r"\\\1", printable(text))


def _where(report: SessionReport) -> str:
    place = report.provider or "unknown"
    place += f" ({report.cloud})" if report.cloud else ""
    gpu = report.environment.get("gpu") or report.gpu or report.environment.get("device") or "unknown device"
    return f"{plain(place)}, {plain(gpu)}"


def _versions(report: SessionReport) -> str:
    known = {name: value for name in VERSIONS if (value := report.environment.get(name)) not in (None, "None", "none")}
    told = ", ".join(f"{name} {plain(value)}" for name, value in known.items())
    return ", ".join(part for part in (f"trm-relay {plain(report.code_version)}", told) if part)


def _pace(report: SessionReport) -> str:
    if report.steps_per_hour is None:
        return "none is durable" if report.to_step == report.from_step else "pace unknown"
    return f"{report.steps_per_hour:,.0f} steps/h"


def _link(report: SessionReport) -> str:
    word = {"exact": "exact", "not-exact": "NOT exact", "unknown": "unknown"}[report.certified]
    follows = "" if report.follows is None else f", follows session {report.follows}"
    return word + follows + (f": {plain(report.why)}" if report.why and report.certified != "exact" else "")


def _meaning(code: int) -> str:
    return f", {KINDS[code]}" if code in KINDS else ""


def _risk(report: SessionReport) -> str:
    return f"at most {duration(report.at_risk_s)} of work" if report.commits else "all of it: nothing was committed"


def _quota(report: SessionReport) -> str:
    used = f"{duration(report.lease_s)} used by this session"
    return f"{used}; {left_words(report.quota) if report.quota else 'the remaining quota is unknown'}"


def left_words(left: Left) -> str:
    """Return the remaining quota, the whole quota, and the source of these numbers."""
    whole = f" of {duration(left.of_s)}" if left.of_s is not None else ""
    until = f", until {local(left.resets_at)}" if left.resets_at is not None else ""
    return f"{duration(left.left_s)}{whole} left{until} ({plain(left.source)}, {local(left.read_at)})"


def _next(report: SessionReport) -> str:
    if report.end == TARGET_REACHED:
        return "no session, because the target is reached"
    return f"`{report.next}`" if report.next else f"no account was proposed; see `{command('next', report.run)}`"


def _phases(report: SessionReport) -> list[tuple[str, ...]]:
    whole = report.wall_s or 1.0
    rows = [(name, exact(seconds), f"{seconds / whole:.1%}") for name, seconds in in_order(report.phases)]
    return [*rows, ("total", exact(report.wall_s), "")]


def exact(seconds: float) -> str:
    """Format short times with more digits: a phase of 0.04 s is not 0 s."""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 90 or seconds >= 3600:
        return f"{seconds:.1f} s" if seconds < 90 else duration(seconds)
    return f"{int(seconds // 60)} min {int(seconds % 60):02} s"


def _stalls(stalls: Sequence[float]) -> list[str]:
    if not stalls:
        return []
    middle = sorted(stalls)[len(stalls) // 2]
    return [f"A checkpoint delayed training by {1000 * middle:,.0f} ms (median of {len(stalls)}, part of train).", ""]


def _metrics(report: SessionReport, headline: Headline) -> list[str]:
    rows = [(plain(name), metric(name, value)) for name, value in sorted(report.metrics.items())]
    lines = _table(("Metric", "Value"), rows) if rows else []
    if report.validation is not None and report.validated_step is not None:
        judged = f"Validation: {headline.text(report.validation)} at step {report.validated_step:,}."
        lines += ["", judged] if lines else [judged]
    return lines


def _checkpoints(report: SessionReport) -> list[str]:
    rows = [(f"{c.step:,}", c.state_hash, size(c.bytes)) for c in report.checkpoints]
    missing = report.commits - len(rows)
    older = [f"{counted(missing, 'older one')} not listed.", ""] if missing > 0 else []
    return older + _table(("Step", "State hash", "Size"), rows) if rows else older


def _incidents(report: SessionReport) -> list[str]:
    if not report.incidents:
        return []
    told = [f"- {local(i.at)}, step {i.step:,}, {plain(i.cause)}: {plain(i.text)}" for i in report.incidents]
    return ["", "## Incidents", "", *told]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table that is also readable as plain text."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)) + " |"

    return [line(heads), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *(line(row) for row in rows)]
