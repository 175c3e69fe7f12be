"""Runs work in daemon threads and returns results in order.

An executor's threads are not daemons: a process that must exit would wait for a store that hangs.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Results in order, while the next `workers` are running, each in its own thread.

    After an error, or if the caller stops early, running work ends by itself: it only reads.
    """
    if workers <= 1:
        yield from map(work, items)
        return

    todo = iter(items)
    under_way = deque(begin(work, item) for item in islice(todo, workers))
    while under_way:
        result = under_way.popleft().result()
        under_way.extend(begin(work, item) for item in islice(todo, 1))
        yield result


def begin(work: Callable[[T], R], item: T) -> Future[R]:
    """The future result or error of the work."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work(item))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=lambda: context.run(run), name="transfer", daemon=True).start()
    return future


def in_parallel(work: Callable[[T], R], items: Iterable[T], workers: int) -> list[R]:
    """Results in order. The first error cancels work that has not begun, and is raised when none is running."""
    todo = list(items)
    if workers <= 1:
        return [work(item) for item in todo]
    queue, lock = iter(enumerate(todo)), threading.Lock()
    results: dict[int, R] = {}
    failed = threading.Event()

    def take_turns(_worker: int) -> None:
        while not failed.is_set():
            with lock:
                place, item = next(queue, (None, None))
            if place is None:
                return
            try:
                results[place] = work(item)  # type: ignore[arg-type]
            except BaseException:
                failed.set()
                raise

    turns = [begin(take_turns, worker) for worker in range(min(workers, len(todo)))]
    wait(turns)
    for turn in turns:
        turn.result()
    return [results[place] for place in range(len(todo))]
