"""Draws a timeline from relay.dashboard/1: one lane for each account, one bar for each session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.messages.wording import counted
from relay.app.plots.lines import DAY, labels, longest
from relay.app.plots.style import WIDTH, Palette, dates, head, page, rows, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LANE, FOOT = 0.44, 1.4
"""Inches: one lane; title and foot together."""
BAR, HIGH = 0.5, 0.36
"""Top and height of a bar within its lane, in lanes."""
MOST_LANES = 40
LEAST = 0.006
"""Least width of a bar as a share of the picture, so that short sessions are visible."""


@dataclass(frozen=True)
class EndStyle:
    """Style of one kind of end: color, pattern and mark; `broken` bars are half as high."""

    words: str
    color: int | None
    """Index into the palette's `people`; None: its `others`."""
    hatch: str = ""
    mark: str = ""
    broken: bool = False

    def style(self, colors: Palette) -> dict[str, Any]:
        """Return Matplotlib properties of the bars."""
        fill = colors.others if self.color is None else colors.people[self.color]
        return {"facecolor": fill, "edgecolor": colors.paper, "linewidth": 0.4, "hatch": self.hatch}


ENDS = {
    "planned": EndStyle("ended as planned", 0),
    "reached": EndStyle("reached the target", 2, mark="*"),
    "open": EndStyle("training", 4, hatch="...", mark=">"),
    "stopped": EndStyle("asked or told to stop", 5, hatch="////"),
    "killed": EndStyle("killed", 1, mark="x", broken=True),
    "fenced": EndStyle("lost its lease", 3, hatch="\\\\\\\\", mark="d", broken=True),
    "failed": EndStyle("failed", None, mark="v", broken=True),
}
"""By `kind` in a session's row."""


def draw_timeline(document: Mapping[str, Any], colors: Palette) -> Figure:
    """Draw the picture; call within `drawing`. Times are the store's clock, in UTC."""
    sessions = document["sessions"]
    lanes = longest(sessions, MOST_LANES)
    keys = [_key(end, colors) for kind, end in ENDS.items() if any(row["kind"] == kind for row in sessions)]
    figure = page(document["run"], FOOT + rows(keys) + LANE * len(lanes), _unshown(document, lanes))
    axes = figure.subplots()
    about = f"who trained when: {counted(len(sessions), 'session')}, {document['header']['hours']:,.1f} hours of lease"
    head(axes, about, keys, weight="normal")
    _bars(axes, sessions, lanes, colors)
    called = labels(document)
    for number, account in enumerate(lanes):
        text = shown(called.get(account, account), account, WIDTH - 0.4)
        axes.text(0, number + 0.42, text, transform=axes.get_yaxis_transform(), va="bottom", fontsize=8.5)
        axes.axhline(number + 0.94, color=colors.rule, linewidth=0.7, zorder=0)
    dates(axes)
    axes.grid(axis="x")
    axes.set(yticks=[], xlabel="time (UTC)")
    axes.spines["bottom"].set_visible(False)
    return figure


def _unshown(document: Mapping[str, Any], lanes: Sequence[str]) -> str:
    accounts = len({row["account"] for row in document["sessions"]}) - len(lanes)
    sessions = document["sessions_total"] - len(document["sessions"])
    missing = [counted(accounts, "more account")] if accounts else []
    missing += [counted(sessions, "older session")] if sessions > 0 else []
    return f"Not shown: {' and '.join(missing)}." if missing else ""


def _key(end: EndStyle, colors: Palette) -> Any:
    """Return a legend handle: a bar and its mark."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    bar = Patch(**end.style(colors), label=end.words)
    mark = Line2D([], [], linestyle="", marker=end.mark, color=colors.ink, markersize=5, label=end.words)
    return (bar, mark) if end.mark else bar


def _bars(axes: Axes, sessions: Sequence[Mapping[str, Any]], lanes: Sequence[str], colors: Palette) -> None:
    """Draw the sessions at their times; short ones are drawn at the least visible width."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    began = min(row["started"] for row in sessions) / DAY
    ended = max(row["started"] + max(row["seconds"], 60) for row in sessions) / DAY
    least = LEAST * (ended - began)
    axes.set(xlim=(began - least, ended + 2 * least), ylim=(len(lanes), 0))
    for kind, end in ENDS.items():
        foot = HIGH / 2 if end.broken else 0.0
        bars = [
            Rectangle(
                (row["started"] / DAY, lanes.index(row["account"]) + BAR + foot),
                max(least, row["seconds"] / DAY),
                HIGH - foot,
            )
            for row in sessions
            if row["kind"] == kind and row["account"] in lanes
        ]
        axes.add_collection(PatchCollection(bars, gid=f"end:{kind}", **end.style(colors)))
        if end.mark:  # above a half-height bar, inside any other
            at = (
                [bar.get_center()[0] for bar in bars],
                [bar.get_y() - foot + HIGH * (0.25 if foot else 0.5) for bar in bars],
            )
            wide = 1.2 if end.mark == "x" else 0
            axes.scatter(*at, marker=end.mark, color=colors.ink, s=16, linewidths=wide, zorder=3)
