"""Wording: text from strangers made printable and short, times and durations as people read them; no clock.

The characters that `clean` takes out are listed, not looked up: every version of Python must compute the same state
from the same entry. What is only shown (`harmless`, `printable`) goes by Python's own table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HIDDEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """One line of at most `limit` by `size`: control characters become spaces; invisible and direction marks go."""
    visible = _HIDDEN.sub("", _BREAKS.sub(" ", text[: 10 * limit]))
    line = " ".join(part for part in visible.split(" ") if part)[:limit]
    while size(line) > limit:
        line = line[: len(line) * limit // size(line)]
    return line.strip(" ")


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


def escaped(text: str) -> int:
    """Bytes of a text inside canonical JSON, where all but ASCII is escaped."""
    return len(json.dumps(text)) - 2


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
