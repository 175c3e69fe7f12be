"""Describes whether each session resumed the one before it exactly (P9)."""

from __future__ import annotations

from collections.abc import Sequence

from relay.app.messages.wording import counted
from relay.core.ledger.fields import Certified
from relay.core.ledger.frozen import FIRST_SESSION
from relay.core.ledger.state import Link


def link_line(certified: Certified, why: str) -> str:
    """The line after a session's first step; empty if there was nothing to compare it with."""
    if certified == "exact":
        return "Resume verified: the first step matches the previous session bit for bit."
    if certified == "not-exact":
        return f"Resume is NOT exact: the first step differs from the previous session's ({why}). Training continues."
    return f"Resume could not be verified: {why}. Training continues." if _compared(why) else ""


def briefly(certified: Certified, why: str) -> str:
    """For the sentence at the end of a session; empty if there was nothing to compare with."""
    if certified == "exact":
        return "Link: exact."
    return f"Link: {_word(certified)} ({why})." if _compared(why) else ""


def counts(links: Sequence[Link], total: int) -> str:
    """Numbers of exact, not exact and unknown links. `links` are the newest, `total` counts all sessions."""
    compared = _of_interest(links)
    kinds: tuple[Certified, ...] = ("exact", "not-exact", "unknown")
    found = [(sum(link.certified == kind for link in compared), _word(kind)) for kind in kinds]
    parts = ", ".join(f"{number:,} {word}" for number, word in found if number) or "none compared yet"
    return f"{parts} ({counted(total, 'session')})"


def last(links: Sequence[Link]) -> str | None:
    """The newest compared link, and why it is not exact; None if there is none."""
    compared = _of_interest(links)
    if not compared:
        return None
    link = compared[-1]
    why = "" if link.certified == "exact" else f": {link.why}"
    return f"{_word(link.certified)}, {link.account} from step {link.from_step:,}{why}"


def _of_interest(links: Sequence[Link]) -> list[Link]:
    """All but the run's first session and sessions that ended before their first commit."""
    return [link for link in links if link.certified != "unknown" or _compared(link.why)]


def _compared(why: str) -> bool:
    return bool(why) and why != FIRST_SESSION


def _word(certified: Certified) -> str:
    return "NOT exact" if certified == "not-exact" else certified
