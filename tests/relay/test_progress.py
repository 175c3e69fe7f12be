"""What a session shows while it trains: rare plain lines, or a bar; never a secret, never markup from outside."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from relay.progress import Bar, Lines, Pace, bar_line, display, numbers
from relay.workload import Progress


def test_lines_are_rare_and_say_step_target_and_pace(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    lines = Lines(1600, lambda: clock[0], every_s=30.0)
    for step in range(100):
        lines.step(Progress(step, {"lm_loss": 0.5, "other": 1.0}))
        clock[0] += 1.0
    lines.tell("commit at step 99 with hf_abcdefghijklmnop")
    shown = capsys.readouterr().err.splitlines()
    assert shown[:2] == ["step 0/1,600  lm_loss 0.5", "step 30/1,600  3,600 steps/h  lm_loss 0.5"]
    assert len(shown) == 5 and shown[-1] == "commit at step 99 with ***"


METRICS = {"lm_loss": 0.023371, "exact_accuracy": 0.99414, "accuracy": 0.99672, "q_halt_accuracy": 1.0}
BEGIN, MIDDLE = "step 1,310/1,600", "  81%  2 min left"


def pace(*seen: tuple[int, float]) -> Pace:
    clock = iter(at for _, at in seen)
    made = Pace(lambda: next(clock))
    for step, _ in seen:
        made.add(step)
    return made


def test_bar_shows_steps_and_takes_told_lines_literally() -> None:
    out = io.StringIO()
    bar = Bar(10, lambda: 0.0, Console(file=out, force_terminal=True, width=100))
    bar.tell("[red]as it is[/red]")
    bar.step(Progress(5, {"exact_accuracy": 0.25}))
    bar.close()
    assert "[red]as it is[/red]" in out.getvalue()
    assert "5/10" in out.getvalue() and "exact_accuracy 25.0%" in out.getvalue()


def test_the_first_frame_after_a_resume_shows_the_step_that_it_goes_on_from() -> None:
    out = io.StringIO()
    bar = Bar(1600, lambda: 0.0, Console(file=out, force_terminal=True, width=100))
    bar.aim(1600)
    assert not out.getvalue()
    bar.step(Progress(1068, {}))
    bar.tell("Step 1,068 is committed.")
    bar.close()
    assert "1,068/1,600" in out.getvalue() and "step 0/" not in out.getvalue()


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, BEGIN + f"  {'━' * 24}{'╌' * 6}" + MIDDLE + "  lm_loss 0.02337  exact_accuracy 99.4%  accuracy 99.7%"),
        (80, BEGIN + f"  {'━' * 6}{'╌' * 2}" + MIDDLE + "  loss 0.0234  exact 99.4%  acc 99.7%"),
        (60, BEGIN + MIDDLE + "  loss 0.0234  exact 99.4%"),
        (40, BEGIN + MIDDLE),
        (20, BEGIN + MIDDLE),
    ],
)
def test_step_percent_and_time_left_stay_readable_as_the_terminal_narrows(width: int, line: str) -> None:
    assert bar_line(pace((1300, 0.0), (1310, 5.0)), 1600, METRICS, width) == line


@pytest.mark.parametrize("width", range(34, 161))
@pytest.mark.parametrize("metrics", [{}, METRICS])
def test_a_bar_is_never_wider_than_the_terminal(width: int, metrics: dict[str, float]) -> None:
    line = bar_line(pace((1300, 0.0), (1310, 5.0)), 1600, metrics, width)
    assert len(line) <= width and "1,310/1,600" in line and "81%" in line and "2 min left" in line
    assert bar_line(pace((1300, 0.0), (1310, 5.0)), 1600, metrics, width, ascii_only=True).isascii()


def test_the_time_left_is_of_this_session_s_pace_and_unknown_at_its_first_step() -> None:
    assert "time left unknown" in bar_line(pace((1300, 0.0)), 1600, {}, 80)
    assert "10 min left" in bar_line(pace((1000, 0.0), (1300, 600.0)), 1600, {}, 80)
    assert "100%  done" in bar_line(pace((1300, 0.0), (1600, 600.0)), 1600, {}, 80)
    assert "99%" in bar_line(pace((1599, 0.0)), 1600, {}, 80)


def test_without_a_terminal_there_is_no_bar() -> None:
    assert isinstance(display(10, lambda: 0.0, 30.0), Lines)


def test_only_watched_numbers_are_shown() -> None:
    assert numbers({"lm_loss": 1.23456, "x": 2.0}) == "  lm_loss 1.235"
    assert numbers({"exact_accuracy": 0.99567}) == "  exact_accuracy 99.6%"
