"""Shows a study's table as a document, text, CSV or Markdown, and the list of its experiments with their costs."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relay.app.messages.wording import counted, metric, printable
from relay.app.studies.experiments import Design, Point, StudyRun
from relay.app.studies.picking import Seen
from relay.app.studies.results import Results, Row
from relay.app.terminal.cells import Column, table

MEASURED_STEPS = 100
"""Steps from which a run's own pace on a card counts."""
HEADS = ("experiment", "change", "n", "mean", "to control", "verdict", "PFLOP", "GPU-h", "published")


def relation_text(point: Point) -> str | None:
    """`reads raw of X`, `same as X`, `continues X`; None for an experiment of its own."""
    one = point.experiment
    words = f"reads {one.reads} of" if one.reads else "same as" if one.same_as else "continues"
    return f"{words} {one.source}" if one.source else None


def change_text(point: Point) -> str:
    """The relation, or the changed settings without their groups: `H_cycles=2 lr=0.0005`."""
    settings = (f"{key.rpartition('.')[2]}={value}" for key, value in point.changes.items())
    return relation_text(point) or " ".join(settings) or "–"


def _spelled(text: str, utf8: bool) -> str:
    return text if utf8 else text.replace("±", "+-").replace("–", "-")


# --- The results ----------------------------------------------------------------------------------------------------


def report_document(found: Results) -> dict[str, Any]:
    """relay.study-report/1; numbers as they are, null where there is none."""
    return {
        "schema": "relay.study-report/1",
        **about(found.design),
        "metric": found.metric,
        "better": found.design.study.metrics[found.metric],
        "rows": [_row_document(row, found) for row in found.rows],
        "apart": [{"run": run, "why": why} for run, why in found.apart.items()],
        "missing": list(found.missing),
        "worth": found.worth.document if found.worth else None,
    }


def about(design: Design) -> dict[str, Any]:
    """Fields of every document of a study."""
    named = {"study": design.study.study, "project": design.project, "file_sha256": design.file.sha256}
    return {**named, "seeds": list(design.seeds)}


def _row_document(row: Row, found: Results) -> dict[str, Any]:
    point, mean, against = row.point, row.mean, row.against
    return {
        **_point_document(point),
        "n": mean.n if mean else 0,
        "values": {str(seed): value for seed, value in row.values.items()},
        "mean": mean.value if mean else None,
        "interval": mean.half if mean else None,
        "difference": against.difference if against else None,
        "difference_interval": against.half if against else None,
        "paired": against.paired if against else None,
        "p": against.p if against else None,
        "p_holm": row.adjusted if against else None,
        "verdict": row.verdict,
        "n_needed": row.needed,
        "published": point.experiment.published if found.metric == found.design.study.metric else None,
        "flops": row.flops,
        "gpu_hours": row.hours,
        "gpus": list(row.gpus),
        "runs": list(row.runs),
    }


def _point_document(point: Point) -> dict[str, Any]:
    own = {"experiment": point.name, "changes": dict(point.changes), "relation": relation_text(point)}
    return {**own, "control": point.control, "steps": point.steps}


def cells(found: Results) -> Iterator[tuple[str, ...]]:
    """The rows of the table, as texts under HEADS."""
    for row in found.rows:
        mean = _with_interval(found.metric, row.mean.value, row.mean.half) if row.mean else ""
        difference, verdict, published = "", row.verdict or "", row.point.experiment.published
        if row.against:
            sign = "+" if row.against.difference >= 0 else ""
            difference = sign + _with_interval(found.metric, row.against.difference, row.against.half)
            if verdict == "not told apart" and row.needed:
                verdict += f" (n = {row.needed:,} would)"
        yield (
            *(row.point.name, change_text(row.point), str(len(row.values)), mean, difference, verdict),
            f"{row.flops / 1e15:,.3g}",
            "" if row.hours is None else f"{row.hours:.2f}",
            metric(found.metric, published) if published and found.metric == found.design.study.metric else "",
        )


def _with_interval(name: str, value: float, half: float | None) -> str:
    return metric(name, value) + ("" if half is None else f" ± {metric(name, half)}")


def report_text(found: Results, width: int | None, utf8: bool) -> str:
    """The table, and its origin below it."""
    columns = [
        Column(
            head, [_spelled(cell, utf8) for cell in each], rank=0 if n < 6 else n, right=n in (2, 6, 7, 8), widest=32
        )
        for n, (head, each) in enumerate(zip(HEADS, zip(*cells(found), strict=True), strict=True))
    ]
    return "\n".join([table(columns, width, utf8), *(_spelled(line, utf8) for line in notes(found))])


def notes(found: Results) -> list[str]:
    """Origin of the table, and the runs that are not in it."""
    study, tests = found.design.study, sum(row.against is not None for row in found.rows)
    steps = found.design.points[study.first].steps
    at = f"{'' if steps == study.steps else f'{steps:,} of '}{counted(study.steps, 'step')}"
    gpus = sorted({gpu for row in found.rows for gpu in row.gpus})
    single = any(len(row.values) == 1 for row in found.rows)
    lines = [
        f"{study.study} (file {found.design.file.sha256[:12]}), {found.metric}, at {at} for "
        f"{study.first}. ± is a 95 % t-interval over seeds.",
        f"Verdicts: {counted(tests, 'comparison')} with the control at 5 %, adjusted by Holm." if tests else "",
        "n = 1 has no interval and no verdict." if single else "",
        f"The runs trained on {', '.join(gpus)}." if len(gpus) > 1 else "",
        *(f"Not in the table: {run} ({printable(why)})." for run, why in found.apart.items()),
        f"Not begun: {', '.join(found.missing)}." if found.missing else "",
        *(found.worth.lines if found.worth else ()),
    ]
    return [line for line in lines if line]


