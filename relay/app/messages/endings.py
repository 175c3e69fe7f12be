"""Formats how a session ended, as one paragraph."""

from __future__ import annotations

from pathlib import Path

from relay.app.messages.advice import command
from relay.app.messages.errors import paragraph
from relay.app.messages.shared import untested_line
from relay.app.messages.wording import duration, printable
from relay.core.errors import RelayError, UploadFailed
from relay.core.ledger import frozen
from relay.core.session.context import Idle, Outcome
from relay.core.session.ending import NotCommitted, NotKept, NotSent
from relay.core.session.report import Recorded


def message(outcome: Outcome) -> str:
    """The outcome, and the command that helps."""
    if outcome.idle is not None:
        return _idle(outcome.idle)
    if outcome.failure is not None:
        return _failed(outcome, outcome.failure)
    asked = printable(outcome.asked)
    step = outcome.durable_step if outcome.made_step is None else outcome.made_step
    text = f"{_sentence(outcome.end)}{f' ({asked})' if asked else ''}; step {step:,} is committed."
    text = f"{text} {_no_step(outcome)}{untested_line(outcome.untested)}".rstrip()
    return f"{text} {paragraph(outcome.lost)}" if outcome.lost else text


def _no_step(outcome: Outcome) -> str:
    """For a session whose time was over before its first step: a launcher that starts it again gets no further."""
    if outcome.end != frozen.BUDGET_USED or outcome.train_s or outcome.commits or outcome.untested:
        return ""
    waited = f"waiting for the lease took {duration(outcome.waited_s)}, " if outcome.waited_s >= 1 else ""
    took = duration(outcome.start_s + outcome.total_s)
    return f"There was no time for a step: {waited}starting took {took}. Give the session more time."


def _idle(idle: Idle) -> str:
    if idle.work == "push":
        return f"Nothing to push: no checkpoint here is newer than step {idle.step:,}."
    text = f"Nothing to do: run {idle.project}/{idle.run} is at step {idle.step:,}, and its target is"
    if idle.last_step < idle.target_steps:
        return f"{text} {idle.target_steps:,}. This session was to end at step {idle.last_step:,}."
    return f"{text} {idle.target_steps:,}. Raise it for everybody with --target-steps N."


def _failed(outcome: Outcome, failure: RelayError) -> str:
    """Where a session ended for two reasons, the one behind the exit code comes first."""
    match failure:
        case NotSent():
            text = _not_sent(failure, outcome.unsent, alone=outcome.lost is None)
        case NotKept():
            text = f"{_head(failure)} The step is lost: {_unkept(failure)}."
        case _:
            text = paragraph(failure)
    text = f"{_sentence(outcome.spared)}: the last commit stands. {text}" if outcome.spared else text
    if outcome.lost and isinstance(failure, UploadFailed):
        return f"{paragraph(outcome.lost)} {text}"
    return f"{text} {paragraph(outcome.lost)}" if outcome.lost and isinstance(failure, Recorded) else text


def _unkept(error: NotKept) -> str:
    match error.disk:
        case None:
            return NO_TIME
        case OSError():
            return f"this machine's disk refused it too ({error.disk.strerror})"
        case _:
            return f"this machine could not save it either ({str(error.disk).rstrip('.')})"


NO_TIME = "there was no time left to save it"


def _not_sent(error: NotSent, folder: Path | None, alone: bool) -> str:
    """`folder`: where the checkpoint was kept at the end. Not `alone`: another session has the lease, and may have
    committed more."""
    if folder is None:
        return (
            f"The durable step was {error.durable:,} when this session last looked. It did not commit step "
            f"{error.step:,}: {_why(error)} A later session on this machine took over that step or moved it away. See "
            f"the newest commit: {command('status', error.run)}"
        )
    text = f"{_head(error)} It is kept, verified, in {folder} ({error.bytes:,} bytes)."
    if alone:
        return f"{text} The next session of this run on this machine commits it, or do it now: " + command(
            "push", error.run
        )
    return f"{text} See what can be done with it: {command('doctor', error.run)}"


def _head(error: NotCommitted) -> str:
    return f"The durable step is {error.durable:,}. Step {error.step:,} is not committed: {_why(error)}"


def _why(error: NotCommitted) -> str:
    why = paragraph(error.cause) if error.cause else "it did not finish in the time that was left"
    return why if why.endswith((".", "?")) else f"{why}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
