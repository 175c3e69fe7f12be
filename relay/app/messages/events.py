"""Formats the events of a running session."""

from __future__ import annotations

import math
import signal

from relay.app.messages.errors import paragraph
from relay.app.messages.links import link_line
from relay.app.messages.wording import counted, duration, size
from relay.core.events import (
    Activity,
    Committed,
    CompileCache,
    Continuing,
    LateResult,
    LeftAlone,
    LinkCertified,
    OutOfTime,
    Pace,
    ProcessGone,
    SessionEvent,
    SignalReceived,
    Started,
    TargetChanged,
    Trouble,
    WentBack,
)
from relay.core.ledger.frozen import WEIGHTS_ONLY

NOTABLE_S = 10.0
"""Starts that took this long are reported, because the session's time budget includes them."""
HEARD: dict[signal.Signals, str] = {
    signal.SIGINT: "Ctrl-C: this step is finished and committed, then the session ends; press again to end at once.",
    signal.SIGTERM: "SIGTERM: this step is finished and committed, then the session ends.",
    signal.SIGHUP: "SIGHUP: this step is finished and committed, then the session ends.",
    **{
        number: f"{number.name}: this step is finished and committed, then the session ends as planned."
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
    },
}
"""Printed at once, because a step and its commit can take long."""
COMPILING = "this session compiles"


def activity(event: Activity) -> str:
    """Text shown instead of the progress bar; empty during training steps."""
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
    """One line for people; empty for an event that is not printed."""
    match event:
        case Activity():
            return ""
        case Continuing():
            return _continuing(event)
        case Started():
            return _started(event)
        case LinkCertified(certified, why):
            return link_line(certified, why)
        case Pace(step_s, left_s):
            return _pace(step_s, left_s)
        case Committed(step, source):
            return _committed(step, source)
        case LateResult(step, reading):
            return f"The state at step {step:,} is tested: the run has its {reading} now."
        case TargetChanged(before, after, account):
            word = "raised" if after > before else "lowered"
            return f"Target {word} {before:,} → {after:,} by {account}, for everybody; the run's report shows it."
        case WentBack(step, evidence):
            return f"Went back to step {step:,}: {evidence}"
        case LeftAlone(step, why):
            return f"Ignored this machine's checkpoint of step {step:,}, which does not fit: {why}"
        case OutOfTime(None):
            return "The session's time is over (the machine may have slept); it ends now."
        case OutOfTime(step):
            return f"No time is left to send step {step:,}; it stays on this machine."
        case ProcessGone(error, step):
            kept = f"step {step:,} is committed" if error.whole else "the newest snapshot is committed"
            return f"{error} The session cannot train on; {kept}, then it ends."
        case Trouble():
            return _trouble(event)
        case CompileCache():
            return f"Compile cache: {_cache(event)}."
        case SignalReceived():
            return _signal(event)


def _continuing(event: Continuing) -> str:
    """Names the step that the session continues, and its origin."""
    if event.account:
        return f"Continuing step {event.step:,} of {event.account}'s session (epoch {event.epoch})."
    if event.origin and event.origin.project == WEIGHTS_ONLY:
        return (
            f"Beginning from the weights of {event.origin.run} only (they may be averaged). Optimizer, averages and "
            f"schedule start fresh, so this does not continue that training exactly."
        )
    origin = f" of run {event.origin.run}, the origin of this fork" if event.origin else ""
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
        return "PACE: a step is too short to measure."
    each = f"{1000 * step_s:,.0f} ms" if step_s < 10 else f"{step_s:,.0f} s"
    if math.isinf(left_s):
        return f"PACE: {each} a step here, {counted(int(3600 / step_s), 'step')} an hour."
    steps = counted(int(max(0.0, left_s) / step_s), "step")
    return f"PACE: {each} a step here; time for about {steps} more in this session ({duration(left_s)})."


def _committed(step: int, source: str) -> str:
    if source == "unsent":
        return f"Committed step {step:,}, which an earlier session left on this machine."
    if source == "copy":
        return f"Committed step {step:,} again from this machine's copy. Nothing is lost."
    return f"Step {step:,} is committed."


def _trouble(event: Trouble) -> str:
    match event.doing:
        case "commit":
            return f"Storage trouble; training continues and the commit is retried: {paragraph(event.error)}"
        case "cleaning":
            return f"Clean-up postponed: {paragraph(event.error)}"
        case "release":
            return (
                f"The lease could not be released; it expires by itself in {event.expires_s:.0f} s: "
                f"{paragraph(event.error)}"
            )
        case "proposal":
            return f"No account is proposed as next ({type(event.error).__name__}); the lease is released all the same."
        case "publishing":
            return f"Not everything of this evaluation is in checkpoint_path: {paragraph(event.error)}"
        case "extra step":
            return (
                f"The step after the last commit could not be computed for comparison ({type(event.error).__name__})."
            )


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
        return "Ctrl-C again: ending at once. Every commit is safe."
    if event.under_lease:
        return HEARD[event.number]
    name = "Ctrl-C" if event.number == signal.SIGINT else event.number.name
    return f"{name}: ending; nothing was trained yet."
