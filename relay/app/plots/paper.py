"""What all pictures share: colours, text that cannot harm, and files of equal bytes for equal content. Knows no run.

matplotlib is imported by what draws, so that nobody else needs it. Whatever a person's own style file says, pictures
look the same.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
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
"""Comes with matplotlib: the same on every machine."""
WIDTH = 6.0
"""Inches. With DPI and letters of 9 points a picture can be read at the width of a phone."""
DPI = 180


@dataclass(frozen=True)
class Palette:
    """Colours by what they are for. Those of `people` differ for colour-blind readers too (Okabe and Ito, 2008)."""

    paper: str
    ink: str
    quiet: str
    rule: str
    handoff: str
    people: tuple[str, ...]
    others: str
    """Of everybody for whom there is no colour left."""


LIGHT = Palette(
    paper="#ffffff",
    ink="#1b2027",
    quiet="#57606a",
    rule="#e3e7ec",
    handoff="#c6cdd5",
    people=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07a00", "#3f9bd0"),
    others="#7a828c",
)
DARK = Palette(
    paper="#12161c",
    ink="#e6eaef",
    quiet="#a0aab5",
    rule="#2a323c",
    handoff="#566271",
    people=("#56b4e9", "#f0824a", "#2fc49a", "#e29bc4", "#e6b23c", "#8fb7ff"),
    others="#8c97a4",
)


def palette(dark: bool) -> Palette:
    """The colours for dark or light surroundings."""
    return DARK if dark else LIGHT


def check(path: Path) -> None:
    """Raises UsageError (2) for a file name that says no format we write."""
    if path.suffix.lower() not in FORMATS:
        said = f"ends in {path.suffix}" if path.suffix else "has no ending"
        raise UsageError(f"{path.name!r} {said}. Pictures are written as {' or '.join(FORMATS)}: {path.stem}.png")


def require_matplotlib() -> None:
    """Raises BadConfig (78) naming what to install."""
    try:
        import matplotlib
    except ModuleNotFoundError as missing:
        raise BadConfig(f"Pictures need one more package: `{install('plot')}`.") from missing
    assert matplotlib


@contextmanager
def drawing(colours: Palette) -> Iterator[None]:
    """Meanwhile matplotlib has its own defaults, our colours, and takes no letter for a formula."""
    import matplotlib

    ours: dict[str, Any] = {
        "text.parse_math": False,
        "svg.hashsalt": "trm-relay",
        "font.family": FONT,
        "font.size": 9.0,
        "figure.facecolor": colours.paper,
        "axes.facecolor": colours.paper,
        "axes.edgecolor": colours.handoff,
        "axes.axisbelow": True,
        "grid.color": colours.rule,
        "text.color": colours.ink,
        "axes.labelcolor": colours.quiet,
        "xtick.color": colours.quiet,
        "ytick.color": colours.quiet,
        "hatch.linewidth": 0.9,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(ours)
        yield


def page(height: float, width: float = WIDTH) -> Figure:
    """An empty picture of that many inches; call it and all that follows within `drawing`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI)


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes by inches from the left and from the top."""
    wide, high = figure.get_size_inches()
    return figure.add_axes((left / wide, 1 - (top + height) / high, width / wide, height / high))


def write(figure: Figure, left: float, top: float, text: str, **more: Any) -> None:
    """Text by inches from the left and from the top of its first line."""
    wide, high = figure.get_size_inches()
    figure.text(left / wide, 1 - top / high, text, **{"va": "top", **more})


def plain(axes: Axes) -> None:
    """No frame but a floor, and lines across."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="y", linewidth=0.7)


def dates(axes: Axes, year: bool = True) -> None:
    """Ticks of an x axis in days since 1970, UTC; `year`: what they leave out is told beside them."""
    import matplotlib.dates

    calendar: Any = matplotlib.dates
    locator = calendar.AutoDateLocator(minticks=4, maxticks=7)
    forms = ["%Y", "%b %Y", "%b %d", "%H:%M", "%H:%M", "%M:%S"]
    zeros = ["", "%Y", "%b %d", "%b %d", "%H:%M", "%H:%M"]
    beside = ["", "", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d %H:%M"]
    axes.xaxis.set_major_locator(locator)
    told = {"formats": forms, "zero_formats": zeros, "offset_formats": beside, "show_offset": year}
    axes.xaxis.set_major_formatter(calendar.ConciseDateFormatter(locator, **told))


def known_letters(text: str) -> bool:
    """Whether our font has every letter; what it lacks would be drawn as boxes."""
    from matplotlib.font_manager import findfont, get_font

    letters = get_font(findfont(FONT)).get_charmap()
    return all(ord(letter) in letters for letter in text)


def shown(text: str, otherwise: str, inches: float, size: float = 9.0) -> str:
    """A stranger's words as far as they can be drawn, else what stands for them; cut where they are too wide."""
    told = text if known_letters(text) else otherwise
    if _wide(told, size) <= inches:
        return told
    kept = bisect_right(range(len(told)), inches, key=lambda many: _wide(f"{told[:many]}…", size)) - 1
    return f"{told[: max(0, kept)].rstrip()}…"


def _wide(text: str, size: float) -> float:
    """Inches, and a little for the rounding of letters to whole points of a screen."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=size)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72 * 1.05


def encoded(figure: Figure, suffix: str, title: str) -> bytes:
    """The file's bytes: the same for the same picture, whenever it is drawn."""
    out = io.BytesIO()
    about: dict[str, str | None] = {"Title": title} | ({"Date": None} if suffix == ".svg" else {"Software": None})
    figure.savefig(out, format=suffix[1:], metadata=about)
    return out.getvalue()


def save(figure: Figure, path: Path, title: str) -> dict[str, Any]:
    """Replace the file at once; what was written, for relay.plot/1. Raises BadConfig (78) where it cannot be."""
    return hand_out(path, encoded(figure, path.suffix.lower(), title), "Give another file.")
