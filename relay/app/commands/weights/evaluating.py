"""`evaluate`: measures a checkpoint or a file of weights, and first prints how long that will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say
from relay.app.commands.weights.subject import RawOption, StepOption, WeightsOption, of_file, of_run
from relay.app.messages.wording import counted, duration, metric
from relay.app.models.registry import SPLITS
from relay.core.errors import BadConfig, BadData, UsageError
from relay.core.wholefile import write_whole
from relay.core.workload import Reading, Workload, read_as

SAMPLE, GROWTH, LONG_ENOUGH_S = 2, 4, 2.0
"""Rows of the first timed sample, factor to the next sample, and seconds from which a sample is long enough."""


@subcommand()
def evaluate(
    call: Call,
    rows: Annotated[int | None, typer.Option(min=1, help="Only the first rows.", show_default=False)] = None,
    split: Annotated[
        str, typer.Option(help=f"{SPLITS.reported} (reported) or {SPLITS.choosing} (chooses the best).")
    ] = SPLITS.reported,
    step: StepOption = None,
    weights: WeightsOption = None,
    raw: RawOption = False,
    recursions: Annotated[
        int | None,
        typer.Option(
            "--recursions",
            "--steps",
            min=1,
            max=9999,
            help="Recursions for each row, more or fewer than trained; default: as trained.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--submission",
            metavar="FILE",
            help="Also the answers, as a competition takes them.",
            show_default=False,
        ),
    ] = None,
) -> Answer:
    """Accuracy of a committed checkpoint's averaged (or raw) weights. Prints first how long all rows would take."""
    if split not in SPLITS.names:
        raise UsageError(f"--split is one of {', '.join(SPLITS.names)}, not {split!r}.")
    subject = of_file(call, weights) if weights else of_run(call, step)
    plugin = call.app.plugin
    reading = Reading(raw, recursions)
    with read_as(subject.workload, reading):
        metrics = measure(call.app, subject.workload, split, rows)
        statement = plugin.statement(subject.workload, subject.history)
    shares = plugin.measures.shares
    shown = ", ".join(f"{name} {metric(name, value, shares=shares)}" for name, value in metrics.items())
    numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    how = {"weights": "raw" if raw else "usual", "recursions": recursions}
    document = {"schema": "relay.evaluate/1", **subject.about, "split": split, **how, "metrics": numbers}
    lines = [f"{subject.whose}{told(reading)}, {split}: {shown}"]
    if statement:
        document |= {"provenance": statement.document, **statement.more}
        lines += statement.lines
    if out:
        lines.append(write_answers(plugin.answers(subject.workload), call.app.cwd / out))
    return Answer(document, "\n".join(lines))


def told(reading: Reading) -> str:
    """Return how the state was read, if not as usual: `, raw weights, 16 recursions`."""
    recursions = "" if reading.recursions is None else f", {counted(reading.recursions, 'recursion')}"
    return f"{', raw weights' if reading.raw else ''}{recursions}"


def write_answers(content: bytes | None, path: Path) -> str:
    """Write the answers whole or not at all; return a line. Raises BadConfig (78)."""
    if content is None:
        raise BadConfig("This evaluation has no answers in a competition's form. Leave --out out.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path.resolve() if path.is_symlink() else path, content)
    except OSError as error:
        raise BadConfig(f"{path} cannot be written: {error.strerror or error}. Choose another file.") from error
    return f"{path}: {len(content):,} bytes."


def measure(app: App, workload: Workload, split: str, rows: int | None) -> dict[str, float]:
    """Return the metrics of the first rows. Before that, print the time for all rows on stderr.

    If a sample already contained all requested rows, its result is used.
    """
    total = app.plugin.rows(workload, split)
    if not total:
        raise BadData(f"There are no {split} rows.")
    count = min(rows or total, total)
    done = dict[int, Mapping[str, float]]()

    def sample(number: int) -> None:
        done[number] = workload.evaluate(split, number)

    each = foretell(sample, count, app.runtime.monotonic)
    rest = f"; {counted(count, 'row')} {about(each, count)}" if count < total else ""
    say(f"All {counted(total, 'row')} would take {about(each, total)}{rest}.")
    return dict(done[count] if count in done else workload.evaluate(split, count))


def foretell(evaluate: Callable[[int], object], rows: int, monotonic: Callable[[], float]) -> tuple[float, float]:
    """Return the least and the greatest time for one row, in seconds.

    One estimate comes from the additional rows of the last sample, the other from the whole sample. The first rows
    warm up and do not count. Samples grow until one is long enough to be reliable.
    """
    size, timed = min(SAMPLE, rows), list[tuple[int, float]]()
    evaluate(size)
    while not timed or (timed[-1][1] < LONG_ENOUGH_S and timed[-1][0] < rows):
        size = min(rows, GROWTH * size) if timed else size
        began = monotonic()
        evaluate(size)
        timed.append((size, monotonic() - began))
    (before, quick), (size, took) = timed[-2] if len(timed) > 1 else (0, 0.0), timed[-1]
    each, more = took / size, (took - quick) / (size - before)
    return min(each, max(more, each / 2)), max(each, min(more, 2 * each))


def about(each: tuple[float, float], rows: int) -> str:
    """Return the time for that many rows as text."""
    least, most = (duration(seconds * rows) for seconds in each)
    return f"about {least}" if least == most else f"{least} to {most}"
