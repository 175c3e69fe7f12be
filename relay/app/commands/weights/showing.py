"""`examples`: shows the answers of a checkpoint to a few rows, as text, picture or document."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, emit, say, speaks_utf8
from relay.app.commands.weights.subject import RawOption, StepOption, Subject, WeightsOption, of_file, of_run
from relay.app.models.plugin import Examples
from relay.app.models.registry import SPLITS
from relay.app.plots import style
from relay.app.terminal.cells import plain, printed
from relay.app.terminal.paragraphs import terminal_width
from relay.core.errors import BadData, UsageError

FEW, MOST = 2, 100
"""Default and greatest number of rows."""
WIDTH = 80
"""Columns if the output is not a terminal."""


@subcommand()
def examples(
    call: Call,
    first: Annotated[int, typer.Option(min=1, max=MOST, help="The first rows.")] = FEW,
    rows: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Those rows instead, from 1: 3,17 or 5-8.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help=f"{' or '.join(SPLITS.names)}.")] = SPLITS.reported,
    step: StepOption = None,
    weights: WeightsOption = None,
    raw: RawOption = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also a picture, as .png or .svg.", show_default=False)
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Dark colors in the picture.")] = False,
) -> Answer | None:
    """Show what a checkpoint answers to some rows, step by step. Needs no GPU."""
    _check(split, weights, raw, step, out)
    app = call.app
    subject = of_file(call, weights) if weights else of_run(call, step, own_data=False)
    found = app.plugin.examples(subject.workload, split, chosen(app, subject, split, rows, first), raw)
    called = subject.whose if weights else f"{subject.whose}, {found.weights} weights"
    told: dict[str, Any] = {
        "schema": "relay.examples/1",
        **subject.about,
        "weights": None if weights else found.weights,
        "split": split,
        **found.document(),
    }
    if out:
        told["picture"] = draw(found, app.cwd / out, f"{called}, {split} rows", dark)
    if call.as_json:
        return Answer(told, "")
    show(found, f"{called}, {split} rows")
    if out:
        say(f"{told['picture']['path']}: {told['picture']['bytes']:,} bytes.")
    return None


def _check(split: str, weights: Path | None, raw: bool, step: int | None, out: Path | None) -> None:
    """Check the options before anything is read. Raises UsageError (2), BadConfig (78)."""
    if split not in SPLITS.names:
        raise UsageError(f"--split is one of {', '.join(SPLITS.names)}, not {split!r}.")
    if weights and (raw or step is not None):
        raise UsageError("--weights names a file, which holds one kind of weights: --raw and --step belong to a run.")
    if out:
        style.check(out)
        style.require_matplotlib()


def chosen(app: App, subject: Subject, split: str, rows: str | None, first: int) -> list[int]:
    """Return the numbers of the requested rows, from 1. Raises UsageError (2), BadData (65)."""
    total = app.plugin.rows(subject.workload, split)
    if not total:
        raise BadData(f"There are no {split} rows.")
    if rows is None:
        return list(range(1, min(first, total) + 1))
    wanted = numbers(rows)
    if odd := [row for row in wanted if not 1 <= row <= total]:
        raise UsageError(f"There is no {split} row {odd[0]:,}: there are rows 1 to {total:,}.")
    return wanted


def numbers(text: str) -> list[int]:
    """Parse `3,17` or `5-8` into numbers, in the given order. Raises UsageError (2)."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = [low, high if dash else low]
        if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
            raise UsageError(f"--rows takes numbers as 3,17 or 5-8, not {text[:60]!r}.")
        found += range(int(low), min(int(ends[1]), int(low) + MOST) + 1)
    if not 0 < len(found) <= MOST:
        raise UsageError(f"--rows {text[:60]} names {len(found) or 'no'} rows; at most {MOST} are shown at once.")
    return found


def show(found: Examples, title: str) -> None:
    """Print to stdout, with colors if it is a terminal that wants colors."""
    from rich.console import Console

    lines = found.text(terminal_width() or WIDTH, speaks_utf8())
    emit(False, {}, title)
    if sys.stdout.isatty():
        printed(lines, Console(file=sys.stdout))
    else:
        emit(False, {}, plain(lines))


def draw(found: Examples, path: Path, title: str, dark: bool) -> dict[str, Any]:
    """Write the picture to a file. Raises BadConfig (78)."""
    colors = style.palette(dark)
    with style.drawing(colors):
        return style.save(found.figure(title, colors), path, title)
