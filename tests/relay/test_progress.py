"""What a session shows while it trains: rare plain lines, or a bar; never a secret, never markup from outside."""

from __future__ import annotations

import io
import os
import signal

import pytest
from rich.console import Console

from relay.interrupts import Interrupted, listening
from relay.progress import Bar, Lines, display, numbers
from relay.signals import Reason, StopSignal
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


def test_bar_shows_steps_and_takes_told_lines_literally() -> None:
    out = io.StringIO()
    bar = Bar(10, Console(file=out, force_terminal=True, width=100))
    bar.tell("[red]as it is[/red]")
    bar.step(Progress(5, {"exact_accuracy": 0.25}))
    bar.close()
    assert "[red]as it is[/red]" in out.getvalue()
    assert "5/10" in out.getvalue() and "exact_accuracy 0.25" in out.getvalue()


def test_without_a_terminal_there_is_no_bar() -> None:
    assert isinstance(display(10, lambda: 0.0, 30.0), Lines)


def test_only_watched_numbers_are_shown() -> None:
    assert numbers({"lm_loss": 1.23456, "x": 2.0}) == "  lm_loss 1.235"


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGTERM, "sigterm"), (signal.SIGINT, "sigint"), (signal.SIGUSR1, "stop")]
)
def test_signals_ask_the_session_to_end_and_handlers_are_put_back(number: signal.Signals, reason: str) -> None:
    before, stop = signal.getsignal(number), StopSignal()
    with listening(stop):
        os.kill(os.getpid(), number)
        assert stop.reason == reason
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("reason", "code"), [("sigterm", 143), ("sigint", 130), ("stop", 75)])
def test_a_signal_before_the_lease_keeps_its_exit_code(reason: Reason, code: int) -> None:
    assert Interrupted(reason, "SIGX").exit_code == code


def test_a_second_interrupt_stops_at_once() -> None:
    stop = StopSignal()
    with pytest.raises(KeyboardInterrupt), listening(stop):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.at_once
