"""Makes texts from strangers printable, and shows times, durations and sizes as people read them; no clock.

What goes into a ledger is cut by `relay.core.ledger.frozen.clean` instead, which depends on no version of Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime


def printable(text: str) -> str:
    """One harmless line: control, format (bidi) and unassigned characters become spaces or vanish."""
    return " ".join(harmless(text).split())


def harmless(text: str) -> str:
    """Any text as it may leave the program: no character that a terminal obeys; line breaks and blanks stay.

    What is no character at all (half of a surrogate pair, from a file name or an argument) is shown escaped.
    """
    from unicodedata import category

    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    spaced = "".join(" " if c.isspace() and c != "\n" else c for c in whole)
    return "".join(c for c in spaced if c == "\n" or category(c)[0] != "C")


def iso(moment: float | None) -> str | None:
    """Unix seconds as 2025-01-15T14:30:00Z."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def counted(number: int, what: str) -> str:
    """1 commit, 2 commits, 1,000 commits."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listing(words: Iterable[str]) -> str:
    """a; a and b; a, b and c."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def metric(name: str, value: float, digits: int = 4) -> str:
    """A number people watch: an accuracy is a share of the whole, anything else has this many digits."""
    return f"{value:.1%}" if name.endswith("accuracy") else f"{value:.{digits}g}"


def numbers(metrics: Mapping[str, float], short: Mapping[str, str], digits: int = 4) -> str:
    """The few metrics people watch, under their short names (`Measures.short`)."""
    return "".join(f"  {word} {metric(name, metrics[name], digits)}" for name, word in short.items() if name in metrics)


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 05 min, 2 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    return f"{hours // 24} d {hours % 24} h"


def size(count: float) -> str:
    """45 kB, 4.5 MB, 1.2 GB, 3.4 TB."""
    for unit, word in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.1f} {word}"
    return f"{count / 1e3:.0f} kB"


def sum_up(ok: bool, known: int) -> str:
    """What verify found, in one sentence that is true of all of it; `known` damaged checkpoints are not in use."""
    if not ok:
        return "Something is not as it was written: see above."
    if not known:
        return "Everything is as it was written."
    are = "is" if known == 1 else "are"
    return f"{counted(known, 'damaged checkpoint')} {are} known and not in use; everything else is as it was written."
