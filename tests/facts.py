"""Holds an error to its type and the facts in its text, never the wording.

A fact is a detail that a person would copy or look up: a name, a number, a path, an address, a command, a setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

E = TypeVar("E", bound=BaseException)


@contextmanager
def raising(kind: type[E], *facts: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """The block raises exactly this type (no subclass of it), and each fact is in its text."""
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind, caught.value
    missing = [fact for fact in facts if str(fact) not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
