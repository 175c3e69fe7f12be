"""What doctor tells of a store far away: where credentials come from and how fast it is; nothing is left there."""

from __future__ import annotations

from pathlib import Path

from relay.clock import RealRuntime
from relay.reach import TRIAL, reach
from storage.base import Ref
from storage.memory import MemoryStore
from storage.wrapper import CountingStore


class Stopwatch(RealRuntime):
    """A clock that only its owner moves."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Far(MemoryStore):
    """Takes `seconds` for each transfer."""

    def __init__(self, runtime: Stopwatch, seconds: float, source: str | None) -> None:
        super().__init__()
        self.runtime, self.seconds, self.source = runtime, seconds, source

    def credentials_source(self) -> str | None:
        return self.source

    def put(self, name: str, data: bytes | Path) -> Ref:
        self.runtime.seconds += self.seconds
        return super().put(name, data)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        self.runtime.seconds += self.seconds / 2
        return super().get(ref, limit=limit)


def test_source_and_speed_are_told_and_the_trial_is_removed() -> None:
    runtime = Stopwatch()
    store = Far(runtime, 2.0, "env")
    credentials, speed = reach(CountingStore(store), runtime)
    assert credentials.ok and credentials.text == "from environment variables"
    assert speed.ok and speed.text == f"{TRIAL / 2e6:.1f} MB/s up, {TRIAL / 1e6:.1f} MB/s down"
    assert list(store.list("")) == []


def test_a_slow_store_and_missing_credentials_are_remarks() -> None:
    runtime = Stopwatch()
    credentials, speed = reach(Far(runtime, 60.0, None), runtime)
    assert not credentials.ok and not speed.ok and "checkpoint.every_steps" in speed.advice
    assert not credentials.code and not speed.code


def test_a_store_on_this_machine_is_not_asked() -> None:
    store = CountingStore(MemoryStore())
    assert list(reach(store, Stopwatch())) == []
    assert sum(store.counts.values()) == 0
