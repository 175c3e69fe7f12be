"""Checks the answer to a ranged read: a wrong or shortened answer is Unavailable, never data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from storage.contract import Unavailable

WHOLE, PART, BEHIND_THE_END = 200, 206, 416
"""HTTP statuses of the answers to a ranged read."""
_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_BEHIND = re.compile(r"bytes \*/(\d+)")


def not_whole(what: str, status: int) -> Unavailable:
    """The error for a status that is neither the whole object nor a refusal."""
    return Unavailable(f"{what}: asked for all of it, the answer was status {status}. Try again.")


@dataclass(frozen=True)
class Asked:
    """One ranged read of at least one byte.

    An answer may have fewer bytes than requested only at the end of the object. If the answer does not show the end,
    `size` asks the store for the size of the object.
    """

    what: str
    """Begins the text of an error."""
    start: int
    length: int
    size: Callable[[], int]

    def checked(self, status: int, content_range: str, data: bytes) -> bytes:
        """The requested bytes. Raises Unavailable, and the errors of `size`."""
        if status == PART or (status == WHOLE and content_range):  # some small servers send parts with 200
            return self._part(content_range, data)
        if status == WHOLE:
            return self._whole(data)
        if status == BEHIND_THE_END:
            return self._nothing(content_range)
        raise self._wrong(f"status {status}")

    def _part(self, content_range: str, data: bytes) -> bytes:
        found = _PART.fullmatch(content_range)
        if found is None:
            raise self._wrong(f"a part without its position, Content-Range {content_range[:100]!r}")
        first, end = int(found[1]), int(found[2]) + 1
        if (first, end - first) != (self.start, len(data)) or len(data) > self.length:
            raise self._wrong(f"{len(data)} bytes as {content_range!r}")
        if len(data) < self.length and end != (self.size() if found[3] == "*" else int(found[3])):
            raise self._wrong(f"only {len(data)} bytes as {content_range!r}")
        return data

    def _whole(self, data: bytes) -> bytes:
        """The server ignored the range, as some do for an empty object."""
        if len(data) != self.size():
            raise self._wrong(f"{len(data)} bytes as the whole object")
        return data[self.start : self.start + self.length]

    def _nothing(self, content_range: str) -> bytes:
        found = _BEHIND.fullmatch(content_range)
        if (int(found[1]) if found else self.size()) > self.start:
            raise self._wrong("no bytes, as if the object ended before")
        return b""

    def _wrong(self, answer: str) -> Unavailable:
        wanted = f"{self.length} bytes from {self.start}"
        return Unavailable(f"{self.what}: asked for {wanted}, the answer was {answer}. Try again.")
