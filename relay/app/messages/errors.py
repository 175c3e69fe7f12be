"""What people read of an error: its own sentence, and the command or setting that fixes it; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay.app.messages.trouble import advised, said
from relay.core.errors import NoRoomHere, OfStore

ADVICE: dict[type[BaseException], Callable[[Any], str]] = {
    OfStore: advised,
    NoRoomHere: said,
}
"""For each kind of error the whole paragraph; an error of any other kind is shown as it is."""


def paragraph(error: BaseException) -> str:
    """The error's sentence, and what helps."""
    for kind in type(error).__mro__:
        if kind in ADVICE:
            return ADVICE[kind](error)
    return str(error)
