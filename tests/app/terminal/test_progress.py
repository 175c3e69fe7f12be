"""A session's display during training: rare plain lines, or two that move; no secret, no markup from outside."""

from __future__ import annotations

import importlib.util
import io
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from relay.app.messages.wording import numbers
from relay.app.terminal.atwork import IDLE_S, AtWork
from relay.app.terminal.progress import Bar, Lines, display
from relay.app.terminal.terminal import NOTEBOOKS, moves
from relay.core.clock import RealRuntime
from relay.core.workload import Progress
from tests.core.toy import MEASURES


def test_lines_are_rare_and_say_step_target_and_pace(capsys: pytest.CaptureFixture[str], pinned: Any) -> None:
    clock = [0.0]
    shown = Lines(1600, lambda: clock[0], every_s=30.0, short=MEASURES.short)
    for step in range(100):
        shown.step(Progress(step, {"lm_loss": 0.5, "other": 1.0}))
        clock[0] += 1.0
    shown.tell("commit at step 99 with hf_abcdefghijklmnop")
    told = capsys.readouterr().err
    assert told == pinned
    assert len(told.splitlines()) == 5 and "hf_abc" not in told


METRICS = {"lm_loss": 0.023371, "exact_accuracy": 0.99414, "accuracy": 0.99672, "q_halt_accuracy": 1.0}
BEGIN, MIDDLE = "step 1,310/1,600", "  81%  2 min left"


def worked(*seen: tuple[int, float], metrics: Mapping[str, float] = METRICS) -> AtWork:
    """On the way to step 1,600, with these steps made at these times."""
    clock = [0.0]
    work = AtWork(1600, lambda: clock[0], MEASURES.short)
    for step, at in seen:
        clock[0] = at
        work.step(Progress(step, metrics))
    return work


def at_work(clock: list[float], deadline: float = math.inf) -> AtWork:
    """After two steps in 5 s, on the way to step 1,600."""
    work = AtWork(1600, lambda: clock[0], MEASURES.short)
    work.deadline = deadline
    for step, at in ((1300, 0.0), (1310, 5.0)):
        clock[0] = at
        work.step(Progress(step, METRICS))
    return work


def test_bar_shows_steps_and_takes_told_lines_literally() -> None:
    out = io.StringIO()
    bar = Bar(10, lambda: 0.0, Console(file=out, force_terminal=True, width=100, no_color=True), MEASURES.short)
    bar.tell("[red]as it is[/red]")
    bar.step(Progress(5, {"exact_accuracy": 0.25}))
    bar.close()
    assert "[red]as it is[/red]" in out.getvalue()
    assert "5/10" in out.getvalue() and "exact 25.0%" in out.getvalue()


def test_the_first_frame_after_a_resume_shows_the_step_that_it_goes_on_from() -> None:
    out = io.StringIO()
    bar = Bar(1600, lambda: 0.0, Console(file=out, force_terminal=True, width=100, no_color=True), MEASURES.short)
    bar.aim(1600)
    assert not out.getvalue()
    bar.step(Progress(1068, {}))
    bar.tell("Step 1,068 is committed.")
    bar.close()
    assert "1,068/1,600" in out.getvalue() and "step 0/" not in out.getvalue()


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, BEGIN + f"  {'━' * 32}{'╌' * 8}" + MIDDLE + "  loss 0.0234  exact 99.4%  acc 99.7%"),
        (80, BEGIN + f"  {'━' * 6}{'╌' * 2}" + MIDDLE + "  loss 0.0234  exact 99.4%  acc 99.7%"),
        (60, BEGIN + MIDDLE + "  loss 0.0234  exact 99.4%"),
        (40, BEGIN + MIDDLE),
        (20, BEGIN + MIDDLE),
    ],
)
def test_step_percent_and_time_left_stay_readable_as_the_terminal_narrows(width: int, line: str) -> None:
    assert worked((1300, 0.0), (1310, 5.0), metrics=METRICS).bar_line(width) == line


@pytest.mark.parametrize("metrics", [{}, METRICS], ids=["bare", "full"])
def test_a_bar_is_never_wider_than_the_terminal(metrics: dict[str, float]) -> None:
    for width in range(34, 161):
        line = worked((1300, 0.0), (1310, 5.0), metrics=metrics).bar_line(width)
        assert len(line) <= width and "1,310/1,600" in line and "81%" in line and "2 min left" in line
        assert worked((1300, 0.0), (1310, 5.0), metrics=metrics).bar_line(width, ascii_only=True).isascii()


