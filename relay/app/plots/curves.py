"""Draws loss, accuracy and learning rate over all sessions, from relay.dashboard/1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.dashboard.curves import VALIDATION
from relay.app.messages.wording import counted
from relay.app.plots.lines import Point, Series, handoffs, labels, longest, series_of, spans
from relay.app.plots.style import Palette, dates, head, page, rows, shown

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
"""As many as the lines of a panel; a page can show more series."""
SIGNS, SIGNED = ("", "s", "^", "v", "P", "X", "D", "p"), 9
"""Markers of each line but the first, and their number: in short sessions dashes are indistinguishable."""
HIGH = {"loss": 1.8, "accuracy": 1.8, "rate": 0.8, "other": 1.3}
STRIP, HEAD, FOOT = 0.17, 0.5, 1.2
"""Inches: the strip of accounts, the space above each panel, title and foot together."""
LABEL = 1.9
"""Inches of an account's label; two fit side by side."""
FEW, MANY = 40, 60
"""Most points that are all marked; most hand-off lines at full opacity."""
REDONE = "Hollow points were lost to damage and done again; the lines leave them out."


@dataclass(frozen=True)
class Owners:
    """The account of each session, as a color and, while colors last, a number."""

    accounts: Mapping[int, str]
    numbers: Mapping[str, int]
    colors: Palette

    def number(self, epoch: int) -> str:
        """Return the account's number; empty if the account has no color or the session is no longer listed."""
        place = self.numbers.get(self.accounts.get(epoch, ""))
        return "" if place is None else str(place + 1)

    def color(self, epoch: int) -> str:
        """Return the account's color."""
        place = self.numbers.get(self.accounts.get(epoch, ""))
        return self.colors.others if place is None else self.colors.people[place]


def draw_curves(document: Mapping[str, Any], x: str, colors: Palette) -> Figure:
    """Draw the picture; call within `drawing`. `x`: a key of AXES."""
    series = {group: found[: len(DASHES)] for group, found in series_of(document["curves"], x).items()}
    groups = [group for group in GROUPS if group in series]
    numbered = longest(document["sessions"], len(colors.people))
    accounts = {row["epoch"]: row["account"] for row in document["sessions"]}
    owners = Owners(accounts, {account: place for place, account in enumerate(numbered)}, colors)
    people = _people(document, numbered, colors)
    keys = {group: _keys(series[group], GROUPS[group], colors) for group in groups}
    height = FOOT + STRIP + rows(people) + sum(HEAD + rows(keys[group]) + HIGH[group] for group in groups)
    figure = page(document["run"], height, REDONE if document["curves"]["redone"]["step"] else "")
    heights = [STRIP, *(HIGH[group] for group in groups)]
    strip, *panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for group, axes in zip(groups, panels, strict=True):
        marks = _panel(axes, series[group], group, owners, document["header"]["phase"] == "finished")
        head(axes, GROUPS[group], keys[group], marks)
    _axis(panels[-1] if panels else strip, x)
    began = handoffs(document["sessions"], x)
    for axes in panels:
        lines = axes.vlines(began, 0, 1, colors=colors.handoff, transform=axes.get_xaxis_transform())
        lines.set(linewidth=0.6, alpha=min(1.0, MANY / max(1, len(began))), zorder=0.5, gid="handoffs")
    head(strip, _about(document, len(set(accounts.values()))), people, weight="normal")
    _strip(strip, spans(document, x), owners)
    return figure


def _about(document: Mapping[str, Any], accounts: int) -> str:
    at, sessions = document["header"], document["sessions_total"]
    return f"step {at['step']:,} of {at['target']:,}, {counted(sessions, 'session')} of {counted(accounts, 'account')}"


def _people(document: Mapping[str, Any], numbered: Sequence[str], colors: Palette) -> list[Any]:
    """Return legend handles: each account with a color, and one for all others."""
    from matplotlib.patches import Patch

    called = labels(document)
    named = [f"{n}  {shown(called.get(account, account), account, LABEL)}" for n, account in enumerate(numbered, 1)]
    rest = len({row["account"] for row in document["sessions"]}) - len(numbered)
    told = [
        *zip(named, colors.people, strict=False),
        *([(counted(rest, "more account"), colors.others)] if rest else []),
    ]
    return [Patch(color=color, label=text) for text, color in told]


