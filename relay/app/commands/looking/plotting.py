"""`plot`: draws a run's curves and a timeline of its sessions into files; reads the same data as the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.messages.advice import command
from relay.app.messages.wording import counted
from relay.app.plots import style
from relay.core.errors import BadConfig, BadData

CURVES, TIMELINE = Path("curves.png"), Path("timeline.png")
"""Default file names."""


class Axis(Enum):
    """The x axis of the curves."""

    step = "step"
    time = "time"
    hours = "hours"


@subcommand("overrides run config redact")
def plot(
    call: Call,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The curves, as .png or .svg.", show_default=False)
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who trained when, as .png or .svg.", show_default=False)
    ] = None,
    x: Annotated[Axis, typer.Option(help="Curves over step, time or hours of lease (of one GPU each).")] = Axis.step,
    dark: Annotated[bool, typer.Option("--dark", help="Dark colors.")] = False,
) -> Answer:
    """Draw loss, accuracy and learning rate through everybody's sessions, and who trained when, as picture files."""
    wanted = {"curves": out, "timeline": timeline} if out or timeline else {"curves": CURVES, "timeline": TIMELINE}
    for path in filter(None, wanted.values()):
        style.check(path)
    style.require_matplotlib()
    from relay.app.commands.looking.source import Source  # imported here so that the other commands start faster

    source = Source(call.app, call.resolved, call.redact)
    document = source.told()
    require_sessions(document, begun=source.ledger.peek() is not None)
    files = [
        {"shows": shows} | draw(shows, call.app.cwd / path, document, x.value, dark)
        for shows, path in wanted.items()
        if path is not None
    ]
    lines = [f"{one['path']}: {about(one['shows'], document)}, {one['bytes']:,} bytes." for one in files]
    lines += document["notices"]
    return Answer({"schema": "relay.plot/1", "run": document["run"], "x": x.value, "files": files}, "\n".join(lines))


def require_sessions(document: Mapping[str, Any], begun: bool) -> None:
    """Raises BadConfig (78) for a run that has not begun, BadData (65) for one that had no session yet."""
    if not begun:
        raise BadConfig(" ".join(document["notices"]))
    if not document["sessions"]:
        raise BadData(f"Run {document['run']} has had no session yet. Train first: {command('run', document['run'])}")


def draw(shows: str, path: Path, document: Mapping[str, Any], x: str, dark: bool) -> dict[str, Any]:
    """Draw one picture into a file. Raises BadConfig (78), BadData (65)."""
    from relay.app.plots.curves import draw_curves
    from relay.app.plots.timeline import draw_timeline

    colors = style.palette(dark)
    curves = document["curves"]
    if shows == "curves" and not curves["line"]["step"] and not curves["redone"]["step"]:
        raise BadData(
            f"Run {document['run']} has no commit yet, so there are no curves; --timeline shows its sessions."
        )
    with style.drawing(colors):
        figure = draw_curves(document, x, colors) if shows == "curves" else draw_timeline(document, colors)
        return style.save(figure, path, f"{shows} of run {document['run']}")


def about(shows: str, document: Mapping[str, Any]) -> str:
    """Return the number of sessions or commits in the picture as text."""
    curves = document["curves"]
    if shows == "timeline":
        return f"{len(document['sessions']):,} of {document['sessions_total']:,} sessions"
    again = len(curves["redone"]["step"])
    return counted(curves["commits"], "commit") + (f", {counted(again, 'point')} trained again" if again else "")
