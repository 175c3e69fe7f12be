"""Words how exactly sessions continued each other; reads nothing and judges nothing (P9)."""

from __future__ import annotations

from collections.abc import Sequence

from relay.app.messages.wording import counted
from relay.core.ledger.fields import Certified
from relay.core.ledger.frozen import FIRST_SESSION
from relay.core.ledger.state import Link


def told(certified: Certified, why: str) -> str:
    """After a session's first step; empty where there is nothing to compare it with."""
    if certified == "exact":
        return "The link is exact: the first step gave the very bits that the session before had foretold."
    if certified == "not-exact":
        return f"The link is NOT exact: the first step gave other bits than foretold ({why}). Training goes on."
    return f"Whether the link is exact is unknown: {why}. Training goes on." if _judged(why) else ""


def briefly(certified: Certified, why: str) -> str:
    """For the sentence at the end of a session; empty as above."""
    if certified == "exact":
        return "Link: exact."
    return f"Link: {_word(certified)} ({why})." if _judged(why) else ""


def counts(links: Sequence[Link], total: int) -> str:
    """How many links there are and what became of them; `links` are the newest ones of all."""
    judged = _of_interest(links)
    kinds: tuple[Certified, ...] = ("exact", "not-exact", "unknown")
    found = [(sum(link.certified == kind for link in judged), _word(kind)) for kind in kinds]
    parts = ", ".join(f"{number:,} {word}" for number, word in found if number) or "none judged yet"
    return f"{parts} ({counted(total, 'session')})"


def last(links: Sequence[Link]) -> str | None:
    """The newest link that was judged, and why it is not exact."""
    judged = _of_interest(links)
    if not judged:
        return None
    link = judged[-1]
    why = "" if link.certified == "exact" else f": {link.why}"
    return f"{_word(link.certified)}, {link.account} from step {link.from_step:,}{why}"


def _of_interest(links: Sequence[Link]) -> list[Link]:
    """Not the run's first session, which follows none, nor one that has committed nothing and so told nothing."""
    return [link for link in links if link.certified != "unknown" or _judged(link.why)]


def _judged(why: str) -> bool:
    return bool(why) and why != FIRST_SESSION


def _word(certified: Certified) -> str:
    return "NOT exact" if certified == "not-exact" else certified
