"""Measures speeds, gaps and failures from a run's recent sessions (links)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from relay.core.gpus import same_gpu
from relay.core.ledger import frozen
from relay.core.ledger.state import Link
from relay.people.team import DAY_S, Speeds

DIED = frozen.GONE | {
    frozen.CRASHED,
    frozen.FAILED,
    frozen.BAD_DATA,
    frozen.UNREACHABLE,
    frozen.UPLOAD_FAILED,
    frozen.FENCED,
}
"""Ends of links that cost work."""
NO_SESSIONS = frozenset({frozen.PUSHED, frozen.NOTHING_TO_PUSH, frozen.TRAINS_ANOTHER, frozen.OPEN})
"""Ends of links that trained nothing by design, or have not ended."""
TINY_S = 0.001
LEAST_S = 60.0
"""Speeds of shorter sessions are unreliable; they are used only if there are no others."""


@dataclass(frozen=True)
class PastSessions:
    """Sessions with measurements; empty where there are none."""

    links: tuple[Link, ...]
    gaps: tuple[tuple[float, float], ...]
    """From the end of each session to the start of the next, without waits of more than a day (a reset or a person)."""
    died: int
    lived: int
    under_way: Link | None = None
    """The open session, once it has committed. Used for its account only if no ended session is."""

    def of_account(self, account: str) -> tuple[float, ...]:
        """Steps per second of each of the account's sessions, oldest first."""
        ended = _rates(link for link in self.links if link.account == account)
        now = self.under_way
        return ended or (_rates([now]) if now and now.account == account else ())

    def on_gpu(self, gpu: str) -> tuple[float, ...]:
        """Steps per second of each session on a GPU of that name, for all accounts."""
        return _rates(link for link in self.links if link.gpu and same_gpu(gpu, link.gpu))

    def gpu_of(self, account: str) -> str | None:
        """The account's most recent GPU, as measured."""
        return next((link.gpu for link in reversed(self.links) if link.account == account and link.gpu), None)

    @property
    def longest(self) -> dict[str, tuple[int, float]]:
        """By account: number of sessions, and seconds of the longest."""
        found: dict[str, tuple[int, float]] = {}
        for link in self.links:
            count, most = found.get(link.account, (0, 0.0))
            found[link.account] = count + 1, max(most, link.seconds)
        return found


def history(links: Sequence[Link], now: float) -> PastSessions:
    """The history in a state's links. Links that started after `now` (store's clock) are left out."""
    ended = [link for link in links if link.started <= now and link.end not in NO_SESSIONS and link.seconds >= TINY_S]
    good = [link for link in ended if _measures(link)]
    long = [link for link in good if link.seconds >= LEAST_S]
    gaps = ((one.started + one.seconds, later.started) for one, later in pairwise(ended))
    short = tuple((ends, begins) for ends, begins in gaps if 0 <= begins - ends <= DAY_S)
    died = sum(_died(link) or link.to_step <= link.from_step for link in ended)
    return PastSessions(tuple(long or good), short, died, len(ended) - died, _under_way(links, now))


def speeds(samples: Iterable[float]) -> Speeds | None:
    """The samples as Speeds; None without any."""
    found = tuple(samples)
    return Speeds(found, len(found)) if found else None


def _measures(link: Link) -> bool:
    """Whether its steps and seconds belong together: the last steps of a session that died are unknown."""
    return not _died(link) and link.to_step > link.from_step and link.commits > 0


def _under_way(links: Sequence[Link], now: float) -> Link | None:
    last = links[-1] if links else None
    usable = last and last.end == frozen.OPEN and last.started <= now and last.seconds >= TINY_S and _measures(last)
    return last if usable else None


def _died(link: Link) -> bool:
    return link.end in DIED or link.end.endswith(frozen.NOT_SENT)


def _rates(links: Iterable[Link]) -> tuple[float, ...]:
    return tuple((link.to_step - link.from_step) / link.seconds for link in links)
