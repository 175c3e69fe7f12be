"""Puts what a session does into the one or two lines that a width has room for; knows no terminal and no clock."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from relay.app.messages.wording import duration, metric
from relay.app.terminal.atwork import AtWork, Pace
from relay.app.terminal.cells import cut, in_ascii

SHORTEST_BAR, LONGEST_BAR = 8, 40
IDLE_S = 3.0
"""Without a step for so long the line shows the transfer that everybody waits for."""
MARKS = {"full": "━", "rest": "╌", "between": " · "}
ASCII = {"full": "#", "rest": "-", "between": " | "}


def lines(work: AtWork, width: int, ascii_only: bool = False) -> list[str]:
    """What is done, and below it pace, the session's time and what is safe; no line wider than `width`."""
    below = _below(work, width, ascii_only)
    shown = [line for line in (_above(work, width, ascii_only), below) if line]
    return [cut(in_ascii(line) if ascii_only else line, width) for line in shown]


def plain(work: AtWork) -> str:
    """All of it in one line without a bar, for where nothing moves."""
    pace = f"  {_speed(work)}  {_left(work.pace, work.target)}" if work.pace.rate else ""
    training = (
        f"step {work.pace.step:,}/{work.target:,}{pace}{numbers(work.metrics, work.short)}" if work.stepped else ""
    )
    return "; ".join(filter(None, [_doing(work) or training, work.transfer or _safe(work), _session(work)]))


def numbers(metrics: Mapping[str, float], short: Mapping[str, str]) -> str:
    """The few metrics people watch, under their short names (`Measures.short`), the same whatever the width."""
    return "".join(f"  {shown} {metric(name, metrics[name])}" for name, shown in short.items() if name in metrics)


def bar_line(work: AtWork, width: int, ascii_only: bool = False) -> str:
    """Step, percent and time left, whatever the width; a bar and as many numbers, as long, as there is room for."""
    pace, target = work.pace, work.target
    head, share = f"step {pace.step:,}/{target:,}", min(1.0, pace.step / target) if target else 0.0
    middle = f"  {int(100 * share)}%  {_left(pace, target)}"
    room = width - len(head) - len(middle)
    for wanted, least in _choices(work.metrics, work.short):
        if len(wanted) + least <= room:
            return head + bar(share, min(LONGEST_BAR, room - len(wanted) - 2), ascii_only) + middle + wanted
    return head + middle


def bar(share: float, length: int, ascii_only: bool) -> str:
    """The share that is done, behind two blanks; nothing where it would be too short to be read."""
    if length < SHORTEST_BAR:
        return ""
    marks = ASCII if ascii_only else MARKS
    filled = int(share * length)
    return f"  {marks['full'] * filled}{marks['rest'] * (length - filled)}"


def _above(work: AtWork, width: int, ascii_only: bool) -> str:
    """What everybody waits for; else the bar."""
    if waited_for := _waited_for(work):
        return _within(waited_for, width)
    if doing := _doing(work):
        return _within(doing, width)
    if not work.stepped:
        return ""
    return bar_line(work, width, ascii_only)


def _below(work: AtWork, width: int, ascii_only: bool) -> str:
    """Pace, the session's time, what is safe or on its way; what is least missed goes first, empty with nothing."""
    between = (ASCII if ascii_only else MARKS)["between"]
    speed = [_speed(work)] if work.pace.rate else []
    session = [text] if (text := _session(work)) else []
    durable = [text for text in _durable(work) if text]
    choices = [[*parts, text] for parts in (speed + session, session, []) for text in durable]
    for parts in (*choices, speed + session, session):
        line = "  " + between.join(parts)
        if parts and len(line) <= width:
            return line
    return ""


def _durable(work: AtWork) -> Iterator[str]:
    """What is on its way and what is safe, in ever fewer words."""
    safe = _safe(work)
    if work.transfer and not _waited_for(work):
        yield f"{work.transfer}; {safe}" if safe else work.transfer
        yield work.transfer
        yield work.transfer.partition(" of ")[0]
    yield safe or ("nothing committed yet" if work.stepped else "")


def _waited_for(work: AtWork) -> str:
    """The transfer, where nothing else goes on: no step is made, and what is done does not tell how far it is."""
    idle = work.pace.now() - work.stepped_at >= IDLE_S or bool(work.doing[0])
    return work.transfer if idle and "%" not in work.doing[0] else ""


def _within(text: str, width: int) -> str:
    """With fewer clauses at its end, if need be with fewer words."""
    for mark in ("; ", ", ", " "):
        while len(text) > width and mark in text:
            text = text.rpartition(mark)[0]
    return text


def _safe(work: AtWork) -> str:
    if work.safe is None:
        return ""
    step, at = work.safe
    return f"step {step:,} safe {duration(work.pace.now() - at)} ago"


def _session(work: AtWork) -> str:
    left = work.deadline - work.pace.now()
    return f"session: {duration(left)} left" if left < math.inf else ""


def _doing(work: AtWork) -> str:
    text, since = work.doing
    spent = work.pace.now() - since
    return f"{text}, {duration(spent)}" if text and spent >= 1 else text


def _speed(work: AtWork) -> str:
    return f"{work.pace.rate * 3600:,.0f} steps/h"


def _left(pace: Pace, target: int) -> str:
    if pace.step >= target:
        return "done"
    return f"{duration((target - pace.step) / pace.rate)} left" if pace.rate else "time left unknown"


def _choices(metrics: Mapping[str, float], short: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Numbers to show and the columns to keep for the bar, best first."""
    few = [f"  {shown} {metric(name, metrics[name], 3)}" for name, shown in short.items() if name in metrics]
    with_bar = SHORTEST_BAR + 2
    yield numbers(metrics, short), with_bar
    for count in range(len(few), 1, -1):
        yield "".join(few[:count]), with_bar
    for count in range(len(few), -1, -1):
        yield "".join(few[:count]), 0