def test_the_time_left_is_of_this_session_s_pace_and_unknown_at_its_first_step() -> None:
    assert "left unknown" in worked((1300, 0.0), metrics={}).bar_line(80)
    assert "10 min left" in worked((1000, 0.0), (1300, 600.0), metrics={}).bar_line(80)
    assert "100%  done" in worked((1300, 0.0), (1600, 600.0), metrics={}).bar_line(80)
    assert "99%" in worked((1599, 0.0), metrics={}).bar_line(80)


def test_below_the_bar_stand_pace_the_session_s_time_and_how_old_what_is_safe_is(pinned: Any) -> None:
    clock = [0.0]
    work = at_work(clock, deadline=1805.0)
    below = [work.lines(80)[1]]
    work.committed(1300)
    clock[0] = 125.0
    below += [work.lines(80)[1], work.lines(60, ascii_only=True)[1]]
    work.deadline = math.inf
    below += [work.lines(80)[1]]
    assert "\n".join(below) == pinned


def test_a_step_that_is_safe_was_made_though_nobody_told_of_it() -> None:
    """Steps are reported now and then; a commit may come of one between."""
    clock = [0.0]
    work = at_work(clock)
    work.committed(1318)
    assert work.lines(80)[0].startswith("step 1,318/1,600") and work.rate > 0


def test_what_is_on_its_way_is_shown_in_fewer_words_before_it_goes(pinned: Any) -> None:
    clock = [0.0]
    work = at_work(clock, deadline=1805.0)
    work.committed(1300)
    work.transfer = "sending step 1,310: 45% of 85.0 MB, 1.2 MB/s, 40 s left"
    assert "\n".join(f"{width:>3}{work.lines(width)[1]}" for width in (140, 120, 80, 60, 40)) == pinned


def test_a_phase_stands_where_the_bar_was_and_counts_its_own_time() -> None:
    clock = [0.0]
    work = AtWork(1600, lambda: clock[0], MEASURES.short)
    work.phase("restoring step 1,300")
    assert work.lines(80) == ["restoring step 1,300"]
    clock[0] = 40.0
    assert work.lines(80) == ["restoring step 1,300, 40 s"]
    work = at_work(clock)
    work.phase("evaluating step 1,310: 0%")
    clock[0] += 20.0
    work.phase("evaluating step 1,310: 45%")
    assert work.lines(80)[0] == "evaluating step 1,310: 45%, 20 s", "the same, further along"
    work.phase("")
    assert "81%" in work.lines(80)[0]


def test_a_transfer_that_everybody_waits_for_stands_above_and_not_twice() -> None:
    clock = [0.0]
    work = at_work(clock)
    work.transfer = "sending step 1,310: 45%"
    assert "81%" in work.lines(80)[0] and "sending" in work.lines(80)[1]
    clock[0] += IDLE_S
    assert work.lines(80)[0] == "sending step 1,310: 45%" and "sending" not in work.lines(80)[1]
    work.step(Progress(1311, {}))
    work.phase("evaluating step 1,310: 45%")
    assert work.lines(80)[0].startswith("evaluating") and "sending" in work.lines(80)[1]
    work.phase("finishing: step 1,311 is made durable")
    assert work.lines(80)[0] == "sending step 1,310: 45%", "how far it is tells more than what it is"


def test_a_long_line_loses_whole_clauses() -> None:
    clock = [0.0]
    work = AtWork(1600, lambda: clock[0], MEASURES.short)
    work.transfer = "waiting for Kaggle - Project 1 (account_3): 4:17 of 5:00 left; last sign of life 12 s ago"
    assert work.lines(80) == ["waiting for Kaggle - Project 1 (account_3): 4:17 of 5:00 left"]
    assert work.lines(60) == ["waiting for Kaggle - Project 1 (account_3): 4:17 of 5:00"]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_than_the_terminal_whatever_is_told(ascii_only: bool) -> None:
    clock = [0.0]
    work = at_work(clock, deadline=1e6)
    work.committed(123_456_789)
    for doing in ("", "waiting for " + "日本語" * 20 + "'s lease: free in 2 min if it stays silent"):
        for transfer in ("", "sending step 123,456,789: 45% of 85.0 MB, 1.2 MB/s, 40 s left"):
            work.doing, work.transfer = (doing, 0.0), transfer
            for width in range(20, 161):
                shown = work.lines(width, ascii_only)
                assert all(cell_len(line) <= width for line in shown) and len(shown) <= 2
                assert not ascii_only or all(line.isascii() for line in shown)


