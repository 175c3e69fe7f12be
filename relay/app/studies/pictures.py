"""Draws a study: a dot for each seed with its interval, and the learning curves over steps, FLOPs and GPU-hours."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relay.app.messages.wording import metric
from relay.app.plots.style import Palette, head, page
from relay.app.studies.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":", "-.")
PANEL, ROW = 2.4, 0.28
"""Inches of one panel of curves, and of one experiment's dots."""
Learned = Sequence[tuple[int, float, float]]
"""The learning curve of one run: (step, GPU-hours, value), by step."""


def draw(found: Results, curves: Mapping[str, Sequence[Learned]], curve: str, title: str, colors: Palette) -> Figure:
    """curves: those of each experiment's seeds, of the metric `curve`. To be called within `style.drawing`."""
    shown = [row for row in found.rows if row.mean]
    unit, size = ("PFLOP", 1e15) if max(row.flops for row in shown) >= 1e14 else ("TFLOP", 1e12)
    flops = {row.point.name: row.flops / row.point.steps / size for row in shown}
    drawn = {name: lines for name, of in curves.items() if (lines := [line for line in of if line])}
    panels = ("steps", unit, "GPU-hours") if drawn else ()
    high = 0.9 + ROW * len(shown)
    figure = page(title, 0.8 + high + PANEL * len(panels) + 0.2 * (len(drawn) // 2 + 1))
    ratios = [high, *(PANEL for _ in panels)]
    first, *others = figure.subplots(len(ratios), 1, height_ratios=ratios, squeeze=False)[:, 0]
    _dots(first, found, colors)
    for axes, label in zip(others, panels, strict=True):
        handles = []
        for n, (name, of) in enumerate(drawn.items()):
            placed = [[(_across(label, point, flops[name]), point[2]) for point in line] for line in of]
            color, dash = colors.people[n % len(colors.people)], DASHES[n // len(colors.people) % len(DASHES)]
            handles.append(_curve(axes, name, placed, color, dash))
        head(axes, f"{curve} over {label}", handles if label == "steps" else [])
        axes.set_xlabel(label)
        axes.yaxis.set_major_formatter(lambda value, _: metric(curve, value, 3))
        axes.margins(x=0.01)
    return figure


def _across(label: str, point: tuple[int, float, float], flops: float) -> float:
    """A point's place on one of the axes. flops: of a step."""
    return point[0] if label == "steps" else point[1] if label == "GPU-hours" else point[0] * flops


def _dots(axes: Axes, found: Results, colors: Palette) -> None:
    """A dot a seed, mean and interval; the first experiment's mean as a line."""
    rows = [row for row in reversed(found.rows) if row.mean]
    for place, row in enumerate(rows):
        values, name, published = list(row.values.values()), row.point.name, row.point.experiment.published
        axes.scatter(values, [place] * len(values), s=16, color=colors.quiet, linewidths=0, gid=f"dots:{name}")
        if row.mean and row.mean.half is not None:
            style: dict[str, Any] = {"fmt": "D", "markersize": 4, "capsize": 3, "color": colors.people[0], "zorder": 3}
            axes.errorbar([row.mean.value], [place], xerr=[row.mean.half], gid=f"mean:{name}", **style)
        if published is not None and found.metric == found.design.study.metric:
            axes.scatter([published], [place], marker="x", s=24, color=colors.wrong, gid=f"published:{name}")
        if row.mean and row.point.control is None:
            axes.axvline(row.mean.value, color=colors.handoff, linewidth=1, zorder=0, gid="control")
    axes.set_yticks(range(len(rows)), [row.point.name for row in rows])
    axes.xaxis.set_major_formatter(lambda value, _: metric(found.metric, value, 3))
    head(axes, found.metric, [], right="◆ mean ± 95 %   • a seed   × published")


def _curve(axes: Axes, name: str, lines: Sequence[Sequence[tuple[float, float]]], color: str, dash: str) -> Any:
    """The mean over seeds where all have points, and the band between the lowest and the highest."""
    low, high = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    at = sorted({x for line in lines for x, _ in line if low <= x <= high}) or [low]
    values = [[_between(line, x) for line in lines] for x in at]
    means = [sum(each) / len(each) for each in values]
    (drawn,) = axes.plot(at, means, dash, color=color, linewidth=1.4, label=name, gid=f"line:{name}")
    if len(lines) > 1:
        ends = [min(each) for each in values], [max(each) for each in values]
        axes.fill_between(at, *ends, color=color, alpha=0.15, linewidth=0)
    return drawn


def _between(line: Sequence[tuple[float, float]], x: float) -> float:
    """The value at x, on the straight line between two points."""
    after = bisect_right(line, (x, float("inf")))
    if after in (0, len(line)):
        return line[min(after, len(line) - 1)][1]
    (a, of_a), (b, of_b) = line[after - 1], line[after]
    return of_a + (of_b - of_a) * (x - a) / (b - a)
