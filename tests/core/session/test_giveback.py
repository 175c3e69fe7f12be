"""The lease is given back within the time that is left; a session that could not do so reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from relay.core.errors import Fenced, StorageUnreachable
from relay.core.events import SessionEvent, Trouble
from relay.core.session.ends import PROPOSAL_S, RELEASE_S, release
from tests.core.fake_runtime import World


@dataclass
class Bench:
    """A session at its end: a lease whose append takes `answer_s`, then raises `error` if there is one."""

    world: World = field(default_factory=World)
    answer_s: float = 0.2
    error: Exception | None = None
    events: list[SessionEvent] = field(default_factory=list)
    given_up: Callable[[], bool] = lambda: False
    successor: Callable[[Any], str | None] = lambda state: "bob"
    proposed: str | None = None

    def append(self, kind: str, build: Callable[[Any], Any], give_up: Callable[[], bool]) -> None:
        assert (kind, build(None).reason) == ("release", "budget")
        self.proposed = build(None).next
        self.given_up = give_up
        self.process.sleep(self.answer_s)
        if self.error is not None:
            raise self.error

    def run(self, left_s: float = 100.0, at_once: bool = False) -> tuple[bool, float]:
        """Its return value, and the seconds it took."""
        self.process = self.world.process()
        ctx = SimpleNamespace(
            runtime=self.process,
            signal=SimpleNamespace(at_once=at_once),
            listener=SimpleNamespace(event=self.events.append),
            successor=self.successor,
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
    assert bench.proposed == "bob"


@pytest.mark.parametrize("error", [StorageUnreachable("the registry"), KeyError("a time zone"), OSError("a disk")])
def test_no_error_of_the_proposal_keeps_the_lease(bench: Bench, error: Exception) -> None:
    def successor(state: Any) -> str:
        raise error

    bench.successor = successor
    given, after = bench.run()
    assert given and after == pytest.approx(0.2, abs=0.01) and bench.proposed is None
    assert bench.events == [Trouble("proposal", error)]


@pytest.mark.parametrize("left_s", [100.0, 5.0, -10.0])
def test_a_proposal_that_hangs_leaves_the_release_its_time(bench: Bench, left_s: float) -> None:
    def successor(state: Any) -> str:
        bench.process.sleep(1000)
        return "bob"

    bench.successor = successor
    given, after = bench.run(left_s)
    assert given and bench.proposed is None and after <= PROPOSAL_S + 0.3


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
