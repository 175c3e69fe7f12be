"""Shows a text that changes: redrawn in place on a terminal, otherwise appended."""

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
from relay.app.terminal.color import with_states
from relay.app.terminal.terminal import put_down
from relay.core.clock import Runtime
from relay.core.errors import StorageUnreachable
from storage.base import StoreError

LEAST_S, USUAL_S = 2.0, 10.0
"""Seconds between two reads: least and default."""
PATIENCE = 6
"""Largest factor by which the interval grows while the store does not answer."""


class Source(Protocol):
    """A text that changes and is read repeatedly."""

    @property
    def key(self) -> object:
        """Changes if there is something new."""
        ...

    @property
    def over(self) -> bool:
        """Whether the text is final."""
        ...

    def look(self) -> None:
        """Read new data. Raises StoreError, RelayError."""
        ...

    def text(self) -> str:
        """Return the current text."""
        ...


class Screen(Protocol):
    """Shows the text."""

    def show(self, following: Following) -> None:
        """Show the state; called after each read."""
        ...


@dataclass
class Following:
    """The state of the reads; times are monotonic seconds."""

    source: Source
    runtime: Runtime
    every_s: float
    looked_at: float
    """Time of the newest successful read."""
    trouble: str = ""
    """Why later reads failed; empty if none did."""
    failures: int = 0

    @property
    def age_s(self) -> float:
        """Age of the text in seconds."""
        return self.runtime.monotonic() - self.looked_at

    @property
    def wait_s(self) -> float:
        """Seconds until the next read; grows while the store does not answer."""
        return self.every_s * min(PATIENCE, 2.0 ** min(self.failures, PATIENCE))

    def look(self) -> None:
        """Read once. If the store does not answer, the text stays; other errors are raised."""
        try:
            self.source.look()
        except (StorageUnreachable, StoreError) as error:
            self.trouble, self.failures = " ".join(paragraph(error).split()), self.failures + 1
            return
        self.looked_at, self.trouble, self.failures = self.runtime.monotonic(), "", 0

    def footer(self) -> str:
        """Return the age of the text, or why it is old."""
        if self.trouble:
            return f"{duration(self.age_s)} old, the store does not answer: {self.trouble}"
        return f"looked {duration(self.age_s)} ago, every {duration(self.every_s)}; Ctrl-C ends this, not the run"


def follow(source: Source, runtime: Runtime, every_s: float, screen: Screen) -> None:
    """Read and show until the source is over. Raises StoreError or RelayError if the first read fails."""
    source.look()
    following = Following(source, runtime, max(LEAST_S, every_s), runtime.monotonic())
    screen.show(following)
    while not source.over:
        runtime.sleep(following.wait_s)
        following.look()
        screen.show(following)


class Appended:
    """Prints each new text below the old one; skips an unchanged one."""

    def __init__(self, write: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._write, self._warn = write, warn
        self._key: object = None
        self._begun = False
        self._warned = False

    def show(self, following: Following) -> None:
        """Print the whole text if it changed; one line if the store stops answering, and one if it answers again."""
        if bool(following.trouble) != self._warned:
            self._warned = bool(following.trouble)
            self._warn(f"Shown is {following.footer()}" if self._warned else "The store answers again.")
        if following.trouble or (self._begun and following.source.key == self._key):
            return
        self._write(("\n" if self._begun else "") + following.source.text())
        self._begun, self._key = True, following.source.key


class Redrawn:
    """Redraws the text in place, with its age below; ages advance between reads. A context manager."""

    def __init__(self, plain: bool, console: Console | None = None) -> None:
        self._plain, self._console = plain, console or Console(force_terminal=True, force_interactive=True)
        self._following: Following | None = None
        self._live = Live(
            console=self._console,
            get_renderable=self.drawn,
            refresh_per_second=1,
            redirect_stdout=False,  # the replacement would report that it is not a terminal
            redirect_stderr=False,
        )

    def show(self, following: Following) -> None:
        """Show this state from now on."""
        first = self._following is None
        self._following = following
        if first:
            self._live.start()
        self._live.refresh()

    def drawn(self) -> Text:
        """Return the text cut to the terminal's width and height; the last lines before the footer are dropped."""
        if self._following is None:
            return Text("")
        footer = "" if self._following.source.over else self._following.footer()
        rows = shortened(harmless(self._following.source.text()).split("\n"), footer, self._console.size.height)
        lines = [cut(in_ascii(row) if self._plain else row, self._console.width) for row in rows]
        text = with_states("\n".join(lines))
        text.no_wrap, text.overflow = True, "crop"
        return text

    def __enter__(self) -> Redrawn:
        return self

    def __exit__(self, *_: object) -> None:
        put_down(self._live, self._console)


def shortened(rows: Sequence[str], footer: str, height: int) -> list[str]:
    """Return at most `height - 1` rows, footer included; rich needs the last row for itself."""
    room = height - 1 - bool(footer)
    kept = (
        list(rows) if len(rows) <= room else [*rows[: max(0, room - 1)], f"... {len(rows) - max(0, room - 1):,} more"]
    )
    return [*kept, *([footer] if footer else [])]
