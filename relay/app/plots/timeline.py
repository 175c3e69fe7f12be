"""Draws who trained when: a lane an account, a bar a session by how it ended, out of relay.dashboard/1; no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.messages.wording import counted
from relay.app.plots.paper import DARK, WIDTH, Palette, dates, page, place, shown, write
from relay.app.plots.people import labels, longest
from relay.app.plots.strokes import DAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EDGE, ROW, LANE, FOOT = 0.2, 0.21, 0.44, 0.55
"""Inches."""
BAR, HIGH = 0.5, 0.36
"""Top and height of a bar within its lane, in lanes."""
MOST_LANES = 40
LEAST = 0.006
"""Of the picture's width: a shorter session is drawn this wide, so that it can be seen."""


@dataclass(frozen=True)
class End:
    """How one kind of end is drawn: by colour, by pattern, and, where training broke off, half as high with a mark."""

    words: str
    light: str
    dark: str
    hatch: str = ""
    mark: str = ""


ENDS = {
    "planned": End("ended as planned", "#0072b2", "#56b4e9"),
    "reached": End("reached the target", "#009e73", "#2fc49a", mark="*"),
    "open": End("trains now", "#d9a300", "#f0d34a", hatch="...", mark=">"),
    "stopped": End("asked or told to stop", "#7a52b3", "#b797ea", hatch="////"),
    "killed": End("killed", "#d55e00", "#f0824a", mark="x"),
    "fenced": End("lost its lease", "#b0487f", "#e29bc4", hatch="\\\\\\\\", mark="d"),
    "failed": End("failed", "#3c4450", "#c3ccd6", mark="v"),
}
"""By `kind` of a session's row. Colours after Okabe and Ito (2008)."""
BROKEN = ("killed", "fenced", "failed")


def draw_timeline(document: Mapping[str, Any], colours: Palette) -> Figure:
    """The picture; within `drawing`. The store's clock, told in UTC."""
    rows = document["sessions"]
    lanes = longest(rows, MOST_LANES)
    kinds = [kind for kind in ENDS if any(row["kind"] == kind for row in rows)]
    top = 0.74 + ROW * -(-len(kinds) // 2)
    figure = page(top + LANE * len(lanes) + FOOT + (ROW if _unshown(document, lanes) else 0))
    write(figure, EDGE, 0.12, document["run"], fontsize=13, fontweight="bold")
    told = f"who trained when: {counted(len(rows), 'session')}, {document['header']['hours']:,.1f} hours of lease"
    write(figure, EDGE, 0.4, told, color=colours.quiet)
    _legend(figure, kinds, colours)
    axes = place(figure, EDGE, top, WIDTH - 2 * EDGE, LANE * len(lanes))
    _bars(axes, rows, lanes, colours)
    _lanes(axes, document, lanes, colours)
    _time(axes)
    if text := _unshown(document, lanes):
        write(figure, EDGE, top + LANE * len(lanes) + 0.48, text, color=colours.quiet, fontsize=8)
    return figure


def _unshown(document: Mapping[str, Any], lanes: Sequence[str]) -> str:
    accounts = len({row["account"] for row in document["sessions"]}) - len(lanes)
    sessions = document["sessions_total"] - len(document["sessions"])
    missing = [f"{accounts} more accounts"] if accounts else []
    missing += [f"{sessions:,} older sessions"] if sessions > 0 else []
    return f"Not shown: {' and '.join(missing)}." if missing else ""


def _legend(figure: Figure, kinds: Sequence[str], colours: Palette) -> None:
    """Two in a row, each as its bars are drawn."""
    for number, kind in enumerate(kinds):
        left, top = EDGE + (WIDTH / 2 - 0.1) * (number % 2), 0.74 + ROW * (number // 2)
        axes = place(figure, left, top - 0.085, 0.34, 0.17)
        axes.set(xlim=(0, 1), ylim=(1, 0))
        axes.axis("off")
        _draw(axes, kind, [(0.0, 1.0, 0.0)], 1.0, colours)
        write(figure, left + 0.42, top, ENDS[kind].words, va="center")


def _bars(axes: Axes, rows: Sequence[Mapping[str, Any]], lanes: Sequence[str], colours: Palette) -> None:
    """Each session where it was; as long as it took, unless that could not be seen."""
    began = min(row["started"] for row in rows) / DAY
    ended = max(row["started"] + max(row["seconds"], 60) for row in rows) / DAY
    least = LEAST * (ended - began)
    axes.set_xlim(began - least, ended + 2 * least)
    axes.set_ylim(len(lanes), 0)
    for kind in ENDS:
        _draw(
            axes,
            kind,
            [
                (row["started"] / DAY, max(least, row["seconds"] / DAY), lanes.index(row["account"]) + BAR)
                for row in rows
                if row["kind"] == kind and row["account"] in lanes
            ],
            HIGH,
            colours,
        )


def _draw(axes: Axes, kind: str, bars: Sequence[tuple[float, float, float]], high: float, colours: Palette) -> None:
    """Bars of one kind, (left, width, top) each; a mark stands on those that are half as high, in the others."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    end, half = ENDS[kind], kind in BROKEN
    colour = end.dark if colours is DARK else end.light
    foot = high / 2 if half else 0.0
    drawn = [Rectangle((left, top + foot), wide, high - foot) for left, wide, top in bars]
    style: dict[str, Any] = {"facecolor": colour, "edgecolor": colours.paper, "linewidth": 0.4, "hatch": end.hatch}
    axes.add_collection(PatchCollection(drawn, gid=f"end:{kind}", **style))
    if end.mark:
        at = [left + wide / 2 for left, wide, _ in bars], [top + high * (0.25 if half else 0.5) for _, _, top in bars]
        axes.scatter(*at, marker=end.mark, color=colours.ink, s=16, linewidths=1.2 if end.mark == "x" else 0, zorder=3)


def _lanes(axes: Axes, document: Mapping[str, Any], lanes: Sequence[str], colours: Palette) -> None:
    """Whose each lane is, above its bars."""
    called = labels(document)
    for number, account in enumerate(lanes):
        text = shown(called.get(account, account), account, WIDTH - 2 * EDGE)
        axes.text(0, number + 0.42, text, transform=axes.get_yaxis_transform(), va="bottom", fontsize=8.5)
        axes.axhline(number + 0.94, color=colours.rule, linewidth=0.7, zorder=0)


def _time(axes: Axes) -> None:
    dates(axes)
    axes.set_xlabel("time (UTC)")
    axes.tick_params(length=0, labelleft=False)
    axes.grid(axis="x", linewidth=0.7)
    for spine in axes.spines.values():
        spine.set_visible(False)
