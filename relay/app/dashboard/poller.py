"""Reads the run again and again, in one thread however many browsers look; knows no store and no server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from relay.app.dashboard.page import embedded
from relay.app.messages.errors import paragraph
from relay.core.clock import Runtime
from relay.core.errors import RelayError
from storage.base import StoreError

GROWTH = 1.5
SOON_S = 0.1
"""While something old is still to be read."""
UNWATCHED_S = 60.0
"""Between two looks while no browser is there."""
FAILED = "This program has failed and follows the run no more. Start the dashboard again."
Read = Callable[[], "Mapping[str, Any] | None"]


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks: after something was new, and at most."""

    first_s: float
    most_s: float


LOCAL, REMOTE = Pace(0.5, 0.5), Pace(4.0, 30.0)
"""A look at a folder is one `stat`; at a service it is a request that somebody may pay for."""


@dataclass(frozen=True)
class News:
    """What the browsers are to show."""

    version: int
    document: Mapping[str, Any]
    trouble: str = ""
    """Why the document is not the newest."""

    def body(self) -> bytes:
        """As sent."""
        return embedded({**self.document, "version": self.version, "trouble": self.trouble or None}).encode()


class Poller:
    """`read` returns a new document, or None if nothing has changed."""

    def __init__(self, read: Read, first: Mapping[str, Any], pace: Pace, runtime: Runtime) -> None:
        self.news = News(1, first)
        self.watchers = 0
        """Browsers that listen."""
        self._read, self._pace, self._runtime = read, pace, runtime
        self._wanted, self._over = runtime.event(), False
        self._wait = pace.first_s

    def start(self) -> None:
        """Begin to look."""
        self._runtime.spawn("dashboard", self._run)

    def stop(self) -> None:
        """End the thread after the look that it is at."""
        self._over = True
        self._wanted.set()

    def wake(self) -> None:
        """Somebody has come: look now, and often again."""
        self._wait = self._pace.first_s
        self._wanted.set()

    def look(self) -> None:
        """Once. A store that does not answer leaves what is known, with the reason."""
        try:
            document, trouble = self._read(), ""
        except (RelayError, StoreError) as error:
            document, trouble = None, paragraph(error)
        now = self.news
        if document is not None or trouble != now.trouble:
            self.news = News(now.version + 1, document if document is not None else now.document, trouble)
        if document is None:
            self._wait = min(self._pace.most_s, max(self._pace.first_s, self._wait) * GROWTH)
        else:
            self._wait = SOON_S if document["unread"] else self._pace.first_s

    def wait_s(self) -> float:
        """Until the next look, unless somebody comes."""
        return self._wait if self.watchers else UNWATCHED_S

    def _run(self) -> None:
        try:
            while not self._over:
                self._wanted.wait(self.wait_s())
                self._wanted.clear()
                if not self._over:
                    self.look()
        finally:
            if not self._over:  # a bug: whoever looks at the page must not take it for the newest
                self.news = replace(self.news, version=self.news.version + 1, trouble=FAILED)
