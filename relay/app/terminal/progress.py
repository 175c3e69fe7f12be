"""Shows a session's progress on stderr: two live lines on a terminal, otherwise a plain line at intervals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from relay.app.messages.wording import harmless
from relay.app.redact import redact
from relay.app.terminal.atwork import AtWork
from relay.app.terminal.color import with_states
from relay.app.terminal.paragraphs import folded_for
from relay.app.terminal.terminal import moves, put_down
from relay.core.clock import Runtime
from relay.core.workload import Progress as Step

COLORS = {
    "━+|#{2,}": "green",
    "╌+|-{4,}": "bright_black",
    r"sending [^;\n]*|fetching [^\n]*": "cyan",
    r"\bdone\b": "bold green",
}
"""Color by pattern; the text is complete without colors."""


class Display:
    """Receives a session's progress. Every method may be called from any thread."""

    def __init__(self, target: int, monotonic: Callable[[], float], short: Mapping[str, str]) -> None:
        self.work = AtWork(target, monotonic, short)

    def aim(self, target: int) -> None:
        """Set the target step."""
        self.work.target = target

    def ends(self, deadline: float) -> None:
        """Set the end of the session, in monotonic seconds; infinite without a budget."""
        self.work.deadline = deadline

    def step(self, progress: Step) -> None:
        """Record a training step with its metrics."""
        self.work.step(progress)

    def phase(self, text: str) -> None:
        """Set the activity between steps; empty if training continues."""
        self.work.phase(text)

    def committed(self, step: int) -> None:
        """Record that a step is durable."""
        self.work.committed(step)

    def transfer(self, text: str) -> None:
        """Set the progress text of a long transfer; empty when it is over."""
        self.work.transfer = text

    def tell(self, line: str) -> None:
        """Print one line for the user."""
        raise NotImplementedError

    def close(self) -> None:
        """End the display with the session."""


class Lines(Display):
    """Plain lines: each message, and progress at most every `every_s` seconds (keeps notebooks alive)."""

    def __init__(
        self,
        target: int,
        monotonic: Callable[[], float],
        every_s: float,
        over: Callable[[], None] = lambda: None,
        short: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`over`: called at the end. `short`: {metric to show: short name}."""
        super().__init__(target, monotonic, short)
        self._every_s, self._monotonic, self._over = every_s, monotonic, over
        self._shown_at: float | None = None

    def step(self, progress: Step) -> None:
        """Print a line if the last one is old enough, and at the target."""
        super().step(progress)
        if self._rested() or progress.step == self.work.target:
            self._show()

    def transfer(self, text: str) -> None:
        """Print a line if the last one is old enough."""
        super().transfer(text)
        if text and self._rested():
            self._show()

    def tick(self) -> None:
        """Called regularly: prints a line during a long operation too."""
        if self._shown_at is None:
            self._shown_at = self._monotonic()
        elif self._rested():
            self._show()

    def tell(self, line: str) -> None:
        """Print at once."""
        print(folded_for(sys.stderr, harmless(redact(line))), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop printing progress."""
        self._over()

    def _rested(self) -> bool:
        return self._shown_at is None or self._monotonic() - self._shown_at >= self._every_s

    def _show(self) -> None:
        if line := self.work.plain():
            self._shown_at = self._monotonic()
            self.tell(line)


class Bar(Display):
    """Two live lines, with messages above them. They appear with the first step, phase or transfer."""

    def __init__(
        self,
        target: int,
        monotonic: Callable[[], float],
        console: Console | None = None,
        short: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`short`: {metric to show: short name}."""
        super().__init__(target, monotonic, short)
        self._console = console or Console(stderr=True, force_terminal=True, force_interactive=True)
        self._live: Live | None = None
        self._closed = False

    def step(self, progress: Step) -> None:
        """Move the bar."""
        super().step(progress)
        self._start()

    def phase(self, text: str) -> None:
        """Replace the bar by this text until the phase ends."""
        super().phase(text)
        if text:
            self._start()

    def transfer(self, text: str) -> None:
        """Show the transfer under the bar, or in its place while no steps are made."""
        super().transfer(text)
        if text:
            self._start()

    def tell(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(with_states(harmless(redact(line))), highlight=False)

    def close(self) -> None:
        """Stop, and leave the last bar and the newest durable step on the screen."""
        self._closed = True
        self.work.phase("")
        self.work.transfer = ""
        if self._live is not None:
            put_down(self._live, self._console)

    def drawn(self) -> Text:
        """Return the current text of the live lines."""
        shown = self.work.lines(self._console.width, self._console.options.ascii_only)
        text = Text(harmless(redact("\n".join(shown))), no_wrap=True, overflow="crop")
        for pattern, color in COLORS.items():
            text.highlight_regex(pattern, color)
        return text

    def _start(self) -> None:
        if self._live is None and not self._closed:  # created late: an earlier one would show an empty first frame
            self._live = Live(console=self._console, get_renderable=self.drawn)
            self._live.start()


def display(
    runtime: Runtime, every_s: float, short: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> Display:
    """Return live lines on a terminal; otherwise plain lines, also during long silences. `short`: as in `Bar`."""
    if moves(environ, sys.stderr.isatty()):
        return Bar(0, runtime.monotonic, short=short)
    over = runtime.event()
    shown = Lines(0, runtime.monotonic, every_s, over.set, short)

    def until_over() -> None:
        while not over.wait(max(every_s, 1.0)):
            shown.tick()

    runtime.spawn("display", until_over)
    return shown
