"""Shows a session while it trains, on stderr: a bar on a terminal, else a line now and then; decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relay.redact import harmless, redact
from relay.workload import Progress as Step

SHOWN = ("lm_loss", "loss", "exact_accuracy", "accuracy")


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

    def close(self) -> None:
        """The session is over."""
        ...


class Lines:
    """Plain lines: everything told, and a step at most every `every_s` seconds (keeps notebooks alive)."""

    def __init__(self, target: int, monotonic: Callable[[], float], every_s: float) -> None:
        self._target, self._monotonic, self._every_s = target, monotonic, every_s
        self._shown_at: float | None = None
        self._first: tuple[int, float] | None = None

    def step(self, progress: Step) -> None:
        """A line if the last one is old enough, and at the target."""
        now = self._monotonic()
        if self._first is None:
            self._first = (progress.step, now)
        rested = self._shown_at is None or now - self._shown_at >= self._every_s
        if not rested and progress.step != self._target:
            return
        self._shown_at = now
        self.tell(f"step {progress.step:,}/{self._target:,}{self._pace(progress.step, now)}{numbers(progress.metrics)}")

    def aim(self, target: int) -> None:
        """Show this target from now on."""
        self._target = target

    def tell(self, line: str) -> None:
        """Print at once."""
        print(harmless(redact(line)), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left open."""

    def _pace(self, step: int, now: float) -> str:
        assert self._first is not None
        steps, seconds = step - self._first[0], now - self._first[1]
        return f"  {steps / seconds * 3600:,.0f} steps/h" if steps > 0 and seconds > 0 else ""


class Bar:
    """A progress bar that lines told appear above."""

    def __init__(self, target: int, console: Console | None = None) -> None:
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            console=console or Console(stderr=True),
        )
        self._task = self._bar.add_task("training", total=target, numbers="", start=False)
        self._started = False

    def step(self, progress: Step) -> None:
        """Move the bar."""
        if not self._started:
            self._started = True
            self._bar.start()
            self._bar.start_task(self._task)
        self._bar.update(self._task, completed=progress.step, numbers=numbers(progress.metrics))

    def aim(self, target: int) -> None:
        """Show this target from now on."""
        self._bar.update(self._task, total=target)

    def tell(self, line: str) -> None:
        """A line above the bar."""
        self._bar.console.print(harmless(redact(line)), markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()


def display(target: int, monotonic: Callable[[], float], every_s: float) -> Display:
    """A bar on a terminal, else lines."""
    return Bar(target) if sys.stderr.isatty() else Lines(target, monotonic, every_s)


def numbers(metrics: Mapping[str, float]) -> str:
    """The few metrics people watch."""
    return "".join(f"  {name} {metrics[name]:.4g}" for name in SHOWN if name in metrics)
