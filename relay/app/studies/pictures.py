"""Draws a study: a dot for each seed with its interval, and the learning curves over steps, FLOPs and GPU-hours."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.app.messages.wording import metric
from relay.app.plots.style import Palette, head, page
from relay.app.studies.results import Results, Row
from relay.core.workload import Headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":", "-.")
PANEL = 2.4
"""Inches of one panel of curves."""


@dataclass(frozen=True)
class Learned:
    """The validation of one run: (step, GPU-hours, value), by step."""

    points: Sequence[tuple[int, float, float]]


def draw(
    found: Results, curves: Mapping[str, Mapping[int, Learned]], headline: Headline, title: str, colors: Palette
) -> Figure:
    """curves: by experiment and seed. To be called inside `style.drawing`."""
    shown = [row for row in found.rows if row.mean]
    drawn = {name: of for name, of in curves.items() if any(one.points for one in of.values())}
    flops = {row.point.name: row.flops / row.point.steps for row in found.rows}
    unit, size = ("PFLOP", 1e15) if max([*(row.flops for row in shown), 0.0]) >= 1e14 else ("TFLOP", 1e12)
    axes_of: list[tuple[str, Callable[[str, tuple[int, float, float]], float]]] = [
        ("step", lambda name, point: float(point[0])),
        (unit, lambda name, point: point[0] * flops[name] / size),
        ("GPU-hours", lambda name, point: point[1]),
    ]
    panels = len(axes_of) if drawn else 0
    high = 0.9 + 0.28 * max(1, len(shown))
    figure = page(title, 0.8 + high + PANEL * panels + 0.2 * (len(drawn) // 2 + 1))
    grid = figure.subplots(1 + panels, 1, height_ratios=[high, *([PANEL] * panels)], squeeze=False)[:, 0]
    _dots(grid[0], shown, found, colors)
    style = {
        name: (colors.people[n % len(colors.people)], DASHES[n // len(colors.people) % len(DASHES)])
        for n, name in enumerate(drawn)
    }
    for number, (axes, (label, across)) in enumerate(zip(grid[1:], axes_of, strict=False)):
        handles = [_curve(axes, name, of, across, *style[name]) for name, of in drawn.items()]
        head(axes, f"validation, {headline.title}, over {label}", handles if number == 0 else [])
        axes.set_xlabel(label)
        axes.yaxis.set_major_formatter(lambda value, _: format(value, headline.form))
        axes.margins(x=0.01)
    return figure


def _dots(axes: Axes, rows: Sequence[Row], found: Results, colors: Palette) -> None:
    """A dot a seed, mean and interval; the first experiment's mean as a line."""
    from matplotlib.ticker import FuncFormatter

    for place, row in enumerate(reversed(rows)):
        assert row.mean is not None
        axes.scatter(
            list(row.values.values()),
            [place] * len(row.values),
            s=16,
            color=colors.quiet,
            linewidths=0,
            alpha=0.8,
            gid=f"dots:{row.point.name}",
        )
        half = row.mean.half
        style: dict[str, Any] = {"color": colors.people[0], "zorder": 3, "gid": f"mean:{row.point.name}"}
        if half is not None:
            axes.errorbar([row.mean.value], [place], xerr=[half], fmt="D", markersize=4, capsize=3, **style)
        published = row.point.experiment.published
        if published is not None and found.metric == next(iter(found.design.study.metrics)):
            axes.scatter([published], [place], marker="x", s=24, color=colors.wrong, gid=f"published:{row.point.name}")
    control = next((row for row in rows if row.point.control is None), None)
    if control and control.mean:
        axes.axvline(control.mean.value, color=colors.handoff, linewidth=1, zorder=0, gid="control")
    axes.set_yticks(range(len(rows)), [row.point.name for row in reversed(rows)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: metric(found.metric, value, 3)))
    head(axes, found.metric, [], right="◆ mean ± 95 %   • a seed   × published")


def _curve(
    axes: Axes,
    name: str,
    of: Mapping[int, Learned],
    across: Callable[[str, tuple[int, float, float]], float],
    color: str,
    dash: str,
) -> Any:
    """The mean over seeds, and the band between the lowest and the highest."""
    lines = [[(across(name, point), point[2]) for point in one.points] for one in of.values() if one.points]
    low, high = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    at = sorted({x for line in lines for x, _ in line if low <= x <= high}) or [low]
    values = [[_between(line, x) for line in lines] for x in at]
    (drawn,) = axes.plot(
        at, [sum(each) / len(each) for each in values], dash, color=color, linewidth=1.4, label=name, gid=f"line:{name}"
    )
    if len(lines) > 1:
        axes.fill_between(at, [min(e) for e in values], [max(e) for e in values], color=color, alpha=0.15, linewidth=0)
    return drawn


def _between(line: Sequence[tuple[float, float]], x: float) -> float:
    """The value at x, on the straight line between two points."""
    after = bisect_right([at for at, _ in line], x)
    if after in (0, len(line)):
        return line[min(after, len(line) - 1)][1]
    (a, of_a), (b, of_b) = line[after - 1], line[after]
    return of_a + (of_b - of_a) * (x - a) / (b - a)
