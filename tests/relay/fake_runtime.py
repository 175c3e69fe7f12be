"""A world of machines on one virtual clock: threads take turns, one at a time, in an order fixed by a seed.

Real threads under a baton. A thread runs until it sleeps, waits, joins or locks; then the driver (`World.run`) picks
the next one that can go on, and only when none can, moves the clock. Foreign threads (a pool inside a library) are
left alone: their sleeps return at once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

TICK = 1e-5
"""Every wait takes at least this long: a loop of waits shorter than a double can tell apart would stand still."""


class Killed(BaseException):
    """SIGKILL: raised inside every thread of a dead machine's process, and by everything it then touches."""


class _Fiber:
    """One thread of one process."""

    def __init__(self, world: World, process: Process, name: str, body: Callable[[], None]) -> None:
        self.world, self.process, self.name = world, process, name
        self.go, self.ready_when, self.wake_at = threading.Semaphore(0), lambda: True, 0.0
        self.done, self.error = False, None
        self.thread = threading.Thread(target=self._main, args=(body,), name=name, daemon=True)
        self.thread.start()

    def _main(self, body: Callable[[], None]) -> None:
        self.go.acquire()
        try:
            if not self.process.dead:
                body()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - re-raised by World.run in the test's own thread
            self.error = error
        self.done = True
        self.world.baton.release()

    def block(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Give the turn away until `ready()` or the timeout; returns ready()."""
        self.process.check()
        self.ready_when = ready
        self.wake_at = float("inf") if timeout is None else self.world.now + max(TICK, timeout)
        self.world.baton.release()
        self.go.acquire()
        self.process.check()
        return ready()

    def can_run(self) -> bool:
        if self.process.dead:
            return True
        if self.process.suspended_until > self.world.now:
            return False
        return self.wake_at <= self.world.now or self.ready_when()

    def next_time(self) -> float:
        return max(self.wake_at, self.process.suspended_until)


class World:
    """The virtual clock and the driver."""

    def __init__(self, seed: int = 0, start: float = 1_700_000_000.0) -> None:
        self.now, self.random = start, random.Random(seed)
        self.baton = threading.Semaphore(0)
        self.fibers: list[_Fiber] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def process(self, *, skew: float = 0.0, boot: str = "boot-1") -> Process:
        """A new process on a machine whose wall clock is `skew` seconds wrong."""
        return Process(self, skew, boot)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Run `do` (kill, suspend, break a store, ...) once the clock reaches `when`."""
        self.timers.append((when, do))
        self.timers.sort(key=lambda timer: timer[0])

    def run(self, limit_s: float = 10_000_000.0) -> None:
        """Drive until every thread of a main body has ended. Raises the first error of a thread, or on a deadlock."""
        end = self.now + limit_s
        while True:
            ended = [fiber for fiber in self.fibers if fiber.done]
            self.fibers = [fiber for fiber in self.fibers if not fiber.done]
            for fiber in ended:
                if fiber.error:
                    fiber.process.dead = True
                    raise fiber.error
            if not any(fiber.process.main is fiber for fiber in self.fibers):
                return
            ready = [fiber for fiber in self.fibers if fiber.can_run()]
            if ready:
                self._turn(self.random.choice(ready))
            else:
                self._advance(end)

    def _turn(self, fiber: _Fiber) -> None:
        fiber.go.release()
        self.baton.acquire()
        if fiber.done and fiber.process.main is fiber:
            fiber.process.dead = True

    def _advance(self, end: float) -> None:
        times = [fiber.next_time() for fiber in self.fibers] + [when for when, _ in self.timers]
        then = min(times, default=float("inf"))
        if then == float("inf") or then > end:
            raise AssertionError(f"deadlock or timeout at {self.now}: {[fiber.name for fiber in self.fibers]}")
        self.now = max(self.now, then)
        while self.timers and self.timers[0][0] <= self.now:
            self.timers.pop(0)[1]()

    def close(self) -> None:
        """Kill what is left, so that no thread outlives the test."""
        for fiber in self.fibers:
            fiber.process.dead = True
        for fiber in list(self.fibers):
            while not fiber.done:
                self._turn(fiber)
            fiber.thread.join()


class Process:
    """One process: a Runtime for the code under test, and handles for the test to hurt it."""

    def __init__(self, world: World, skew: float, boot: str) -> None:
        self.world, self.skew, self.boot = world, skew, boot
        self.born, self.dead, self.suspended_until = world.now, False, 0.0
        self.main: _Fiber | None = None
        self.outcome: Any = None

    # -- the test's side
    def start(self, body: Callable[[], Any]) -> Process:
        """Run `body` as the process's main thread; its result lands in `outcome`. The process dies with it."""

        def main() -> None:
            self.outcome = body()

        self.main = _Fiber(self.world, self, "main", main)
        self.world.fibers.append(self.main)
        return self

    def kill(self) -> None:
        self.dead = True

    def suspend(self, seconds: float) -> None:
        self.suspended_until = self.world.now + seconds

    def check(self) -> None:
        if self.dead:
            raise Killed

    # -- the Runtime
    def monotonic(self) -> float:
        return self.world.now - self.born + 1000.0

    def wall(self) -> float:
        return self.world.now + self.skew

    def sleep(self, seconds: float) -> None:
        fiber = self._fiber()
        if fiber is not None:
            fiber.block(lambda: False, seconds)

    def token(self) -> str:
        return f"{self.world.random.getrandbits(128):032x}"

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def lock(self) -> FakeLock:
        return FakeLock(self)

    def spawn(self, name: str, body: Callable[[], None]) -> FakeTask:
        fiber = _Fiber(self.world, self, name, body)
        self.world.fibers.append(fiber)
        return FakeTask(self, fiber)

    def _fiber(self) -> _Fiber | None:
        here = threading.current_thread()
        return next((fiber for fiber in self.world.fibers if fiber.thread is here), None)

    def block(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        fiber = self._fiber()
        return fiber.block(ready, timeout) if fiber is not None else ready()


class FakeEvent:
    def __init__(self, process: Process) -> None:
        self.process, self.flag = process, False

    def set(self) -> None:
        self.flag = True

    def clear(self) -> None:
        self.flag = False

    def is_set(self) -> bool:
        return self.flag

    def wait(self, timeout: float | None = None) -> bool:
        return self.process.block(lambda: self.flag, timeout)


class FakeLock:
    def __init__(self, process: Process) -> None:
        self.process, self.held = process, False

    def __enter__(self) -> FakeLock:
        self.process.block(lambda: not self.held, None)
        self.held = True
        return self

    def __exit__(self, *exc: object) -> None:
        self.held = False


class FakeTask:
    def __init__(self, process: Process, fiber: _Fiber) -> None:
        self.process, self.fiber = process, fiber

    def join(self, timeout: float | None = None) -> None:
        self.process.block(lambda: self.fiber.done, timeout)

    def is_alive(self) -> bool:
        return not self.fiber.done
