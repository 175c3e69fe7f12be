"""The committing thread: its retries, the errors that end it, and the state that it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from relay.core.checkpoint.committer import Committer, Item
from relay.core.errors import BadData
from storage.base import Unavailable
from tests.core.fake_runtime import World


@dataclass
class Bench:
    """A committer on a virtual clock, and a pipeline that takes a second and then raises a given error."""

    world: World = field(default_factory=World)
    error: Exception | None = None
    may_start: bool = True
    tried: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.process = self.world.process()
        self.it = Committer(self.process, self, lambda: self.may_start, lambda text: None)

    def commit(self, item: Item) -> None:
        self.tried.append(self.world.now)
        self.process.sleep(1.0)
        if self.error is not None:
            raise self.error

    def committed(self, item: Item) -> None: ...

    def forget(self, item: Item) -> None: ...

    def live(self, body: Callable[[], None]) -> None:
        def main() -> None:
            self.it.start()
            self.it.offer(Item(5, None))
            body()

        self.process.start(main)
        self.world.run()

    def drain(self) -> bool:
        until = self.process.monotonic() + 100.0
        return self.it.drain(lambda: until, lambda: False)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.world.close()


def test_trouble_is_met_again_after_longer_and_longer_waits_of_a_minute_at_most(bench: Bench) -> None:
    bench.error = Unavailable("down")
    bench.live(lambda: bench.process.sleep(300.0))
    waits = [after - before - 1.0 for before, after in zip(bench.tried, bench.tried[1:], strict=False)]
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60], abs=0.01)


def test_what_is_committed_is_no_longer_under_way_and_an_end_by_itself_is_no_failure(bench: Bench) -> None:
    def body() -> None:
        bench.process.sleep(0.5)
        assert bench.it.running_s() == pytest.approx(0.5, abs=0.01)
        bench.may_start = False
        bench.process.sleep(5.0)
        assert bench.it.running_s() is None and bench.it.committed_step == 5
        assert bench.drain()
        assert bench.it.close() == []
        bench.process.sleep(10.0)
        assert bench.it.failure is None, "it was abandoned"

    bench.live(body)


def test_what_no_other_attempt_helps_ends_the_wait_at_once(bench: Bench) -> None:
    bench.error = BadData("refused")

    def body() -> None:
        began = bench.world.now
        assert not bench.drain() and bench.it.failure is bench.error
        assert bench.world.now - began < 2.0 and len(bench.tried) == 1

    bench.live(body)
