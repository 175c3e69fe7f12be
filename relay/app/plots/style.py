"""Defines the style of every picture, in light and dark, and writes pictures to files."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.app.handout import hand_out
from relay.core.errors import BadConfig, UsageError
from storage.packages import install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
FONT = "DejaVu Sans"
"""Part of matplotlib, so it is the same on every machine."""
WIDTH = 6.0
"""Inches. At this dpi and 9-point text a picture is readable on the width of a phone."""
ROW = 0.2
"""Inches of one row of a legend."""


@dataclass(frozen=True)
class Palette:
    """Colors by purpose. Those of `people` differ for color-blind readers too (Okabe and Ito, 2008)."""

    paper: str
    ink: str
    quiet: str
    rule: str
    handoff: str
    people: tuple[str, ...]
    others: str
    """Accounts without a color of their own."""
    right: str
    wrong: str
    """Right and wrong answers of a model."""


LIGHT = Palette(
    paper="#ffffff",
    ink="#1b2027",
    quiet="#57606a",
    rule="#e3e7ec",
    handoff="#c6cdd5",
    people=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07a00", "#3f9bd0"),
    others="#7a828c",
    right="#005a8f",
    wrong="#b34700",
)
DARK = Palette(
    paper="#12161c",
    ink="#e6eaef",
    quiet="#a0aab5",
    rule="#2a323c",
    handoff="#566271",
    people=("#56b4e9", "#f0824a", "#2fc49a", "#e29bc4", "#e6b23c", "#8fb7ff"),
    others="#8c97a4",
    right="#7cc4ee",
    wrong="#ffa36b",
)


def sheet(colors: Palette) -> dict[str, Any]:
    """Return the style sheet. Text is never parsed as a formula, and equal pictures give equal files."""
    return {
        "text.parse_math": False,
        "svg.hashsalt": "trm-relay",
        "font.family": FONT,
        "font.size": 9.0,
        "text.color": colors.ink,
        "figure.dpi": 180,
        "figure.facecolor": colors.paper,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.12,
        "figure.constrained_layout.h_pad": 0.1,
        "figure.constrained_layout.hspace": 0.0,
        "figure.titlesize": 13,
        "figure.titleweight": "bold",
        "axes.facecolor": colors.paper,
        "axes.edgecolor": colors.handoff,
        "axes.labelcolor": colors.quiet,
        "axes.axisbelow": True,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "grid.color": colors.rule,
        "grid.linewidth": 0.7,
        "xtick.color": colors.quiet,
        "ytick.color": colors.quiet,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "hatch.linewidth": 0.9,
        "legend.frameon": False,
        "legend.borderaxespad": 0.6,
        "legend.borderpad": 0.0,
        "legend.columnspacing": 3.0,
        "legend.handlelength": 3.5,
        "legend.labelspacing": 0.45,
    }


def palette(dark: bool) -> Palette:
    """Return the colors for a dark or light background."""
    return DARK if dark else LIGHT


@contextmanager
def drawing(colors: Palette) -> Iterator[None]:
    """Apply the style sheet on matplotlib's defaults; the user's style file has no effect."""
    import matplotlib.style

    with matplotlib.style.context(sheet(colors), after_reset=True):
        yield


def check(path: Path) -> None:
    """Raises UsageError (2) if the file name has an unsupported ending."""
    if path.suffix.lower() not in FORMATS:
        said = f"ends in {path.suffix}" if path.suffix else "has no ending"
        raise UsageError(f"{path.name!r} {said}. Pictures are written as {' or '.join(FORMATS)}: {path.stem}.png")


def require_matplotlib() -> None:
    """Raises BadConfig (78) with the package to install if matplotlib is missing.

    matplotlib is an optional dependency, so only functions that draw import it.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as missing:
        raise BadConfig(f"Pictures need one more package: `{install('plot')}`.") from missing
    assert matplotlib


def page(title: str, height: float, note: str = "", **style: Any) -> Figure:
    """Return an empty picture of `height` inches with a title in `style`, in more lines if it is long, and a note.

    Call this and all drawing functions within `drawing`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    title = " ".join(shown(word, word, WIDTH - 0.3, size=15) for word in title.split(" "))  # bold letters are wider
    figure.suptitle(title, x=0.02, ha="left", wrap=True, **style)
    if note:
        figure.supxlabel(note, size=8, weight="normal")
    return figure


def head(axes: Axes, title: str, handles: Sequence[Any], right: str = "", weight: str = "bold") -> None:
    """Add a title, muted text at its right, and below both a legend in two columns."""
    from matplotlib.legend_handler import HandlerTuple

    if handles:
        labels = [str((one[0] if isinstance(one, tuple) else one).get_label()) for one in handles]
        pairs = {tuple: HandlerTuple(ndivide=None)}
        axes.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, handler_map=pairs)
    pad = 6 + 72 * rows(handles)
    axes.set_title(title, weight=weight, pad=pad)
    axes.set_title(right, loc="right", size=9, weight="normal", color=axes.xaxis.label.get_color(), pad=pad)


def rows(handles: Sequence[Any]) -> float:
    """Return the height in inches of a legend in two columns."""
    return ROW * -(-len(handles) // 2)


def dates(axes: Axes, year: bool = True) -> None:
    """Set date ticks on an x axis in days since 1970, UTC. `year`: print the omitted part of the date below."""
    import matplotlib.dates

    calendar: Any = matplotlib.dates
    locator = calendar.AutoDateLocator(tz="UTC", minticks=4, maxticks=7)
    formatter = calendar.ConciseDateFormatter(locator, tz="UTC", show_offset=year)
    formatter.formats = ["%Y", "%b %Y", "%b %d", "%H:%M", "%H:%M", "%M:%S"]
    formatter.zero_formats = ["", "%Y", "%b %d", "%b %d", "%H:%M", "%H:%M"]
    formatter.offset_formats = ["", "", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d %H:%M"]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)


def shown(text: str, otherwise: str, inches: float, size: float = 9.0) -> str:
    """Return a user's text, or `otherwise` if the font lacks a letter of it; cut to `inches`."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=size)
    letters = get_font(findfont(FONT)).get_charmap()
    told = text if all(ord(letter) in letters for letter in text) else otherwise

    def wide(text: str) -> float:
        width = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
        return float(width) / 72 * 1.05  # letters are rounded to whole pixels

    if wide(told) <= inches:
        return told
    kept = bisect_right(range(len(told)), inches, key=lambda many: wide(f"{told[:many]}…")) - 1
    return f"{told[: max(0, kept)].rstrip()}…"


def encoded(figure: Figure, suffix: str, title: str) -> bytes:
    """Return the bytes of the file; equal for equal pictures.

    Positions are rounded, because the layout solver returns different last digits each time.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, wide, high = (round(edge, 5) for edge in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, wide, high))
    out = io.BytesIO()
    about: dict[str, str | None] = {"Title": title} | ({"Date": None} if suffix == ".svg" else {"Software": None})
    figure.savefig(out, format=suffix[1:], metadata=about)
    return out.getvalue()


def save(figure: Figure, path: Path, title: str) -> dict[str, Any]:
    """Replace the file atomically; returns its entry in relay.plot/1. Raises BadConfig (78) if it cannot be written."""
    return hand_out(path, encoded(figure, path.suffix.lower(), title), "Give another file.")
