"""Draws loss, accuracy and learning rate through everybody's sessions, out of relay.dashboard/1; knows no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.dashboard.curves import VALIDATION
from relay.app.messages.wording import counted
from relay.app.plots.paper import WIDTH, Palette, dates, page, place, plain, write
from relay.app.plots.people import Person, by_epoch, people
from relay.app.plots.strokes import Point, Series, Stroke, best, handoffs, series_of, spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"step": "step", "time": "time (UTC)", "hours": "hours of lease, everybody's added up"}
GROUPS = {"loss": "Loss", "accuracy": "Accuracy", "rate": "Learning rate", "other": "Other numbers"}
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1.2, 1.6)),
    (0, (6, 1.6, 1.2, 1.6)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
    (0, (9, 3)),
    (0, (1, 3)),
    (0, (2, 1)),
)
"""As many as there are series at most."""
LEFT, RIGHT, ROW, STRIP, FOOT = 0.7, 0.32, 0.21, 0.17, 0.7
"""Inches, as are the next."""
HIGH = {"loss": 1.8, "accuracy": 1.8, "rate": 0.8, "other": 1.3}
FEW, MANY = 40, 60
"""Points of which each is marked; hand-offs of which each is seen well."""
SIGNS, SIGNED = ("", "s", "^", "v", "P", "X", "D", "p"), 9
"""Where sessions are short dashes cannot be told apart: lines but the first also carry a few signs."""
REDONE = "Hollow points were lost to damage and done again; the lines leave them out."


@dataclass(frozen=True)
class Chart:
    """One picture on its way."""

    document: Mapping[str, Any]
    x: str
    colours: Palette
    groups: Mapping[str, Sequence[Series]]
    known: Mapping[str, Person]
    owners: Mapping[int, Person]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """(text, colour) of each account, and of those for whom there is no colour left."""
        named = [(f"{one.number}  {one.label}", one.colour) for one in self.known.values() if one.number]
        rest = len(self.known) - len(named)
        return [*named, (f"{rest} more accounts", self.colours.others)] if rest else named


def draw_curves(document: Mapping[str, Any], x: str, colours: Palette) -> Figure:
    """The picture; within `drawing`. x: a key of AXES."""
    known = people(document, colours)
    owners = by_epoch(document, known, colours)
    chart = Chart(document, x, colours, series_of(document["curves"], x), known, owners)
    shown = [group for group in GROUPS if group in chart.groups]
    top = 0.78 + ROW * -(-len(chart.legend) // 2)
    figure = page(top + STRIP + sum(_head(chart, group) + HIGH[group] for group in shown) + FOOT)
    _title(figure, chart)
    panels = [_strip(figure, chart, top)]
    at = top + STRIP
    for group in shown:
        panels.append(_panel(figure, chart, group, at))
        at += _head(chart, group) + HIGH[group]
    _share(panels, chart)
    if document["curves"]["redone"]["step"]:
        write(figure, LEFT, at + 0.48, REDONE, color=colours.quiet, fontsize=8)
    return figure


def _head(chart: Chart, group: str) -> float:
    """Inches above a panel: its name, and which line is which."""
    return 0.36 + ROW * -(-len(_keys(chart, group)) // 2)


def _keys(chart: Chart, group: str) -> Sequence[Series]:
    """Lines to be told apart: not a single one that is called as its panel is."""
    series = chart.groups[group]
    return () if [one.title for one in series] == [GROUPS[group].lower()] else series


def _title(figure: Figure, chart: Chart) -> None:
    head, sessions = chart.document["header"], chart.document["sessions_total"]
    write(figure, 0.15, 0.12, chart.document["run"], fontsize=13, fontweight="bold")
    told = f"step {head['step']:,} of {head['target']:,}, {counted(sessions, 'session')}"
    write(figure, 0.15, 0.4, f"{told} of {counted(len(chart.known), 'account')}", color=chart.colours.quiet)
    for number, (text, colour) in enumerate(chart.legend):
        left, top = 0.15 + (WIDTH / 2 - 0.1) * (number % 2), 0.76 + ROW * (number // 2)
        write(figure, left, top, "■", color=colour, fontsize=12, va="center")
        write(figure, left + 0.2, top, text, va="center")


def _strip(figure: Figure, chart: Chart, top: float) -> Axes:
    """Whose each stretch of the line is, as colours and, where there is room, as numbers."""
    axes = place(figure, LEFT, top, WIDTH - LEFT - RIGHT, STRIP)
    found = spans(chart.document, chart.x)
    whole = found[-1][2] - found[0][1] if found else 0.0
    bars = [(begin, to - begin) for _, begin, to in found]
    axes.broken_barh(bars, (0.0, 1.0), facecolors=[chart.owners[epoch].colour for epoch, _, _ in found])
    for epoch, begin, to in found:
        if to - begin > 0.03 * whole:
            text = {"color": chart.colours.paper, "fontsize": 8, "fontweight": "bold", "ha": "center", "va": "center"}
            axes.text((begin + to) / 2, 0.45, chart.owners[epoch].number, text)
    axes.set_ylim(0, 1)
    axes.axis("off")
    return axes


def _panel(figure: Figure, chart: Chart, group: str, top: float) -> Axes:
    """One group of numbers under its head."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    series, colours = chart.groups[group], chart.colours
    axes = place(figure, LEFT, top + _head(chart, group), WIDTH - LEFT - RIGHT, HIGH[group])
    for number, one in enumerate(series):
        _lines(axes, chart, one, number)
        _redone(axes, chart, one)
    axes.margins(x=0.01, y=0.09)
    axes.autoscale_view()
    if group == "rate":
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3 if group == "rate" else 5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: told(group, value)))
    plain(axes)
    write(figure, 0.15, top + 0.16, GROUPS[group], fontsize=10.5, fontweight="bold")
    for number, one in enumerate(_keys(chart, group)):
        _key(figure, one, number, top + 0.46 + ROW * (number // 2), colours)
    marked = [text for one in series if (text := _mark(axes, chart, one, group))]
    if marked:
        write(figure, WIDTH - RIGHT, top + 0.18, "    ".join(marked), ha="right", color=colours.quiet)
    return axes


def _lines(axes: Axes, chart: Chart, one: Series, number: int) -> None:
    """Through everybody's sessions, each in its account's colour."""
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(
            [stroke.points for stroke in one.line],
            colors=[chart.owners[stroke.epoch].colour for stroke in one.line],
            linestyles=[DASHES[number % len(DASHES)]],
            linewidths=1.0 if number else 1.6,
            gid=f"line:{one.name}",
        )
    )
    dots, colours = _dots(chart, one.line, joined=True)
    validated = one.name == VALIDATION
    sign = SIGNS[number % len(SIGNS)]
    if validated or (not sign and len(dots) <= FEW):
        every = slice(None, None, 1 + len(dots) // (2 * FEW))
        axes.scatter(*_columns(dots[every]), s=20 if validated else 9, c=colours[every], linewidths=0, zorder=3)
    elif sign:
        every = slice(len(dots) // SIGNED // 2, None, max(1, len(dots) // SIGNED))
        axes.scatter(*_columns(dots[every]), s=16, marker=sign, c=chart.colours.ink, linewidths=0, zorder=3)


def _redone(axes: Axes, chart: Chart, one: Series) -> None:
    at, colours = _dots(chart, one.redone, joined=False)
    if at:
        hollow = axes.scatter(*_columns(at), s=16, facecolors="none", edgecolors=colours, linewidths=0.8, alpha=0.7)
        hollow.set_gid(f"redone:{one.name}")


def _dots(chart: Chart, strokes: Sequence[Stroke], joined: bool) -> tuple[list[Point], list[str]]:
    """Points, each once, and their colours."""
    found = [
        (point, chart.owners[stroke.epoch].colour)
        for number, stroke in enumerate(strokes)
        for point in stroke.points[1 if joined and number else 0 :]
    ]
    return [point for point, _ in found], [colour for _, colour in found]


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [at for at, _ in points], [value for _, value in points]


def _key(figure: Figure, one: Series, number: int, top: float, colours: Palette) -> None:
    """Which line is which."""
    from matplotlib.lines import Line2D

    wide, high = figure.get_size_inches()
    left = LEFT + (WIDTH - LEFT) / 2 * (number % 2)
    across, up = [left / wide, (left + 0.3) / wide], [1 - top / high] * 2
    style = DASHES[number % len(DASHES)]
    sign = "o" if one.name == VALIDATION else SIGNS[number % len(SIGNS)]
    line = Line2D(across, up, color=colours.quiet, linestyle=style, linewidth=1.4, marker=sign or None)
    line.set(markersize=4, markevery=[1], markerfacecolor=colours.ink, markeredgewidth=0)
    figure.add_artist(line)
    write(figure, left + 0.38, top, one.title, va="center")


def _mark(axes: Axes, chart: Chart, one: Series, group: str) -> str:
    """The best point of what checkpoints are chosen by, and the last point of each panel's first series."""
    found = []
    ink = chart.colours.ink
    if top := best(one):
        axes.scatter(*top, marker="*", s=90, color=ink, zorder=5, linewidths=0, gid="best")
        said = format(top[1], one.form) if one.form and group != "accuracy" else told(group, top[1])
        found.append(f"★ best on validation {said}")
    if one.points and one is chart.groups[group][0]:
        word = "final" if chart.document["header"]["phase"] == "finished" else "newest"
        axes.scatter(*one.points[-1], marker="D", s=22, color=ink, zorder=5, linewidths=0, gid="last")
        found.insert(0, f"◆ {word} {told(group, one.points[-1][1])}")
    return "    ".join(found)


def _share(panels: Sequence[Axes], chart: Chart) -> None:
    """One x axis for all, told below the last, with thin lines where a session went on from another's checkpoint."""
    low = min(axes.get_xlim()[0] for axes in panels[1:] or panels)
    high = max(axes.get_xlim()[1] for axes in panels[1:] or panels)
    began = handoffs(chart.document["sessions"], chart.x)
    for axes in panels:
        axes.set_xlim(low, high)
    for number in panels[0].texts:
        number.set_visible(low <= number.get_position()[0] <= high)  # else it would stand beside the picture
    for axes in panels[1:]:
        lines = axes.vlines(began, 0, 1, colors=chart.colours.handoff, transform=axes.get_xaxis_transform())
        lines.set(linewidth=0.6, alpha=min(1.0, MANY / max(1, len(began))), zorder=0.5, gid="handoffs")
        _ticks(axes, chart.x, last=axes is panels[-1])


def _ticks(axes: Axes, x: str, last: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if x == "time":
        dates(axes, year=last)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "step"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.tick_params(axis="x", labelbottom=last)
    if last:
        axes.set_xlabel(AXES[x])


def told(group: str, value: float) -> str:
    """A number as people read it: an accuracy as a share of the whole, a small one as 5e-5."""
    if group == "accuracy":
        return f"{100 * value:.4g} %"
    if value and abs(value) < 0.001:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.3g}"
