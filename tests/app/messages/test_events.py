"""Every event of a session has its line, with what the event says in it."""

from __future__ import annotations

import signal

import pytest

from relay.app.messages.events import activity, line
from relay.core.errors import StorageUnreachable
from relay.core.events import (
    Activity,
    Committed,
    CompileCache,
    Continuing,
    LeftAlone,
    OutOfTime,
    SessionEvent,
    SignalReceived,
    Started,
    Trouble,
    WentBack,
)
from relay.core.ledger.frozen import WEIGHTS_ONLY
from relay.core.ledger.state import Origin

DOWN = StorageUnreachable("the store is down")


def origin(project: str) -> Origin:
    return Origin(project=project, run="old", entry="1" * 64, step=7, state_hash="2" * 64)


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        (Continuing(1500, "ana", 3), ["1,500", "ana", "epoch 3"]),
        (Continuing(1500, origin=origin("p")), ["1,500", "run old"]),
        (Continuing(0, origin=origin(WEIGHTS_ONLY)), ["weights of old"]),
        (Started(80.0, {"import": 5.0, "first_step": 90.0}, {"compile": 80.0}, {"kernels_loaded": 2}),
         ["80 s", "first step 90.0 s", "compile 80.0 s", "2 kernels loaded"]),
        (Committed(1500), ["1,500"]),
        (Committed(1500, "unsent"), ["1,500", "earlier session"]),
        (Committed(1500, "copy"), ["1,500", "copy"]),
        (WentBack(1500, "its files differ"), ["1,500", "its files differ"]),
        (LeftAlone(1500, "other shapes"), ["1,500", "other shapes"]),
        (OutOfTime(), ["time"]),
        (OutOfTime(1500), ["1,500", "this machine"]),
        (Trouble("commit", DOWN), ["commit", "the store is down"]),
        (Trouble("cleaning", DOWN), ["Clean-up", "the store is down"]),
        (Trouble("release", DOWN, expires_s=180.0), ["180 s", "the store is down"]),
        (Trouble("extra step", ZeroDivisionError("x")), ["ZeroDivisionError"]),
        (CompileCache("hit", files=3, bytes=4_500_000, seconds=1.25), ["3 files", "4.5 MB", "1.2 s"]),
        (CompileCache("local", files=1), ["1 kernel "]),
        (CompileCache("unusable", "Read-only"), ["Read-only"]),
        (CompileCache("miss"), ["miss", "compiles"]),
        (CompileCache("refused", "forged"), ["forged", "compiles"]),
        (CompileCache("unreadable", "gone"), ["gone", "compiles"]),
        (CompileCache("late"), ["not in time", "compiles"]),
        (CompileCache("stored", bytes=4_500_000), ["stored", "4.5 MB"]),
        (CompileCache("not stored", "full"), ["not stored", "full"]),
        (SignalReceived(signal.SIGINT, under_lease=True), ["Ctrl-C", "committed", "again"]),
        (SignalReceived(signal.SIGINT, under_lease=True, again=True), ["Ctrl-C again", "at once"]),
        (SignalReceived(signal.SIGHUP, under_lease=False), ["SIGHUP", "nothing was trained"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)  # fmt: skip
def test_a_line_holds_the_facts_of_its_event(event: SessionEvent, facts: list[str]) -> None:
    assert [fact for fact in facts if fact not in line(event)] == []
    assert "\n" not in line(event)


def test_activities_are_shown_and_not_printed() -> None:
    assert activity(Activity("evaluating", 1500, 45)) == f"{activity(Activity('evaluating', 1500))}: 45%"
    assert activity(Activity("training")) == ""
    assert all("1,500" in activity(Activity(doing, 1500)) for doing in ("restoring", "finishing"))
    assert line(Activity("restoring", 1500)) == ""
