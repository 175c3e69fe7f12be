"""Shows something again and again while it changes: drawn over on a terminal, else appended; knows no run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from relay.app.messages.errors import paragraph
from relay.app.messages.wording import duration, harmless
from relay.app.terminal.cells import cut, in_ascii
from relay.app.terminal.terminal import put_down
from relay.core.clock import Runtime
from relay.core.errors import StorageUnreachable
from storage.base import StoreError

LEAST_S, USUAL_S = 2.0, 10.0
"""Seconds between two looks."""
PATIENCE = 6
"""Looks are so many times rarer, at most, while the store does not answer."""


class Source(Protocol):
    """What is followed."""

    @property
    def key(self) -> object:
        """Another one means that there is something new."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        ...

    def look(self) -> None:
        """Read what is new. Raises StoreError, RelayError."""
        ...

    def text(self) -> str:
        """As it is now."""
        ...


class Screen(Protocol):
    """Where it is shown."""

    def show(self, following: Following) -> None:
        """After each look."""
        ...


@dataclass
class Following:
    """How the looks went so far; times are monotonic seconds."""

    source: Source
    runtime: Runtime
    every_s: float
    looked_at: float
    """The newest look that was answered."""
    trouble: str = ""
    """Why the ones since were not."""
    failures: int = 0

    @property
    def age_s(self) -> float:
        """How old is what is shown."""
        return self.runtime.monotonic() - self.looked_at

    @property
    def wait_s(self) -> float:
        """Until the next look: a store that does not answer is not hammered."""
        return self.every_s * min(PATIENCE, 2.0 ** min(self.failures, PATIENCE))

    def look(self) -> None:
        """Once. A store that does not answer leaves what is known; anything else is raised."""
        try:
            self.source.look()
        except (StorageUnreachable, StoreError) as error:
            self.trouble, self.failures = " ".join(paragraph(error).split()), self.failures + 1
            return
        self.looked_at, self.trouble, self.failures = self.runtime.monotonic(), "", 0

    def footer(self) -> str:
        """How old it is, or why it is old."""
        if self.trouble:
            return f"{duration(self.age_s)} old, the store does not answer: {self.trouble}"
        return f"looked {duration(self.age_s)} ago, every {duration(self.every_s)}; Ctrl-C ends this, not the run"


def follow(source: Source, runtime: Runtime, every_s: float, screen: Screen) -> None:
    """Until it is over. The first look must be answered: raises StoreError, RelayError."""
    source.look()
    following = Following(source, runtime, max(LEAST_S, every_s), runtime.monotonic())
    screen.show(following)
    while not source.over:
        runtime.sleep(following.wait_s)
        following.look()
        screen.show(following)


class Appended:
    """Below what was shown before, only if it is something else."""

    def __init__(self, write: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._write, self._warn = write, warn
        self._key: object = None
        self._begun = False
        self._warned = False

    def show(self, following: Following) -> None:
        """The whole text again where there is news; one line where a store falls silent, and where it is back."""
        if bool(following.trouble) != self._warned:
            self._warned = bool(following.trouble)
            self._warn(f"Shown is {following.footer()}" if self._warned else "The store answers again.")
        if following.trouble or (self._begun and following.source.key == self._key):
            return
        self._write(("\n" if self._begun else "") + following.source.text())
        self._begun, self._key = True, following.source.key


class Redrawn:
    """In place, with how old it is below; the ages in it go on while nothing is read. `with` it."""

    def __init__(self, plain: bool, console: Console | None = None) -> None:
        self._plain, self._console = plain, console or Console(force_terminal=True, force_interactive=True)
        self._following: Following | None = None
        self._live = Live(
            console=self._console,
            get_renderable=self.drawn,
            refresh_per_second=1,
            redirect_stdout=False,  # what stands in for it would say that it is no terminal
            redirect_stderr=False,
        )

    def show(self, following: Following) -> None:
        """From now on."""
        first = self._following is None
        self._following = following
        if first:
            self._live.start()
        self._live.refresh()

    def drawn(self) -> Text:
        """No line wider and no more of them than the terminal has: else the last ones before the footer go."""
        if self._following is None:
            return Text("")
        footer = "" if self._following.source.over else self._following.footer()
        rows = shortened(harmless(self._following.source.text()).split("\n"), footer, self._console.size.height)
        lines = [cut(in_ascii(row) if self._plain else row, self._console.width) for row in rows]
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def __enter__(self) -> Redrawn:
        return self

    def __exit__(self, *_: object) -> None:
        put_down(self._live, self._console)


def shortened(rows: Sequence[str], footer: str, height: int) -> list[str]:
    """At most `height - 1` rows: rich needs the last one for itself."""
    room = height - 1 - bool(footer)
    kept = (
        list(rows) if len(rows) <= room else [*rows[: max(0, room - 1)], f"... {len(rows) - max(0, room - 1):,} more"]
    )
    return [*kept, *([footer] if footer else [])]
