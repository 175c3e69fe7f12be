"""Formats what participants share and how it changed: the target, and the newest and best evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from relay.app.messages.wording import counted, printable
from relay.core.ledger.evaluations import Evaluation, best, newest
from relay.core.ledger.state import Incident, RunState
from relay.core.workload import Headline
from relay.people.zones import local


def target_line(change: Incident) -> str:
    """When the target last changed, from and to which number, and by whom."""
    text = printable(change.text)
    return f"{text[:1].upper()}{text[1:]}, {local(change.at)}."


def untested_line(readings: Sequence[str]) -> str:
    """The results of the test at the target that are missing; empty if there are none."""
    if not readings:
        return ""
    missing = ", ".join(map(printable, readings))
    return (
        f"Its test is missing ({missing}). A session with the same evaluation.test_rows and evaluation.test_also makes "
        f"it, and so does study run."
    )


def evaluation_lines(state: RunState, headline: Headline) -> list[str]:
    """The newest evaluation and, if another step was better, the best one; empty without an evaluation."""
    last, top = newest(state), best(state)
    lines = [f"Validation: {_evaluation(last, headline)}"] if last else []
    if top and (last is None or top.step != last.step):
        lines.append(f"Best: {_evaluation(top, headline)}")
    return lines


def _evaluation(found: Evaluation, headline: Headline) -> str:
    rows = "" if found.rows is None else f" ({counted(found.rows, 'row')})"
    return f"{headline.text(found.score)} at step {found.step:,}{rows}"
