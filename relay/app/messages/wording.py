"""Formats times, durations, sizes and texts of other people for printing.

Texts for a ledger go through `relay.core.ledger.frozen.clean` instead, which is independent of Python's version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from storage.base import Stat
from storage.wording import counted as counted


def printable(text: str) -> str:
    """One safe line: control, format (bidi) and unassigned characters become spaces or are removed."""
    return " ".join(harmless(text).split())


def harmless(text: str) -> str:
    """The text without characters that control a terminal; line breaks and spaces stay.

    Half of a surrogate pair (from a file name or an argument) is not a character, and is escaped.
    """
    if text.replace("\n", " ").isprintable():  # nearly every text
        return text
    from unicodedata import category

    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    spaced = "".join(" " if c.isspace() and c != "\n" else c for c in whole)
    return "".join(c for c in spaced if c == "\n" or category(c)[0] != "C")


def in_bin_text(found: Sequence[Stat]) -> str:
    """A bin's files of a run, without a full stop; '' for nothing."""
    if not found:
        return ""
    named = ", ".join(stat.name for stat in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"{counted(len(found), 'file')} of the run in the bin, which the service empties after 30 days: {named}{more}"
    )


def iso(moment: float | None) -> str | None:
    """Unix seconds as 2025-01-15T14:30:00Z."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def listing(words: Iterable[str]) -> str:
    """a; a and b; a, b and c."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def metric(name: str, value: float, digits: int = 4, shares: Collection[str] = ()) -> str:
    """A metric's value: an accuracy or one of the `shares` in percent, any other with `digits` significant digits."""
    return f"{value:.1%}" if name.endswith("accuracy") or name in shares else f"{value:.{digits}g}"


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
