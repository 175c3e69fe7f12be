"""Shows a study's table as a document, text, CSV or Markdown, and the list of its experiments with their costs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.messages.wording import counted, metric, printable
from relay.app.studies.experiments import Design, Point, StudyRun
from relay.app.studies.picking import Seen
from relay.app.studies.results import Results, Row
from relay.app.terminal.cells import Column, table
from relay.core.ledger.state import RunState

MEASURED_STEPS = 100
"""Steps from which a run's own pace on a card counts."""


def changes_text(changes: Mapping[str, Any]) -> str:
    """`arch.H_cycles=2 lr=0.0005`; groups of settings are left out where that is clear."""
    return " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in changes.items()) or "–"


def _change(point: Point) -> str:
    return relation_text(point) or changes_text(point.changes)


def relation_text(point: Point) -> str:
    """`reads raw of X`, `same as X`, `continues X`; empty for an experiment of its own."""
    one = point.experiment
    if one.reads:
        return f"reads {one.reads} of {one.source}"
    return f"same as {one.same_as}" if one.same_as else f"continues {one.continues}" if one.continues else ""


# --- The results ----------------------------------------------------------------------------------------------------


def report_document(found: Results) -> dict[str, Any]:
    """relay.study-report/1; numbers as they are, null where there is none."""
    design = found.design
    return {
        "schema": "relay.study-report/1",
        "study": design.study.study,
        "project": design.project,
        "file_sha256": design.file.sha256,
        "metric": found.metric,
        "better": found.better,
        "seeds": list(design.seeds),
        "rows": [_row_document(row, found) for row in found.rows],
        "apart": [{"run": run, "why": why} for run, why in found.apart],
        "missing": list(found.missing),
    }


def _row_document(row: Row, found: Results) -> dict[str, Any]:
    point, mean, against = row.point, row.mean, row.against
    usual = next(iter(found.design.study.metrics))
    return {
        "experiment": point.name,
        "changes": dict(point.changes),
        "relation": relation_text(point) or None,
        "control": point.control,
        "steps": point.steps,
        "n": mean.n if mean else 0,
        "values": {str(seed): value for seed, value in row.values.items()},
        "mean": mean.value if mean else None,
        "interval": mean.half if mean else None,
        "difference": against.difference if against else None,
        "difference_interval": against.half if against else None,
        "paired": against.paired if against else None,
        "p": against.p if against else None,
        "p_holm": row.adjusted,
        "verdict": row.verdict(found.better),
        "n_needed": against.needed if against else None,
        "published": point.experiment.published if found.metric == usual else None,
        "flops": row.flops,
        "gpu_hours": row.hours,
        "gpus": list(row.gpus),
        "runs": list(row.runs),
    }


HEADS = ("experiment", "change", "n", "mean", "to control", "verdict", "PFLOP", "GPU-h", "published")


def cells(found: Results) -> Iterator[tuple[str, ...]]:
    """The rows of the table, as texts under HEADS."""
    for row, one in zip(found.rows, report_document(found)["rows"], strict=True):
        mean = difference = ""
        if row.mean:
            mean = _with_interval(found.metric, row.mean.value, row.mean.half)
        if row.against:
            sign = "+" if row.against.difference >= 0 else ""
            difference = sign + _with_interval(found.metric, row.against.difference, row.against.half)
        verdict = one["verdict"] or ""
        if verdict == "not told apart" and one["n_needed"]:
            verdict += f" (n = {one['n_needed']:,} would)"
        yield (
            one["experiment"],
            _change(row.point),
            str(one["n"]),
            mean,
            difference,
            verdict,
            f"{row.flops / 1e15:,.3g}",
            "" if row.hours is None else f"{row.hours:.2f}",
            "" if one["published"] is None else metric(found.metric, one["published"]),
        )


def _with_interval(name: str, value: float, half: float | None) -> str:
    return metric(name, value) + ("" if half is None else f" ± {metric(name, half)}")


