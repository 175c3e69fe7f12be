"""A whole session as its terminal shows it, scene by scene, by a clock that only the script moves.

Colors are written as rich's markup.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr

from rich.console import Console

from relay.app.terminal.progress import Bar, Display, Lines
from relay.core.workload import Progress
from tests.core.toy import MEASURES

Scene = tuple[str, Callable[["Stage"], None]]


class Stage:
    """A display and the clock of what is played on it."""

    def __init__(self, shown: Display, clock: list[float]) -> None:
        self.shown, self._clock = shown, clock
        shown.aim(50_000)

    def after(self, seconds: float) -> None:
        self._clock[0] += seconds

    def steps(self, first: int, last: int, seconds: float) -> None:
        """Every hundredth step is told."""
        metrics = {"lm_loss": 0.02337, "exact_accuracy": 0.8742, "accuracy": 0.9617, "lr": 1e-4}
        for step in range(first, last + 1, 100):
            self.after(100 * seconds)
            self.shown.step(Progress(step, metrics))


def _loads(stage: Stage) -> None:
    stage.shown.ends(3600.0)
    stage.shown.phase("starting: loading the program and the data")
    stage.after(14.0)


def _waits(stage: Stage) -> None:
    stage.shown.phase("")
    stage.shown.tell("Kaggle - Project 1 (account_3) holds the lease: waiting for up to 5 min (it may be taken over "
                     "in 3 min if it falls silent).")  # fmt: skip
    stage.after(43.0)
    stage.shown.transfer("waiting for Kaggle - Project 1 (account_3): 4:17 of 5:00 left; last sign of life 12 s ago")


def _restores(stage: Stage) -> None:
    stage.shown.phase("restoring step 11,750")
    stage.after(9.0)
    stage.shown.transfer("fetching step 11,750: 41% of 233.0 MB, 10.6 MB/s, 13 s left")


def _compiles(stage: Stage) -> None:
    stage.shown.transfer("")
    stage.shown.tell("Continuing step 11,750 of account_3's session (epoch 7).")
    stage.shown.phase("first step, which may compile")
    stage.after(95.0)


def _trains(stage: Stage) -> None:
    stage.shown.phase("")
    stage.steps(11_751, 12_151, 0.152)


def _commits(stage: Stage) -> None:
    stage.shown.transfer("sending step 12,151: 45% of 233.0 MB, 12.4 MB/s, 10 s left")
    stage.steps(12_251, 12_251, 0.152)


def _is_safe(stage: Stage) -> None:
    stage.shown.transfer("")
    stage.shown.committed(12_151)
    stage.steps(12_351, 13_051, 0.152)


def _is_silent(stage: Stage) -> None:
    stage.shown.tell("Storage trouble; training continues and the commit is retried: S3 bucket relay: 503, slow.")
    stage.steps(13_151, 22_051, 0.152)


def _evaluates(stage: Stage) -> None:
    stage.shown.phase("evaluating step 22,051: 0%")
    stage.after(25.0)
    stage.shown.phase("evaluating step 22,051: 62%")


def _is_interrupted(stage: Stage) -> None:
    stage.shown.tell("Ctrl-C: this step is finished and committed, then the session ends; press again to end at once.")


def _finishes(stage: Stage) -> None:
    stage.shown.phase("finishing: step 22,052 is made durable")
    stage.after(8.0)
    stage.shown.transfer("sending step 22,052: 88% of 233.0 MB, 26.1 MB/s, 1 s left")


def _ends(stage: Stage) -> None:
    stage.shown.committed(22_052)
    stage.shown.close()


SCENES: tuple[Scene, ...] = (
    ("starting", _loads), ("waiting for the lease", _waits), ("restoring", _restores), ("compiling", _compiles),
    ("training", _trains), ("committing", _commits), ("what is safe", _is_safe), ("a store in trouble", _is_silent),
    ("evaluating", _evaluates), ("interrupted", _is_interrupted), ("finishing", _finishes), ("the end", _ends),
)  # fmt: skip


def moving(width: int, ascii_only: bool, color: bool = False) -> str:
    """What stands on the terminal in each scene: what was told in it, then the lines that move."""
    clock, out = [0.0], io.BytesIO()
    stream = io.TextIOWrapper(out, encoding="ascii" if ascii_only else "utf-8", errors="replace")
    still = Console(file=stream, width=width, color_system=None)
    bar = Bar(0, lambda: clock[0], still, MEASURES.short)
    bar._closed = True  # nothing is drawn by itself, and so nothing depends on real time
    stage, parts = Stage(bar, clock), []
    for name, play in SCENES:
        out.seek(0)
        out.truncate()
        play(stage)
        stream.flush()
        told = out.getvalue().decode(stream.encoding).splitlines()
        drawn = bar.drawn()
        parts += [f"# {name}", *(line.rstrip() for line in told), drawn.markup if color else drawn.plain]
    return "\n".join(parts)


def plain() -> str:
    """The same where nothing moves: every line of the whole session."""
    clock, told = [0.0], io.StringIO()
    with redirect_stderr(told):
        shown = Lines(0, lambda: clock[0], 300.0, short=MEASURES.short)
        stage = Stage(shown, clock)
        for _, play in SCENES:
            play(stage)
            shown.tick()
    return told.getvalue().rstrip("\n")
