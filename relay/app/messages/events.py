"""Words what a session reports while it runs."""

from __future__ import annotations

import math
import signal

from relay.app.messages.errors import paragraph
from relay.app.messages.links import told
from relay.app.messages.wording import counted, duration, size
from relay.core.events import (
    Activity,
    Committed,
    CompileCache,
    Continuing,
    LeftAlone,
    LinkCertified,
    OutOfTime,
    Pace,
    SessionEvent,
    SignalReceived,
    Started,
    Trouble,
    WentBack,
)
from relay.core.ledger.frozen import WEIGHTS_ONLY

NOTABLE_S = 10.0
"""A start that took this long is reported: a budget counts it."""
HEARD: dict[signal.Signals, str] = {
    signal.SIGINT: "Ctrl-C: this step is finished and committed, then the session ends; once more ends it at once.",
    signal.SIGTERM: "SIGTERM: this step is finished and committed, then the session ends.",
    signal.SIGHUP: "SIGHUP: this step is finished and committed, then the session ends.",
    signal.SIGUSR1: "SIGUSR1: this step is finished and committed, then the session ends as planned.",
}
"""Printed at once, for a step and its commit may take long."""
COMPILING = "this session compiles"


def activity(event: Activity) -> str:
    """What the display shows instead of the bar; empty while steps are made."""
    match event.doing:
        case "training":
            return ""
        case "first step":
            return "first step, which may compile"
        case "restoring":
            return f"restoring step {event.step:,}"
        case "evaluating":
            share = "" if event.percent is None else f": {event.percent}%"
            return f"evaluating step {event.step:,}{share}"
        case "finishing":
            return f"finishing: step {event.step:,} is made durable"


def line(event: SessionEvent) -> str:
    """One line for people; empty for what is not worth one."""
    match event:
        case Activity():
            return ""
        case Continuing():
            return _continuing(event)
        case Started():
            return _started(event)
        case LinkCertified(certified, why):
            return told(certified, why)
        case Pace(step_s, left_s):
            return _pace(step_s, left_s)
        case Committed(step, source):
            return _committed(step, source)
        case WentBack(step, evidence):
            return f"Went back to step {step:,}: {evidence}"
        case LeftAlone(step, why):
            return f"The checkpoint of step {step:,} on this machine does not fit and is left alone: {why}"
        case OutOfTime(None):
            return "The session's time ran out unnoticed, as where a machine sleeps; it ends now."
        case OutOfTime(step):
            return f"No time is left to send step {step}; it stays on this machine."
        case Trouble():
            return _trouble(event)
        case CompileCache():
            return f"Compile cache: {_cache(event)}."
        case SignalReceived():
            return _signal(event)


def _continuing(event: Continuing) -> str:
    """Whose step a session goes on from."""
    if event.account:
        return f"Continuing step {event.step:,} of {event.account}'s session (epoch {event.epoch})."
    if event.origin and event.origin.project == WEIGHTS_ONLY:
        return (
            f"Beginning from the weights of {event.origin.run}, weights only and perhaps averaged ones: optimizer, "
            f"averages and schedule start afresh, so no training is continued exactly."
        )
    origin = f" of run {event.origin.run}, from which this one was forked" if event.origin else ""
    return f"Continuing step {event.step:,}{origin}."


def _started(event: Started) -> str:
    if event.total_s < NOTABLE_S:
        return ""
    parts = ", ".join(f"{phase.replace('_', ' ')} {seconds:.1f} s" for phase, seconds in event.phases.items())
    inside = ", ".join(
        [f"{name} {seconds:.1f} s" for name, seconds in event.inside.items()]
        + [f"{count} {name.replace('_', ' ')}" for name, count in event.counts.items()]
    )
    return f"START: {duration(event.total_s)} to the first step: {parts}{f' ({inside})' if inside else ''}."


def _pace(step_s: float, left_s: float) -> str:
    if step_s <= 0:
        return "PACE: a step takes no time that could be measured."
    each = f"{1000 * step_s:,.0f} ms" if step_s < 10 else f"{step_s:,.0f} s"
    if math.isinf(left_s):
        return f"PACE: a step takes {each} here, so an hour is {counted(int(3600 / step_s), 'step')}."
    steps = counted(int(max(0.0, left_s) / step_s), "step")
    return f"PACE: a step takes {each} here, so this session has time for about {steps} more ({duration(left_s)})."


def _committed(step: int, source: str) -> str:
    if source == "unsent":
        return f"Committed step {step:,}, which an earlier session left on this machine."
    if source == "copy":
        return f"Committed step {step:,} again from this machine's copy: nothing is lost."
    return f"Step {step:,} is committed."


def _trouble(event: Trouble) -> str:
    match event.doing:
        case "commit":
            return f"Storage trouble; training goes on and the commit is tried again: {paragraph(event.error)}"
        case "cleaning":
            return f"Cleaning up has to wait: {paragraph(event.error)}"
        case "release":
            return (
                f"The lease could not be released and runs out by itself in {event.expires_s:.0f} s: "
                f"{paragraph(event.error)}"
            )
        case "extra step":
            return f"The step after the last could not be tried out ({type(event.error).__name__})."


def _cache(event: CompileCache) -> str:
    match event.found:
        case "local":
            return f"{counted(event.files, 'kernel')} of an earlier session on this machine"
        case "unusable":
            return f"not used here ({event.why})"
        case "hit":
            return f"hit, {counted(event.files, 'file')}, {size(event.bytes)}, {event.seconds:.1f} s"
        case "miss":
            return f"miss (the store has none for this card, software and configuration); {COMPILING}"
        case "refused":
            return f"refused ({event.why}); {COMPILING}"
        case "unreadable":
            return f"not read ({event.why}); {COMPILING}"
        case "late":
            return f"not in time; {COMPILING}"
        case "stored":
            return f"stored, {size(event.bytes)}"
        case "not stored":
            return f"not stored ({event.why})"


def _signal(event: SignalReceived) -> str:
    if event.again:
        return "Ctrl-C again: ending at once. What was committed is safe."
    if event.under_lease:
        return HEARD[event.number]
    name = "Ctrl-C" if event.number == signal.SIGINT else event.number.name
    return f"{name}: ending; nothing was trained yet."
