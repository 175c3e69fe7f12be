"""A session that waits shows for whom and how long still: all the time on a terminal, now and then otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relay.app.terminal.waiting import Countdown, bar_of, clock
from relay.core.lease.blockers import Held
from relay.core.ledger.state import Holder
from tests.app.cli import Desk


@dataclass
class Clock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Shown:
    """A countdown of five minutes and all its lines."""

    clock: Clock = field(default_factory=Clock)
    lines: list[str] = field(default_factory=list)
    moving: list[str] = field(default_factory=list)
    wait_s: float = 300.0
    bar: Callable[[float], str] = lambda share: ""

    def __post_init__(self) -> None:
        names = {"a": "Ana's Colab (a)"}
        named = (self.moving.append, self.lines.append, lambda account: names.get(account, account))
        self.countdown = Countdown(self.clock, self.wait_s, *named, self.bar)  # type: ignore[arg-type]

    def held(
        self, account: str = "a", session: str = "5e" * 16, silent: float = 12.0, confirming: bool = False
    ) -> None:
        holder = Holder(
            session=session, account=account, epoch=1, since=1.0, ttl_s=180.0, latest_end=None, target_steps=9
        )
        self.countdown.held(Held(holder, silent, 168.0, confirming))

    def after(self, seconds: float) -> str:
        self.clock.now += seconds
        self.countdown.tick()
        return self.moving[-1] if self.moving else ""


def test_it_counts_down_by_the_holders_name(pinned: Any) -> None:
    shown = Shown()
    assert shown.after(0) == "", "nobody is in the way"
    shown.held()
    moving = [shown.after(0)]
    shown.after(0.5)
    assert len(shown.moving) == 1, "not more often than once a second"
    moving += [shown.after(28)]
    shown.held(silent=3.0)
    moving += [shown.after(1)]
    assert len(shown.lines) == 1, "once"
    assert "\n".join([*shown.lines, *moving]) == pinned
    shown.held("b", session="ab" * 16)
    assert len(shown.lines) == 2 and shown.lines[1].startswith("b holds"), "somebody else came first"
    shown.countdown.over()
    assert shown.moving[-1] == ""


def test_a_silent_holder_is_looked_at_also_where_nobody_wants_to_wait(pinned: Any) -> None:
    shown = Shown(wait_s=0.0)
    shown.held(confirming=True)
    assert "\n".join([*shown.lines, shown.after(8)]) == pinned


@pytest.mark.parametrize(
    ("terminal", "encoding", "bar"),
    [(True, "utf-8", "  ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌"), (True, "ascii", "  ##########----------"), (False, "utf-8", "")],
)
def test_a_bar_only_where_a_line_moves(terminal: bool, encoding: str, bar: str) -> None:
    shown = Shown(bar=bar_of(terminal, encoding))
    shown.held()
    assert f"(a){bar}: 2:30 of" in shown.after(150)


def test_time_left_is_written_so_that_it_moves() -> None:
    assert [clock(s) for s in (-1, 9.6, 61, 3661)] == ["0:00", "0:10", "1:01", "1:01:01"]


def test_looking_on_and_replacing_exclude_each_other_and_do_nothing_where_nobody_trains(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    refused = desk.train(10, "--attach", "--replace", code=2).err
    assert "--attach" in refused and "--replace" in refused
    desk.train(10, "--attach")
    assert not list(tmp_path.rglob("relay_store/runs/*")), "and nothing was begun"
    assert desk.train(10, "--replace").code == 0
    assert not list((tmp_path / ".cache" / "trm-relay" / "locks").iterdir()), "a session leaves no trace"
