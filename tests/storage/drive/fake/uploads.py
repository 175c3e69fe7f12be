"""Resumable uploads of the fake Drive: what arrived of which session; knows neither files nor HTTP."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.storage.drive.fake.answers import Answer, PlainText

UNIT = 256 << 10
WEEK = 7 * 86400.0


@dataclass
class Session:
    """An upload under way. Its lock makes requests to one session wait for each other."""

    id: str
    call: Any
    """The request that began it."""
    total: int | None
    used: float
    """When it was last spoken to."""
    data: bytearray = field(default_factory=bytearray)
    answer: Answer | None = None
    """What its end was told; a session that was refused at its end stays refused."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def progress(self) -> Answer:
        """308, with the range that is held; no range if nothing is."""
        held = {"Range": f"bytes=0-{len(self.data) - 1}"} if self.data else {}
        return Answer(308, headers=held, type="text/plain; charset=utf-8")

    def take(self, header: str, body: bytes, keep: int | None = None) -> bool:
        """Add what a PUT brought, `keep` bytes of it at most; whether all is here now. Raises PlainText."""
        if not header:
            self.data[:] = body
            return self._ended(len(body)) if keep is None else self._kept(0, keep)
        match = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", header)
        if not match:
            raise PlainText(400, "Failed to parse Content-Range header.")
        if match[3] != "*":
            self._fix_total(int(match[3]))
        if match[1] is None:
            return False
        first, end = int(match[1]), int(match[2]) + 1
        self._check(first, end, body)
        before = len(self.data)
        self.data += body[before - first :]
        if keep is not None:
            return self._kept(before, keep)
        if end == self.total:
            return True
        del self.data[len(self.data) // UNIT * UNIT :]
        return False

    def _check(self, first: int, end: int, body: bytes) -> None:
        if end - first != len(body) or (self.total is not None and end > self.total):
            raise PlainText(400, "Invalid request. Content-Range does not fit the body.")
        if first > len(self.data):
            raise PlainText(
                503,
                f"Invalid request.  According to the Content-Range header, the upload offset is {first} byte(s), "
                f"which exceeds already uploaded size of {len(self.data)} byte(s).",
            )
        if end != self.total and len(body) < UNIT:
            raise PlainText(
                400,
                f"Invalid request.  The number of bytes uploaded is required to be equal or greater than {UNIT}, "
                f"except for the final request (it's recommended to be the exact multiple of {UNIT}).  The received "
                f"request contained {len(body)} bytes, which does not meet this requirement.",
            )

    def _fix_total(self, total: int) -> None:
        if self.total not in (None, total):
            raise PlainText(400, f"Invalid request.  The total size was {self.total} and is now {total}.")
        self.total = total

    def _ended(self, size: int) -> bool:
        self._fix_total(size)
        return True

    def _kept(self, before: int, keep: int) -> bool:
        del self.data[before + keep // UNIT * UNIT :]
        return False


class Uploads:
    """All sessions."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._number = count(1)

    def start(self, call: Any, total: int | None, now: float) -> Session:
        """A new session."""
        session = Session(f"AOUploadId{next(self._number):032x}", call, total, now)
        self.sessions[session.id] = session
        return session

    def find(self, session_id: str, now: float) -> Session | None:
        """A session that has not expired, by a week without a word."""
        session = self.sessions.get(session_id)
        if session is None or now - session.used >= WEEK:
            return None
        session.used = now
        return session
