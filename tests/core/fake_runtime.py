"""A world of machines on one virtual clock: threads take turns, one at a time, in an order fixed by a seed.

Real threads under a baton. A thread runs until it sleeps, waits, joins or locks; then the next one that can go on is
picked, and only when none can, the clock moves. Foreign threads (a pool inside a library) are left alone: their sleeps
return at once.
"""

from __future__ import annotations

import heapq
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
        self.ready_when: Callable[[], bool] = _at_once
        self.wake_at = 0.0
        self.done, self.error = False, None
        self.ident = 0
        self._go = threading.Lock()
        self._go.acquire()
        self.thread = threading.Thread(target=self._main, args=(body,), name=name, daemon=True)
        self.thread.start()

    def _main(self, body: Callable[[], None]) -> None:
        self.ident = threading.get_ident()
        self._go.acquire()
        try:
            if not self.process.dead:
                body()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - re-raised by World.run in the test's own thread
            self.error = error
        self.done = True
        self.world.ended(self)

    def block(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Give the turn away until `ready()` or the timeout; returns ready()."""
        self.process.check()
        self.ready_when = ready
        self.wake_at = float("inf") if timeout is None else self.world.now + max(TICK, timeout)
        if not self.world.next_is(self):
            self._go.acquire()
        self.process.check()
        return ready()

    def waits_until(self, now: float) -> float:
        """The time at which it goes on by itself; not after `now` if it can go on."""
        process = self.process
        if process.dead:
            return now
        if process.suspended_until > now:
            return max(self.wake_at, process.suspended_until)
        return now if self.ready_when() else self.wake_at

    def resume(self) -> None:
        self._go.release()


class World:
    """The virtual clock and the order of turns.

    A thread that gives its turn away picks the next one: a thread that is alone just goes on, without any real switch.
    """

    def __init__(self, seed: int = 0, start: float = 1_700_000_000.0) -> None:
        self.now, self.random = start, random.Random(seed)
        self.fibers: list[_Fiber] = []
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.current: _Fiber | None = None
        """Whose turn it is; None while the test itself, or a timer, runs."""
        self.mains = 0
        """Processes whose main thread runs."""
        self._driver = threading.Lock()
        self._driver.acquire()
        self._planned, self._end, self._to_the_end = 0, 0.0, False
        self._failure: BaseException | None = None

    def process(self, *, skew: float = 0.0, boot: str = "boot-1") -> Process:
        """A new process on a machine whose wall clock is `skew` seconds wrong."""
        return Process(self, skew, boot)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Run `do` (kill, suspend, break a store, ...) once the clock reaches `when`."""
        self._planned += 1
        heapq.heappush(self.timers, (when, self._planned, do))

    def run(self, limit_s: float = 10_000_000.0, *, to_the_end: bool = False) -> None:
        """Drive until every thread of a main body has ended, and with `to_the_end` every timer has run too.

        Raises the first error of a thread or a timer, or AssertionError on a deadlock.
        """
        self._end, self._to_the_end = self.now + limit_s, to_the_end
        fiber = self._next()
        if fiber is not None:
            self._give(fiber)
            self._driver.acquire()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def next_is(self, fiber: _Fiber) -> bool:
        """`fiber` gives its turn away: hand it on, unless the next turn is its own again."""
        self.current = None
        then = self._next()
        if then is fiber:
            self.current = fiber
            return True
        self._give(then)
        return False

    def ended(self, fiber: _Fiber) -> None:
        """A thread is over, and its whole process if it was the main one."""
        self.current = None
        self.fibers.remove(fiber)
        if fiber.process.main is fiber:
            self.mains -= 1
        if fiber.error or fiber.process.main is fiber:
            fiber.process.dead = True
        self._failure = self._failure or fiber.error
        self._give(self._next())

    def _give(self, fiber: _Fiber | None) -> None:
        self.current = fiber
        if fiber is None:
            self._driver.release()
        else:
            fiber.resume()

    def _next(self) -> _Fiber | None:
        """The next turn's thread, after moving the clock if none can go on now; None if it is the driver's turn."""
        try:
            while self._failure is None and (self.mains or (self._to_the_end and self.timers)):
                ready, then = [], float("inf")
                for fiber in self.fibers:
                    wakes = fiber.waits_until(self.now)
                    if wakes <= self.now:
                        ready.append(fiber)
                    elif wakes < then:
                        then = wakes
                if ready:
                    return ready[0] if len(ready) == 1 else ready[int(self.random.random() * len(ready))]
                self._advance(then)
        except BaseException as error:  # noqa: BLE001 - re-raised by World.run in the test's own thread
            self._failure = error
        return None

    def _advance(self, then: float) -> None:
        if self.timers:
            then = min(then, self.timers[0][0])
        if then == float("inf") or then > self._end:
            raise AssertionError(f"deadlock or timeout at {self.now}: {[fiber.name for fiber in self.fibers]}")
        self.now = max(self.now, then)
        while self.timers and self.timers[0][0] <= self.now:
            heapq.heappop(self.timers)[2]()

    def close(self) -> None:
        """Kill the remaining threads, so that none outlives the test."""
        self.timers.clear()
        for fiber in self.fibers:
            fiber.process.dead = True
        for fiber in list(self.fibers):
            while not fiber.done:
                self._failure = Killed()  # an ending thread gives the turn back to here
                self._give(fiber)
                self._driver.acquire()
            fiber.thread.join()
        self._failure = None


def _at_once() -> bool:
    return True


def _never() -> bool:
    return False


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
        self.world.mains += 1
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
            fiber.block(_never, seconds)

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
        fiber = self.world.current
        return fiber if fiber is not None and fiber.ident == threading.get_ident() else None

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
