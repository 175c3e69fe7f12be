"""Work that pauses wherever its caller has something to do: a generator, so that one code serves both loops."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[Any, None, T]
"""Pauses at each `yield`, where the caller makes a training step or raises its error; returns the result."""


class BrokenOff(BaseException):
    """The caller left its loop before the session's end. What is committed stays; nothing is added."""


def through(steps: Steps[T]) -> T:
    """The result of work that never pauses."""
    try:
        next(steps)
    except StopIteration as stop:
        found: T = stop.value
        return found
    raise AssertionError("the caller has no step to make")