def test_what_takes_long_is_told_in_plain_lines_too_and_only_after_silence(
    capsys: pytest.CaptureFixture[str], pinned: Any
) -> None:
    """A notebook or a runner that hears nothing takes the session for dead."""
    clock = [0.0]
    shown = Lines(1600, lambda: clock[0], every_s=30.0, short=MEASURES.short)
    shown.ends(3600.0)
    shown.phase("first step, which may compile")
    for _ in range(9):
        shown.tick()
        clock[0] += 10.0
    assert capsys.readouterr().err == pinned


def test_a_plain_line_has_everything_once(pinned: Any) -> None:
    clock = [0.0]
    work = at_work(clock, deadline=1805.0)
    lines = [work.plain()]
    work.phase("evaluating step 1,310: 45%")
    lines += [work.plain()]
    work.committed(1300)
    assert "\n".join([*lines, work.plain()]) == pinned


def test_without_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    shown = display(RealRuntime(), 30.0, {}, {})
    shown.close()
    assert isinstance(shown, Lines)
    shown = display(RealRuntime(), 30.0, {}, {"TTY_INTERACTIVE": "1"})
    shown.close()
    assert isinstance(shown, Bar) and not capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "terminal", "moving"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1"}, False, False),
        ({"TTY_COMPATIBLE": "1"}, False, True),
        ({"TTY_COMPATIBLE": "0"}, True, False),
        ({"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "0"}, True, False),
        ({"TTY_INTERACTIVE": "1"}, False, True),
        *(({name: "x"}, True, False) for name in NOTEBOOKS),
        ({NOTEBOOKS[0]: "1", "TTY_COMPATIBLE": "1"}, True, False),
        ({NOTEBOOKS[0]: "1", "TTY_INTERACTIVE": "1"}, True, True),
    ],
)
def test_lines_move_only_where_nobody_keeps_every_frame(environ: dict[str, str], terminal: bool, moving: bool) -> None:
    assert moves(environ, terminal) is moving


def frames(**environ: str) -> str:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, force_interactive=True, width=100, _environ={"TERM": "xterm-256color", **environ}
    )
    clock = [0.0]
    bar = Bar(1600, lambda: clock[0], console)
    bar.work = at_work(clock, deadline=1805.0)
    bar.step(Progress(1320, METRICS))
    bar.close()
    return out.getvalue()


def test_colour_is_only_in_what_is_coloured_anyway_and_none_where_it_is_not_wanted() -> None:
    assert "\x1b[32m" in frames()
    assert "\x1b[32m" not in frames(NO_COLOR="1") and "━" in frames(NO_COLOR="1")


def test_the_last_frame_says_what_is_safe_and_no_phase() -> None:
    out, clock = io.StringIO(), [0.0]
    bar = Bar(1600, lambda: clock[0], Console(file=out, force_terminal=True, width=100, no_color=True), MEASURES.short)
    bar.work = at_work(clock)
    bar.step(Progress(1600, {}))
    bar.phase("finishing: step 1,600 is made durable")
    bar.committed(1600)
    bar.close()
    bar.phase("giving the lease back")
    last = re.sub(r"\x1b\[\d*m", "", out.getvalue().rpartition("\x1b[2K")[2])
    assert "100%  done" in last and "step 1,600 safe" in last and "finishing" not in last


def test_only_watched_numbers_are_shown() -> None:
    assert numbers({"lm_loss": 1.23456, "x": 2.0}, MEASURES.short) == "  loss 1.235"
    assert numbers({"exact_accuracy": 0.99567}, MEASURES.short) == "  exact 99.6%"


def test_a_line_is_folded_on_a_terminal_that_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            return 2

    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr("os.get_terminal_size", lambda number: os.terminal_size((80, 24)))
    Lines(0, lambda: 0.0, 30.0).tell("NEW run r at step 0; this store also holds: " + ", ".join(["practice"] * 20))
    assert 40 < max(map(len, out.getvalue().splitlines())) <= 80


def test_the_benchmark_of_a_true_run_reads_the_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/true_run.py, which no package holds, takes step and loss from it."""
    place = Path(__file__).parents[3] / "benchmarks"
    monkeypatch.syspath_prepend(place)
    spec = importlib.util.spec_from_file_location("benchmark_true_run", place / "true_run.py")
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    line = worked((1300, 0.0), (1310, 5.0)).plain()
    step, loss = benchmark.STEP.search(line), benchmark.LOSS.search(line)
    assert step[1] == "1,310" and float(loss[1]) == pytest.approx(METRICS["lm_loss"], rel=0.01)
