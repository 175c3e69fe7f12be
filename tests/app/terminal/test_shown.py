"""The calls of a session to its display: each phase when it begins and when it is over, each safe step."""

from __future__ import annotations

import io
import math
import re

from rich.console import Console

from relay.app.messages.events import activity
from relay.app.terminal.progress import Bar
from relay.core.events import Activity, Committed, SessionEvent
from tests.core.lab import Lab, Session


def shown(session: Session) -> tuple[Bar, list[str]]:
    """A display of that session that never draws by itself, and the lines it would have drawn at each turn."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    bar, frames = Bar(100, session.ctx.runtime.monotonic, console), list[str]()
    bar._closed = True
    listener = session.ctx.listener

    def event(event: SessionEvent) -> None:
        if isinstance(event, Activity):
            bar.phase(activity(event))
            frames.append(bar.drawn().plain)
        elif isinstance(event, Committed):
            bar.committed(event.step)
            frames.append(bar.drawn().plain)

    listener.event, listener.progress = event, bar.step
    bar.aim(session.ctx.plan.target_steps)
    bar.ends(session.ctx.plan.limits.deadline)
    return bar, frames


def headings(frames: list[str]) -> list[str]:
    """First lines without their moving parts, each once in a row."""
    told = [re.sub(r"\d[\d,]*(/[\d,]+)?", "N", frame.split("\n")[0].split("  ")[0]) for frame in frames]
    return [text for text, before in zip(told, ["", *told], strict=False) if text != before]


def test_phases_come_in_order_and_none_outlasts_what_it_tells_of(lab: Lab) -> None:
    lab.run(lab.session(target_steps=20))
    lab.world.now += 7200
    session = lab.session("bob", target_steps=40, evaluate_every=1, budget_s=3600)
    bar, frames = shown(session)
    lab.run(session)
    assert headings(frames)[:3] == ["restoring step N", activity(Activity("first step")), "step N"]
    doing = [heading.split()[0] for heading in headings(frames)]
    assert "evaluating" in doing and "finishing:" in doing
    assert frames[-1].split("\n")[1].startswith("  step 40 safe "), "told as it became safe"
    assert all("session: " in frame for frame in frames)
    bar.close()
    assert "100%  done" in bar.drawn().plain


def test_without_a_budget_no_end_is_told_and_a_first_session_restores_nothing(lab: Lab) -> None:
    session = lab.session(target_steps=20)
    bar, frames = shown(session)
    lab.run(session)
    assert bar.work.deadline == math.inf and not any("session: " in frame for frame in frames)
    assert headings(frames)[0] == "first step, which may compile" and "restoring" not in " ".join(frames)
