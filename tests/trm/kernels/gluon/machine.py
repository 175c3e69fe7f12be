"""Threads of one program of a kernel, of which one runs at a time: who goes on next is drawn from a seed.

A thread is a partition of warps. It may be put off wherever it waits, arrives, copies or multiplies. Some threads, and
bulk loads, are drawn only where hardly anyone else may go on: so the others run ahead as far as the barriers let them.
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

KERNELS = "specialized"
"""Folder of the source that a fault names."""
PACES = (1.0, 1.0, 0.03, 1e-6)
"""How often one is drawn beside others."""
WORKERS = 8
"""Threads of a program, at most: itself and its partitions."""


class Stuck(AssertionError):
    """Nobody can go on."""


class Race(AssertionError):
    """Something happens that only the right order of two threads, or of a thread and a copy, would forbid."""


class Stopped(Exception):
    """Another thread of the program has failed."""


def always() -> bool:
    return True


class Task:
    """A thread, and what it has begun and not yet waited for."""

    def __init__(self, name: str, code: Callable[[], None], pace: float) -> None:
        self.name, self.code, self.pace = name, code, pace
        self.may_go: Callable[[], bool] = always
        self.turn, self.over, self.ident = threading.Semaphore(0), False, 0
        self.future: Future[None] = Future()
        self.products: list[Any] = []
        self.stores: list[Any] = []
        """In bulk, which still read shared memory."""
        self.writes: list[Callable[[], None]] = []
        """In bulk, which have read and are on their way to memory."""
        self.unfenced: list[Any] = []

    def where(self) -> str:
        """The line of the kernel that it is at."""
        found = traceback.extract_stack(sys._current_frames()[self.ident])
        line = [line for line in found if Path(line.filename).parent.name == KERNELS or line is found[0]][-1]
        return f"{Path(line.filename).name}:{line.lineno} {line.line}"


class Machine:
    """Runs one program."""

    seed: ClassVar[int] = 0
    chance: ClassVar[random.Random] = random.Random(seed)
    present: ClassVar[Machine]

    def __init__(self, program: tuple[int, ...], grid: tuple[int, ...]) -> None:
        self.program, self.grid = program, grid
        self.tasks: list[Task] = []
        self.landing: list[tuple[Callable[[], None], float]] = []
        """Bulk loads on their way, and their paces."""
        self.stopped = False
        self.current: Task

    def run(self, code: Callable[[], None]) -> None:
        """To the end of all threads; the fault of any of them is raised here."""
        Machine.present = self
        with ThreadPoolExecutor(WORKERS) as pool:
            self.pool = pool
            self.current = self.start("the program", code)
            self.current.turn.release()
            wait([self.current.future])
        faults = [fault for task in self.tasks if (fault := task.future.exception())]
        for fault in faults:
            if not isinstance(fault, Stopped):
                fault.add_note(f"in program {self.program} of {self.grid}, seed {self.seed}")
                raise fault
        if self.landing:
            raise Race("ends while a bulk load is under way")

    def start(self, name: str, code: Callable[[], None]) -> Task:
        assert len(self.tasks) < WORKERS, "more partitions than threads"
        task = Task(name, code, self.chance.choice(PACES))
        self.tasks.append(task)
        task.future = self.pool.submit(self._live, task)
        return task

    def send(self, load: Callable[[], None]) -> None:
        """It lands when it is drawn."""
        self.landing.append((load, self.chance.choice(PACES)))

    def _live(self, task: Task) -> None:
        task.ident = threading.get_ident()
        task.turn.acquire()
        done = self.stopped
        try:
            if not self.stopped:
                task.code()
                task.over = True
                self._hand_on()
            done = True
        finally:
            if not done:
                self._stop()

    def _stop(self) -> None:
        """Let all threads end where they are."""
        self.stopped = True
        for task in self.tasks:
            task.turn.release()

    def pause(self, may_go: Callable[[], bool] = always) -> None:
        """Let others run, and go on when it may."""
        task = self.current
        task.may_go = may_go
        if self._hand_on() is not task:
            task.turn.acquire()
        if self.stopped:
            raise Stopped

    def _hand_on(self) -> Task | None:
        """Who is drawn to go on, on its way if it is not the present thread; bulk loads in between are done here."""
        before = self.current
        while any(not task.over for task in self.tasks):
            task = self._draw()
            if task is not None:
                self.current = task
                if task is not before:
                    task.turn.release()
                return task
        return None

    def _draw(self) -> Task | None:
        """A thread; or none, and a bulk load has landed."""
        ready: list[Task | int] = [task for task in self.tasks if not task.over and task.may_go()]
        paces = [task.pace for task in ready if isinstance(task, Task)] + [pace for _, pace in self.landing]
        ready.extend(range(len(self.landing)))
        if not ready:
            raise Stuck(self._complaint())
        (drawn,) = self.chance.choices(ready, paces)
        if isinstance(drawn, Task):
            return drawn
        self.landing.pop(drawn)[0]()
        return None

    def _complaint(self) -> str:
        return "; ".join(f"{task.name} waits {task.may_go} at {task.where()}" for task in self.tasks if not task.over)