def report_text(found: Results, width: int | None, utf8: bool) -> str:
    """The table, and below it what it stands on."""
    rows = ([_spelled(cell, utf8) for cell in row] for row in cells(found))
    columns = [
        Column(head, each, rank=0 if n < 6 else n, right=n in (2, 6, 7, 8), widest=32, whole=n == 0)
        for n, (head, each) in enumerate(zip(HEADS, zip(*rows, strict=True), strict=True))
    ]
    return "\n".join([table(columns, width, utf8), *(_spelled(line, utf8) for line in notes(found))])


def _spelled(text: str, utf8: bool) -> str:
    return text if utf8 else text.replace("±", "+-").replace("–", "-")


def notes(found: Results) -> list[str]:
    """What the table stands on, and the runs that are not in it."""
    design, tests = found.design, sum(row.adjusted is not None for row in found.rows)
    base = design.points[design.study.first].steps
    of = "" if base == design.study.steps else f" of {design.study.steps:,}"
    lines = [
        f"{design.study.study} (file {design.file.sha256[:12]}), {found.metric}, at {base:,}{of} steps for "
        f"{design.study.first}. ± is a 95 % t-interval over seeds."
    ]
    if tests:
        lines.append(f"Verdicts: {counted(tests, 'comparison')} with the control at 5 %, adjusted by Holm.")
    if any(row.mean and row.mean.n == 1 for row in found.rows):
        lines.append("n = 1 has no interval and no verdict.")
    if len(gpus := sorted({gpu for row in found.rows for gpu in row.gpus})) > 1:
        lines.append(f"The runs trained on {', '.join(gpus)}.")
    lines += [f"Not in the table: {run} ({printable(why)})." for run, why in found.apart]
    if found.missing:
        lines.append(f"Not begun: {', '.join(found.missing)}.")
    return lines


