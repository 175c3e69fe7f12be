"""Makes text from strangers printable and short; knows nothing of what it says.

The characters are listed, not looked up: every version of Python must compute the same state from the same entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

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


def escaped(text: str) -> int:
    """Bytes of a text inside canonical JSON, where all but ASCII is escaped."""
    return len(json.dumps(text)) - 2
