"""Loopback doubles of the three providers' calls, a simulated clock, and a command on it."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relay.app.guard.rented import Record, Rented, records
from relay.app.guard.watching import Limits

KEY = "planted-key-0123456789"
IDS = {"prime": "abcdef0123456789", "runpod": "uv9wy55tyv30lo", "vast": "4242"}
RECORDS = {record.name: record for record in records()}
HANGS = "hangs"
Planned = int | str


@dataclass
class Provider:
    """One provider with one machine. `deletions`: the planned answers to DELETE, of which the last one stays."""

    record: Record
    deletions: list[Planned] = field(default_factory=lambda: [200])
    lingers: float = 0
    """Descriptions that still show the machine after an accepted deletion."""
    wrong: dict[str, Any] = field(default_factory=dict)
    """Fields of the description that differ."""
    reading: int = 200
    """Status of a description."""
    retry_after: str = ""
    ordered: Callable[[], None] = lambda: None
    """Called when a deletion is accepted, before the answer."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    deleted: bool = False
    hang: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    @property
    def name(self) -> str:
        return IDS[self.record.name]

    @property
    def gone(self) -> bool:
        return self.deleted and self.lingers <= 0

    @property
    def environ(self) -> dict[str, str]:
        return {
            self.record.id: self.name,
            self.record.key: KEY,
            "RELAY_GUARD_ADDRESS": self.address,
        }

    def machine(self, root: Path = Path("/nowhere")) -> Rented:
        return Rented(self.record, self.name, self.environ, root)

    def reply(self, method: str, path: str, key: str) -> tuple[int, dict[str, Any]]:
        self.calls.append((method, path))
        self.keys.add(key)
        if key != f"Bearer {KEY}":
            return 401, {}
        if path != urlsplit(self.record.address.format(id=self.name)).path:
            return 404, {}
        return self._delete() if method == "DELETE" else self._describe()

    def _delete(self) -> tuple[int, dict[str, Any]]:
        planned = self.deletions.pop(0) if len(self.deletions) > 1 else self.deletions[0]
        if planned == HANGS:
            self.hang.wait(5)
            return 200, {}
        if planned == "refuses":
            return 200, {"success": False, "msg": KEY}
        if planned == 200:
            self.ordered()
            self.deleted = True
            return 200, {"status": "TERMINATED", "success": True}
        assert isinstance(planned, int)
        return planned, {"detail": f"the key {KEY} is not welcome"}

    def _describe(self) -> tuple[int, dict[str, Any]]:
        if self.reading != 200:
            return self.reading, {}
        if self.deleted:
            if self.lingers <= 0:
                return (200, {"instances": None}) if self.record.within else (404, {})
            self.lingers -= 1
        found = {"id": int(self.name) if self.name.isdecimal() else self.name, self.record.status: "RUNNING"}
        found |= self.wrong
        return 200, {self.record.within: found} if self.record.within else found


@contextmanager
def renting(name: str, **more: Any) -> Iterator[Provider]:
    """The double at a free port of this machine."""
    provider = Provider(RECORDS[name], **more)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            try:
                status, document = provider.reply(self.command, self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                if provider.retry_after:
                    self.send_header("Retry-After", provider.retry_after)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())
            except OSError:
                pass  # the client has gone

        do_GET = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    provider.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        provider.hang.set()
        server.shutdown()
        server.server_close()


class MachineGone(BaseException):
    """The machine is deleted, and every process on it with it."""


@dataclass
class Clock:
    """A simulated clock of a machine, which ends the process when the machine is gone."""

    now: float = 1000.0
    gone: Callable[[], bool] = lambda: False

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        if self.gone():
            raise MachineGone
        assert seconds > 0
        self.now += seconds

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the guard needs no {name}")


@dataclass
class Session:
    """A command on the clock. Times are seconds from its start; None: never."""

    clock: Clock
    commits_at: float | None = None
    ends_at: float | None = None
    code: int | None = 75
    heeds: tuple[signal.Signals, ...] = (signal.SIGUSR1, signal.SIGTERM)
    upload_s: float = 20.0
    """From the signal to the end."""
    got: list[tuple[float, signal.Signals]] = field(default_factory=list)
    began: float = field(init=False)
    acknowledged: bool = False
    """Whether the last commit has landed."""

    def __post_init__(self) -> None:
        self.began = self.clock.now

    def alive(self) -> bool:
        over = self.ends_at is not None and self.clock.now - self.began >= self.ends_at
        self.acknowledged |= over and self.code == 75
        return not over

    def first_commit(self) -> float | None:
        at = self.commits_at
        return None if at is None or self.clock.now - self.began < at else self.began + at

    def finish(self) -> None:
        self.send(signal.SIGUSR1)

    def send(self, number: signal.Signals) -> None:
        past = self.clock.now - self.began
        self.got.append((past, number))
        if number == signal.SIGKILL:
            self.ends_at, self.code = past, 137
        elif number in self.heeds and self.ends_at is None:
            self.ends_at = past + self.upload_s


def limits(train: float = 45, total: float = 60, price: float = 2.0) -> Limits:
    """In minutes, and dollars an hour."""
    return Limits(train * 60, total * 60, price)


def until(true: Callable[[], object], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