def report_markdown(found: Results) -> str:
    """The same as Markdown."""
    rows = [HEADS, tuple("---" for _ in HEADS), *cells(found)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", *notes(found)])


def report_csv(found: Results) -> str:
    """One line for each experiment; lists are separated by blanks."""
    out = io.StringIO()
    rows = report_document(found)["rows"]
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row, of in zip(rows, found.rows, strict=True):
        values = " ".join(f"{seed}:{value}" for seed, value in row["values"].items())
        lists = {key: " ".join(row[key]) for key in ("gpus", "runs")}
        writer.writerow(row | lists | {"values": values, "changes": changes_text(of.point.changes)})
    return out.getvalue().rstrip("\n")


# --- The experiments and their costs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """Milliseconds of a step of one experiment on one card."""

    ms: float
    measured: bool
    """Of its own steps; otherwise scaled by FLOPs from another experiment."""


def paces(design: Design, seen: Seen) -> dict[str, dict[str, Pace]]:
    """By card and experiment: measured in the store, or as the file says, otherwise scaled."""
    flops = {name: design.plugin.cost(point.config).flops for name, point in design.points.items()}
    known: dict[str, dict[str, float]] = {card: dict(of) for card, of in design.study.cards.items()}
    for card, of in _measured(design, seen).items():
        known.setdefault(card, {}).update(of)
    found: dict[str, dict[str, Pace]] = {}
    for card, of in known.items():
        scale = {name: of[near] / flops[near] for name in design.points for near in [_nearest(design, name, of)]}
        found[card] = {name: Pace(of.get(name, scale[name] * flops[name]), name in of) for name in design.points}
    return found


def _nearest(design: Design, name: str, measured: Mapping[str, float]) -> str:
    """The measured experiment to scale from: itself, its nearest control, or the first one."""
    at: str | None = name
    while at is not None and at not in measured:
        at = design.points[at].control
    return at or next(iter(measured))


def _measured(design: Design, seen: Seen) -> dict[str, dict[str, float]]:
    """Milliseconds of a step by card and experiment, over all ended sessions of the study's runs."""
    spent: dict[tuple[str, str], tuple[int, int]] = {}
    for run in design.runs(design.points.values()):
        if (state := seen.state(run)) is None:
            continue
        for place, seconds, steps in (row for one in state.usage.values() for row in one.by_gpu):
            key = state.gpus[place], run.point.name
            before = spent.get(key, (0, 0))
            spent[key] = before[0] + seconds, before[1] + steps
    found: dict[str, dict[str, float]] = {}
    for (card, name), (seconds, steps) in spent.items():
        if steps >= MEASURED_STEPS:
            found.setdefault(card, {})[name] = 1000 * seconds / steps
    return found


def list_document(design: Design, points: Sequence[Point], seen: Seen) -> dict[str, Any]:
    """relay.study-list/1: hours are of one run; `left` of all seeds."""
    by_card = paces(design, seen)
    rows = []
    for point in points:
        cost, todo = design.plugin.cost(point.config), _steps_left(design, point, seen)
        hours = {card: of[point.name].ms * _own_steps(design, point) / 3.6e6 for card, of in by_card.items()}
        rows.append(
            {
                "experiment": point.name,
                "changes": dict(point.changes),
                "relation": relation_text(point) or None,
                "control": point.control,
                "why": point.experiment.why,
                "parameters": cost.parameters,
                "step_flops": cost.flops,
                "steps": point.steps,
                "hours": hours,
                "measured": {card: of[point.name].measured for card, of in by_card.items()},
                "steps_left": todo,
                "hours_left": {card: of[point.name].ms * todo / 3.6e6 for card, of in by_card.items()},
            }
        )
    return {
        "schema": "relay.study-list/1",
        "study": design.study.study,
        "project": design.project,
        "file_sha256": design.file.sha256,
        "seeds": list(design.seeds),
        "sweeps": {name: [str(one) for one in of] for name, of in design.study.sweeps.items()},
        "experiments": rows,
    }


def _own_steps(design: Design, point: Point) -> int:
    """Steps that the experiment adds to what it uses of others."""
    if not point.trained:
        return 0
    parent = point.experiment.continues
    return point.steps - (design.points[parent].steps if parent else 0)


def _steps_left(design: Design, point: Point, seen: Seen) -> int:
    """Over all seeds."""
    if not point.trained:
        return 0
    states: list[RunState | None] = [seen.state(StudyRun(point, seed)) for seed in design.seeds]
    own = _own_steps(design, point)
    return sum(own if state is None else max(0, point.steps - state.step) for state in states)


def list_text(document: Mapping[str, Any], design: Design, width: int | None, utf8: bool) -> str:
    """One row for each experiment; `~` marks hours that were scaled by FLOPs."""
    rows = document["experiments"]
    cards = list(rows[0]["hours"]) if rows else []
    points = [design.points[row["experiment"]] for row in rows]
    columns = [
        Column("experiment", [row["experiment"] for row in rows], whole=True),
        Column("change", [_spelled(_change(point), utf8) for point in points], widest=40),
        Column("M", [_millions(row["parameters"]) for row in rows], right=True),
        Column("TFLOP/step", [f"{row['step_flops'] / 1e12:.3g}" for row in rows], right=True),
        Column("steps", [f"{row['steps']:,}" for row in rows], right=True),
    ]
    for card in cards:
        hours = [_spelled(_hours(row["hours"][card], row["measured"][card]), utf8) for row in rows]
        columns.append(Column(f"h {card}", hours, rank=1, right=True))
    left = [f"{sum(row['hours_left'][card] for row in rows):.1f} h on one {card}" for card in cards]
    lines = [table(columns, width, utf8)]
    lines.append(f"Left with {counted(len(document['seeds']), 'seed')}: {', or '.join(left) or 'hours are unknown'}.")
    if cards:
        lines.append("~: scaled by FLOPs from steps that were measured. Evaluation and starts come on top.")
    return "\n".join(lines)


def _hours(hours: float, measured: bool) -> str:
    return f"{'' if measured else '~'}{hours:.2f}" if hours else "–"


def _millions(parameters: int | None) -> str:
    return "" if parameters is None else f"{parameters / 1e6:.3g}"
