"""Lets a store tell, from within one put, how many bytes of the file have gone; knows no store and stops nothing.

`put` has no parameter for it, because only few callers look and wrappers would all have to hand it on. The listener
belongs to the calling context; threads of storage.transfer run in a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("sent", default=None)


@contextmanager
def listening(listener: Callable[[int], None]) -> Iterator[None]:
    """While it is open, `listener` is called with each number of bytes that has arrived; from any thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def sent(count: int) -> None:
    """So many bytes more of the file being put have arrived."""
    listener = _listener.get()
    if listener is not None:
        listener(count)