def _keys(series: Sequence[Series], title: str, colors: Palette) -> list[Any]:
    """Return legend handles, one for each line; none for a single line named like the panel."""
    from matplotlib.lines import Line2D

    if [one.title for one in series] == [title.lower()]:
        return []
    style: dict[str, Any] = {"color": colors.quiet, "linewidth": 1.4, "markersize": 4, "markeredgewidth": 0}
    return [
        Line2D(
            [],
            [],
            linestyle=DASHES[n],
            marker=_sign(one, n) or None,
            markerfacecolor=colors.ink,
            **style,
            label=one.title,
        )
        for n, one in enumerate(series)
    ]


def _sign(one: Series, number: int) -> str:
    return "o" if one.name == VALIDATION else SIGNS[number]


def _panel(axes: Axes, series: Sequence[Series], group: str, owners: Owners, finished: bool) -> str:
    """Draw one group of metrics; returns the key to its marks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for number, one in enumerate(series):
        _line(axes, one, number, owners)
        _redone(axes, one, owners)
    axes.margins(x=0.01, y=0.09)
    axes.autoscale_view()
    if group == "rate":
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3 if group == "rate" else 5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: told(group, value)))
    marks: list[tuple[str, str, Point]] = []
    if series[0].points:
        _, last = series[0].points[-1]
        marks.append(("D", f"◆ {'final' if finished else 'newest'} {told(group, last[1])}", last))
    for one in series:
        if best := one.best:
            said = format(best[1], one.form) if one.form and group != "accuracy" else told(group, best[1])
            marks.append(("*", f"★ best on validation {said}", best))
    for sign, _, point in marks:
        size, name = (90, "best") if sign == "*" else (22, "last")
        axes.scatter(*point, marker=sign, s=size, color=owners.colors.ink, zorder=5, linewidths=0, gid=name)
    return "    ".join(text for _, text, _ in marks)


def _line(axes: Axes, one: Series, number: int, owners: Owners) -> None:
    """Draw one series over all sessions in their accounts' colors, with markers if it has few points or a sign."""
    from matplotlib.collections import LineCollection

    strokes = [stroke.points for stroke in one.line]
    colors = [owners.color(stroke.epoch) for stroke in one.line]
    wide = 1.0 if number else 1.6
    lines = LineCollection(strokes, colors=colors, linestyles=[DASHES[number]], linewidths=wide, gid=f"line:{one.name}")
    axes.add_collection(lines)
    sign, points = _sign(one, number), one.points
    if sign == "o" or (not sign and len(points) <= FEW):
        points = points[:: 1 + len(points) // (2 * FEW)]
        size, colors = 20 if sign else 9, [owners.color(epoch) for epoch, _ in points]
    elif sign:
        points = points[len(points) // SIGNED // 2 :: max(1, len(points) // SIGNED)]
        size, colors = 16, [owners.colors.ink] * len(points)
    else:
        return
    axes.scatter(*_columns(points), s=size, marker=sign or "o", c=colors, linewidths=0, zorder=3)


def _redone(axes: Axes, one: Series, owners: Owners) -> None:
    points = [(stroke.epoch, point) for stroke in one.redone for point in stroke.points]
    if points:
        colors = [owners.color(epoch) for epoch, _ in points]
        style: dict[str, Any] = {"facecolors": "none", "edgecolors": colors, "linewidths": 0.8, "alpha": 0.7}
        axes.scatter(*_columns(points), s=16, gid=f"redone:{one.name}", **style)


def _columns(points: Sequence[tuple[int, Point]]) -> tuple[list[float], list[float]]:
    return [at for _, (at, _) in points], [value for _, (_, value) in points]


def _axis(axes: Axes, x: str) -> None:
    """Set up the shared x axis; only the points set its limits."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(axes.get_xlim())
    if x == "time":
        dates(axes)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=x == "step"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel(AXES[x])


def _strip(axes: Axes, found: Sequence[tuple[int, float, float]], owners: Owners) -> None:
    """Draw the account of each part of the line, as a color and, if it fits, a number."""
    axes.broken_barh(
        [(begin, long) for _, begin, long in found], (0.0, 1.0), facecolors=[owners.color(one[0]) for one in found]
    )
    low, high = axes.get_xlim()
    style: dict[str, Any] = {"color": owners.colors.paper, "size": 8, "weight": "bold", "ha": "center", "va": "center"}
    for epoch, begin, long in found:
        if long > 0.03 * (high - low):
            axes.annotate(owners.number(epoch), (begin + long / 2, 0.45), annotation_clip=True, **style)
    axes.set_ylim(0, 1)
    axes.axis("off")


def told(group: str, value: float) -> str:
    """Return a number for people: an accuracy in percent, a small number as 5e-5."""
    if group == "accuracy":
        return f"{100 * value:.4g} %"
    if value and abs(value) < 0.001:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.3g}"
