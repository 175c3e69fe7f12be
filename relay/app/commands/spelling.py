"""Spells out what may be left out of a command line; knows words, not what they do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relay.app.terminal.follow import USUAL_S

_NUMBER = re.compile(r"[+-]?[0-9.]+")


def spelled(args: Sequence[str]) -> list[str]:
    """`--watch` alone is the usual pace: what reads the command line knows no value that may be left out."""
    if "report" not in args:
        return list(args)
    following = [*args[1:], ""]
    return [
        f"{word}={USUAL_S:g}" if word == "--watch" and not _NUMBER.fullmatch(after) else word
        for word, after in zip(args, following, strict=True)
    ]
