"""The lease is given back within the time that is left, and who could not says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from relay.core.errors import Fenced, StorageUnreachable
from relay.core.events import SessionEvent, Trouble
from relay.core.session.ends import RELEASE_S, release
from tests.core.fake_runtime import World


@dataclass
class Bench:
    """A session at its end: a lease whose append takes `answer_s`, then raises `error` if there is one."""

    world: World = field(default_factory=World)
    answer_s: float = 0.2
    error: Exception | None = None
    events: list[SessionEvent] = field(default_factory=list)
    given_up: Callable[[], bool] = lambda: False

    def append(self, kind: str, build: Callable[[Any], Any], give_up: Callable[[], bool]) -> None:
        assert (kind, build(None).reason) == ("release", "budget")
        self.given_up = give_up
        self.process.sleep(self.answer_s)
        if self.error is not None:
            raise self.error

    def run(self, left_s: float = 100.0, at_once: bool = False) -> tuple[bool, float]:
        """What it returned, and after how many seconds."""
        self.process = self.world.process()
        ctx = SimpleNamespace(
            runtime=self.process,
            signal=SimpleNamespace(at_once=at_once),
            listener=SimpleNamespace(event=self.events.append),
            successor=lambda state: None,
        )
        lease = SimpleNamespace(state=None, seconds=1.0, ttl_s=180.0, append=self.append)
        budget = SimpleNamespace(deadline=self.process.monotonic() + left_s)
        parts: Any = SimpleNamespace(ctx=ctx, lease=lease, budget=budget)
        began, over = self.world.now, 0.0

        def body() -> bool:
            nonlocal over
            given = release(parts, "budget")
            over = self.world.now - began
            self.process.sleep(0.5)
            return given

        self.process.start(body)
        self.world.run()
        return self.process.outcome, over


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.world.close()


def test_a_lease_that_was_given_back_is_known_to_be(bench: Bench) -> None:
    given, after = bench.run()
    assert given and after == pytest.approx(0.2, abs=0.01) and not bench.events


@pytest.mark.parametrize(
    ("left_s", "at_once", "waits"), [(100, False, RELEASE_S), (5, False, 4.5), (-10, False, 1), (100, True, 0)]
)
def test_nobody_waits_for_it_longer_than_there_is_time(
    bench: Bench, left_s: float, at_once: bool, waits: float
) -> None:
    bench.answer_s = 1000.0
    given, after = bench.run(left_s, at_once)
    assert not given and after == pytest.approx(waits, abs=0.01)
    assert bench.given_up(), "no other attempt begins behind the session's back"


def test_who_cannot_give_it_back_says_that_it_runs_out(bench: Bench) -> None:
    bench.error = error = StorageUnreachable("down")
    assert not bench.run()[0]
    assert bench.events == [Trouble("release", error, expires_s=180.0)]


def test_who_lost_it_has_nothing_to_release(bench: Bench) -> None:
    bench.error = Fenced("bob has it")
    assert not bench.run()[0] and not bench.events
