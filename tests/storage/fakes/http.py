"""The serving part that the fake services share: bodies in and answers out, slow or cut; knows no service."""

from __future__ import annotations

import email.utils
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

SLICE = 64 << 10


@dataclass
class Answer:
    """What goes back. `drop` breaks the connection instead; `cut` does so half way."""

    status: int
    body: bytes | memoryview = b""
    headers: dict[str, str] = field(default_factory=dict)
    type: str = "application/json"
    drop: bool = False
    cut: bool = False


class Gone(ConnectionError):
    """The client went away in the middle of a body; carries what arrived."""

    def __init__(self, body: bytes) -> None:
        super().__init__("the client went away")
        self.body = body


class Clock(Protocol):
    """The part of a fake's world that its answers' headers need."""

    def now(self) -> float:
        """Unix seconds, by the service."""
        ...


class Server(ThreadingHTTPServer):
    """All of a fake, in memory: its `world` and what answers one connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, handler: type[Handler], world: Clock) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.world: Any = world

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection. `rate` is bytes a second of a slow link, 0 for as fast as it goes."""

    protocol_version = "HTTP/1.1"
    server: Server
    disable_nagle_algorithm = True
    always: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Headers of every answer."""

    def _body(self, rate: float) -> bytes:
        pieces: list[bytes] = []
        for size in self._sizes():
            left = size
            while left:
                piece = self.rfile.read(min(left, SLICE))
                if not piece:
                    raise Gone(b"".join(pieces))
                pieces.append(piece)
                left -= len(piece)
                time.sleep(len(piece) / rate if rate else 0)
        return b"".join(pieces)

    def _sizes(self) -> Iterator[int]:
        """How much of the body comes in one go: all, or chunk by chunk."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield int(self.headers.get("Content-Length") or 0)
            return
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield size
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _send(self, answer: Answer, rate: float) -> None:
        if answer.drop:
            self._break_off()
            return
        self.send_response(answer.status)
        headers = {**self.always, "Content-Type": answer.type, **answer.headers}
        if answer.status not in (204, 304):
            headers["Content-Length"] = str(len(answer.body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = answer.body[: len(answer.body) // 2] if answer.cut else answer.body
        for at in range(0, len(body), SLICE if rate else max(1, len(body))):
            piece = body[at : at + SLICE] if rate else body
            time.sleep(len(piece) / rate if rate else 0)  # first: a client does not wait for what comes after the end
            self.wfile.write(piece)
        if answer.cut:
            self._break_off()

    def _break_off(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header tells the service's clock."""
        return email.utils.formatdate(self.server.world.now() if timestamp is None else timestamp, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests ask with control/look."""
