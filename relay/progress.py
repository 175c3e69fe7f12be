"""Shows a session while it trains, on stderr: a bar on a terminal, else a line now and then; decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from relay.redact import harmless, redact
from relay.wording import duration, metric
from relay.workload import Progress as Step

SHOWN = {"lm_loss": "loss", "loss": "loss", "exact_accuracy": "exact", "accuracy": "acc"}
"""What people watch, by what it is called where there is little room."""
SHORTEST_BAR, LONGEST_BAR = 8, 40
IDLE_S = 3.0
"""Without a step for so long the line shows the transfer that everybody waits for."""


class Display(Protocol):
    """What a session tells while it runs."""

    def step(self, progress: Step) -> None:
        """A training step, with metrics."""
        ...

    def aim(self, target: int) -> None:
        """The step that training goes to."""
        ...

    def tell(self, line: str) -> None:
        """One line for people."""
        ...

    def transfer(self, text: str) -> None:
        """How far a long transfer is, from any thread; empty once it is over."""
        ...

    def close(self) -> None:
        """The session is over."""
        ...


class Pace:
    """Steps per second since the session's first step."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._first: tuple[int, float] | None = None
        self.step = 0
        self.rate = 0.0
        """0 until two steps were seen."""

    def now(self) -> float:
        """The time now."""
        return self._monotonic()

    def add(self, step: int) -> float:
        """The time now."""
        now = self._monotonic()
        self._first = self._first or (step, now)
        steps, seconds = step - self._first[0], now - self._first[1]
        self.step, self.rate = step, steps / seconds if steps > 0 and seconds > 0 else 0.0
        return now


class Lines:
    """Plain lines: everything told, and a step at most every `every_s` seconds (keeps notebooks alive)."""

    def __init__(self, target: int, monotonic: Callable[[], float], every_s: float) -> None:
        self._target, self._every_s, self._pace = target, every_s, Pace(monotonic)
        self._shown_at: float | None = None

    def step(self, progress: Step) -> None:
        """A line if the last one is old enough, and at the target."""
        now = self._pace.add(progress.step)
        rested = self._shown_at is None or now - self._shown_at >= self._every_s
        if not rested and progress.step != self._target:
            return
        self._shown_at = now
        speed = f"  {self._pace.rate * 3600:,.0f} steps/h" if self._pace.rate else ""
        self.tell(f"step {progress.step:,}/{self._target:,}{speed}{numbers(progress.metrics)}")

    def aim(self, target: int) -> None:
        """Show this target from now on."""
        self._target = target

    def transfer(self, text: str) -> None:
        """A line if none came for a while."""
        now = self._pace.now()
        if text and (self._shown_at is None or now - self._shown_at >= self._every_s):
            self._shown_at = now
            self.tell(text)

    def tell(self, line: str) -> None:
        """Print at once."""
        print(harmless(redact(line)), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left open."""


class Bar:
    """A line that moves, with lines told above it; it appears with the first step."""

    def __init__(self, target: int, monotonic: Callable[[], float], console: Console | None = None) -> None:
        self._target, self._pace = target, Pace(monotonic)
        self._metrics: Mapping[str, float] = {}
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._stepped_at = -IDLE_S
        self._transfer = ""

    def step(self, progress: Step) -> None:
        """Move the bar."""
        self._stepped_at = self._pace.add(progress.step)
        self._metrics = progress.metrics
        self._start()

    def transfer(self, text: str) -> None:
        """Instead of the bar while no step is made: a checkpoint is fetched, or the last one sent."""
        self._transfer = text
        if text:
            self._start()

    def _start(self) -> None:
        if self._live is None:  # one made earlier would first show what it was made with
            self._live = Live(console=self._console, get_renderable=self._line)
            self._live.start()

    def aim(self, target: int) -> None:
        """Show this target from now on."""
        self._target = target

    def tell(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(harmless(redact(line)), markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._live is not None:
            self._live.stop()

    def _line(self) -> Text:
        if self._transfer and self._pace.now() - self._stepped_at >= IDLE_S:
            return Text(self._transfer, no_wrap=True, overflow="crop")
        text = bar_line(self._pace, self._target, self._metrics, self._console.width, self._console.options.ascii_only)
        return Text(text, no_wrap=True, overflow="crop")


def bar_line(pace: Pace, target: int, metrics: Mapping[str, float], width: int, ascii_only: bool = False) -> str:
    """Step, percent and time left, whatever the width; a bar and as many numbers, as long, as there is room for."""
    head, share = f"step {pace.step:,}/{target:,}", min(1.0, pace.step / target) if target else 0.0
    left = f"{duration((target - pace.step) / pace.rate)} left" if pace.rate else "time left unknown"
    middle = f"  {int(100 * share)}%  {'done' if pace.step >= target else left}"
    room = width - len(head) - len(middle)
    for wanted, least in _choices(metrics):
        if len(wanted) + least <= room:
            return head + _bar(share, min(LONGEST_BAR, room - len(wanted) - 2), ascii_only) + middle + wanted
    return head + middle


def _choices(metrics: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    """Numbers to show and the columns to keep for the bar, best first."""
    names = [name for name in SHOWN if name in metrics]
    with_bar = SHORTEST_BAR + 2
    yield numbers(metrics), with_bar
    for count in range(len(names), 1, -1):
        yield _short(names[:count], metrics), with_bar
    for count in range(len(names), -1, -1):
        yield _short(names[:count], metrics), 0


def _short(names: Sequence[str], metrics: Mapping[str, float]) -> str:
    return "".join(f"  {SHOWN[name]} {metric(name, metrics[name], 3)}" for name in names)


def _bar(share: float, length: int, ascii_only: bool) -> str:
    """Nothing where it would be too short to be read."""
    if length < SHORTEST_BAR:
        return ""
    done, rest = ("#", "-") if ascii_only else ("━", "╌")
    filled = int(share * length)
    return f"  {done * filled}{rest * (length - filled)}"


def display(target: int, monotonic: Callable[[], float], every_s: float) -> Display:
    """A bar on a terminal, else lines."""
    return Bar(target, monotonic) if sys.stderr.isatty() else Lines(target, monotonic, every_s)


def numbers(metrics: Mapping[str, float]) -> str:
    """The few metrics people watch."""
    return "".join(f"  {name} {metric(name, metrics[name])}" for name in SHOWN if name in metrics)
