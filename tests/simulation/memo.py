"""Decodes each stored entry once a world: sessions, people and the judge read the same slots many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock

from relay.core.ledger import reader
from relay.core.ledger.entry import Entry
from relay.core.ledger.reader import Point, Reader


@contextmanager
def once() -> Iterator[None]:
    """Each entry is decoded once, and its state computed once from the same state: both follow from their arguments.

    What is refused is refused anew each time.
    """
    computed: dict[tuple[int, int], tuple[Any, Entry, Any]] = {}
    """By the identities of state and entry, which are kept: so no other object gets the same ones."""
    compute = Reader._computed

    def remembering(self: Reader[Any], point: Point[Any], entry: Entry) -> Any:
        key = id(point.state), id(entry)
        if key not in computed:
            computed[key] = point.state, entry, compute(self, point, entry)
        return computed[key][2]

    with (
        mock.patch.object(reader, "decode", lru_cache(maxsize=None)(reader.decode)),
        mock.patch.object(Reader, "_computed", remembering),
    ):
        yield