def report_markdown(found: Results) -> str:
    """The same as Markdown."""
    rows = [HEADS, ["---"] * len(HEADS), *cells(found)]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", *notes(found)])


def report_csv(found: Results) -> str:
    """One line for each experiment; lists are separated by blanks."""
    rows, out = report_document(found)["rows"], io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        pairs = {key: " ".join(f"{k}:{v}" for k, v in row[key].items()) for key in ("values", "changes")}
        writer.writerow(row | pairs | {key: " ".join(row[key]) for key in ("gpus", "runs")})
    return out.getvalue().rstrip("\n")


# --- The experiments and their costs --------------------------------------------------------------------------------


def paces(design: Design, seen: Seen) -> dict[str, dict[str, tuple[float, bool]]]:
    """By card and experiment: milliseconds of a step, and whether they were measured, in the store or as the file says.

    Others are scaled by FLOPs from the nearest control that was measured.
    """
    flops = {name: design.plugin.cost(point.config).flops for name, point in design.points.items()}
    known = defaultdict[str, dict[str, float]](dict, {card: dict(of) for card, of in design.study.cards.items()})
    for (card, name), (seconds, steps) in _spent(design, seen).items():
        if steps >= MEASURED_STEPS:
            known[card][name] = 1000 * seconds / steps
    found: dict[str, dict[str, tuple[float, bool]]] = {}
    for card, of in known.items():
        found[card] = {}
        for name in design.points:
            near: str | None = name
            while near is not None and near not in of:
                near = design.points[near].control
            near = near or next(iter(of))
            found[card][name] = of[near] * flops[name] / flops[near], near == name
    return found


def _spent(design: Design, seen: Seen) -> dict[tuple[str, str], tuple[int, int]]:
    """Seconds and steps of ended sessions, by card and experiment."""
    spent = defaultdict[tuple[str, str], tuple[int, int]](lambda: (0, 0))
    for run in design.runs(design.points.values()):
        if (state := seen.state(run)) is None:
            continue
        for place, seconds, steps in (row for one in state.usage.values() for row in one.by_gpu):
            key = state.gpus[place], run.point.name
            spent[key] = spent[key][0] + seconds, spent[key][1] + steps
    return spent


def list_document(design: Design, points: Sequence[Point], seen: Seen) -> dict[str, Any]:
    """relay.study-list/1: hours are of one run; those left are of all seeds."""
    by_card, rows = paces(design, seen), []
    for point in points:
        cost, before = design.plugin.cost(point.config), point.experiment.continues
        own = point.steps - (design.points[before].steps if before else 0) if point.trained else 0
        states = [seen.state(StudyRun(point, seed)) for seed in design.seeds]
        todo = sum(max(0, point.steps - state.step) if state else own for state in states) if point.trained else 0
        ms = {card: of[point.name] for card, of in by_card.items()}
        rows.append(
            {
                **_point_document(point),
                "why": point.experiment.why,
                "parameters": cost.parameters,
                "step_flops": cost.flops,
                "hours": {card: each * own / 3.6e6 for card, (each, _) in ms.items()},
                "measured": {card: measured for card, (_, measured) in ms.items()},
                "steps_left": todo,
                "hours_left": {card: each * todo / 3.6e6 for card, (each, _) in ms.items()},
            }
        )
    return {"schema": "relay.study-list/1", **about(design), "sweeps": design.study.lists, "experiments": rows}


def list_text(document: Mapping[str, Any], points: Sequence[Point], width: int | None, utf8: bool) -> str:
    """One row for each experiment; `~` marks hours that were scaled by FLOPs."""
    rows = document["experiments"]
    columns = [
        Column("experiment", [point.name for point in points], whole=True),
        Column("change", [_spelled(change_text(point), utf8) for point in points], widest=40),
        Column("M", ["" if (n := row["parameters"]) is None else f"{n / 1e6:.3g}" for row in rows], right=True),
        Column("TFLOP/step", [f"{row['step_flops'] / 1e12:.3g}" for row in rows], right=True),
        Column("steps", [f"{row['steps']:,}" for row in rows], right=True),
    ]
    left = []
    for card in rows[0]["hours"]:
        hours = [
            f"{'' if row['measured'][card] else '~'}{hours:.2f}" if (hours := row["hours"][card]) else ""
            for row in rows
        ]
        columns.append(Column(f"h {card}", hours, rank=1, right=True))
        left.append(f"{sum(row['hours_left'][card] for row in rows):.1f} h on one {card}")
    lines = [table(columns, width, utf8)]
    lines.append(f"Left with {counted(len(document['seeds']), 'seed')}: {', or '.join(left) or 'hours are unknown'}.")
    lines += ["~: scaled by FLOPs from steps that were measured. Evaluation and starts come on top."] if left else []
    return "\n".join(lines)
