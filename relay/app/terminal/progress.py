"""Shows a session while it trains, on stderr: two lines that move on a terminal, else a line now and then."""

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
from relay.app.terminal.paragraphs import folded_for
from relay.app.terminal.terminal import moves, put_down
from relay.core.clock import Runtime
from relay.core.workload import Progress as Step

COLOURS = {
    "━+|#{2,}": "green",
    "╌+|-{4,}": "bright_black",
    r"sending [^;\n]*|fetching [^\n]*": "cyan",
    r"\bdone\b": "bold green",
}
"""By what the text says, so that without a colour nothing is missing."""


class Display:
    """What a session tells while it runs. Everything may come from any thread."""

    def __init__(self, target: int, monotonic: Callable[[], float], short: Mapping[str, str]) -> None:
        self.work = AtWork(target, monotonic, short)

    def aim(self, target: int) -> None:
        """The step that training goes to."""
        self.work.target = target

    def ends(self, deadline: float) -> None:
        """When the session has to be over, monotonic; infinite without a budget."""
        self.work.deadline = deadline

    def step(self, progress: Step) -> None:
        """A training step, with metrics."""
        self.work.step(progress)

    def phase(self, text: str) -> None:
        """What is done while no step is made; empty: training goes on."""
        self.work.phase(text)

    def committed(self, step: int) -> None:
        """That step is durable."""
        self.work.committed(step)

    def transfer(self, text: str) -> None:
        """How far a long transfer is; empty once it is over."""
        self.work.transfer = text

    def tell(self, line: str) -> None:
        """One line for people."""
        raise NotImplementedError

    def close(self) -> None:
        """The session is over."""


class Lines(Display):
    """Plain lines: everything told, and what is done at most every `every_s` seconds (keeps notebooks alive)."""

    def __init__(
        self,
        target: int,
        monotonic: Callable[[], float],
        every_s: float,
        over: Callable[[], None] = lambda: None,
        short: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`over` is called at the end; `short`: the metrics to show, and what they are called."""
        super().__init__(target, monotonic, short)
        self._every_s, self._monotonic, self._over = every_s, monotonic, over
        self._shown_at: float | None = None

    def step(self, progress: Step) -> None:
        """A line if the last one is old enough, and at the target."""
        super().step(progress)
        if self._rested() or progress.step == self.work.target:
            self._show()

    def transfer(self, text: str) -> None:
        """A line if none came for a while."""
        super().transfer(text)
        if text and self._rested():
            self._show()

    def tick(self) -> None:
        """Called now and then: what takes long is told of too."""
        if self._shown_at is None:
            self._shown_at = self._monotonic()
        elif self._rested():
            self._show()

    def tell(self, line: str) -> None:
        """Print at once."""
        print(folded_for(sys.stderr, harmless(redact(line))), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Say nothing more by itself."""
        self._over()

    def _rested(self) -> bool:
        return self._shown_at is None or self._monotonic() - self._shown_at >= self._every_s

    def _show(self) -> None:
        if line := self.work.plain():
            self._shown_at = self._monotonic()
            self.tell(line)


class Bar(Display):
    """Two lines that move, with lines told above them; they appear with the first thing there is to show."""

    def __init__(
        self,
        target: int,
        monotonic: Callable[[], float],
        console: Console | None = None,
        short: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`short`: the metrics to show, and what they are called."""
        super().__init__(target, monotonic, short)
        self._console = console or Console(stderr=True, force_terminal=True, force_interactive=True)
        self._live: Live | None = None
        self._closed = False

    def step(self, progress: Step) -> None:
        """Move the bar."""
        super().step(progress)
        self._start()

    def phase(self, text: str) -> None:
        """Instead of the bar, until a step is made or it is over."""
        super().phase(text)
        if text:
            self._start()

    def transfer(self, text: str) -> None:
        """Below the bar; instead of it while nothing else is done."""
        super().transfer(text)
        if text:
            self._start()

    def tell(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(harmless(redact(line)), markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it stands, and what is safe."""
        self._closed = True
        self.work.phase("")
        self.work.transfer = ""
        if self._live is not None:
            put_down(self._live, self._console)

    def drawn(self) -> Text:
        """What the terminal shows now."""
        shown = self.work.lines(self._console.width, self._console.options.ascii_only)
        text = Text(harmless(redact("\n".join(shown))), no_wrap=True, overflow="crop")
        for pattern, colour in COLOURS.items():
            text.highlight_regex(pattern, colour)
        return text

    def _start(self) -> None:
        if self._live is None and not self._closed:  # one made earlier would first show what it was made with
            self._live = Live(console=self._console, get_renderable=self.drawn)
            self._live.start()


def display(
    runtime: Runtime, every_s: float, short: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> Display:
    """Lines that move on a terminal; else plain ones, also while nothing is told for long. `short`: as `Bar`."""
    if moves(environ, sys.stderr.isatty()):
        return Bar(0, runtime.monotonic, short=short)
    over = runtime.event()
    shown = Lines(0, runtime.monotonic, every_s, over.set, short)

    def until_over() -> None:
        while not over.wait(max(every_s, 1.0)):
            shown.tick()

    runtime.spawn("display", until_over)
    return shown
