"""Colab's machine goes back only when nothing on it is needed, after a notice that can be interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from relay.app.machine.env import Machine
from relay.app.notebooks.notebook import release, why_kept
from relay.core.clock import RealRuntime

HERE = Machine("colab", 0.0, 720.0)


@pytest.mark.parametrize(
    ("ended", "machine", "unsent", "why"),
    [
        ({"exit_code": 75, "unsent": None}, HERE, [], ""),
        (None, HERE, [], "no session"),
        ({"exit_code": 130}, HERE, [], "130"),
        ({}, HERE, [], "None"),
        ({"exit_code": 75, "unsent": "/x/step_9"}, HERE, [], "/x/step_9"),
        ({"exit_code": 0}, HERE, ["a session still runs here"], "still runs"),
        ({"exit_code": 0}, Machine("kaggle", 0.0, 720.0), [], "kaggle"),
    ],
)
def test_why_a_machine_is_kept(ended: Any, machine: Machine, unsent: list[str], why: str) -> None:
    found = why_kept(ended, machine, unsent)
    assert bool(found) == bool(why) and why in found


class Pausing(RealRuntime):
    """Sleeps by calling `pause`."""

    def __init__(self, pause: Callable[[float], None]) -> None:
        self._pause = pause

    def sleep(self, seconds: float) -> None:
        self._pause(seconds)


def test_the_machine_goes_after_a_notice_that_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()
    colab, runtime = ModuleType("google.colab"), ModuleType("google.colab.runtime")
    vars(runtime).update(unassign=lambda: order.append("unassigned"))
    vars(colab).update(runtime=runtime)
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, "google.colab.runtime", runtime)
    release(Pausing(lambda s: order.append(f"{s:g} s")), order.append)
    assert order[0] and order[1:] == ["5 s", "unassigned"]
    order.clear()
    release(Pausing(lambda s: (_ for _ in ()).throw(KeyboardInterrupt())), order.append)
    assert len(order) == 2 and "unassigned" not in order
