"""An HTTP proxy that loses, delays, changes and invents the answers of a server, by a script; it knows no store."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal[
    "before", "after", "error after", "stall after", "cut", "conflict", "slow down", "racy", "unconditional"
]
"""before: dropped unsent. after: sent, the answer dropped. error after: sent, answered 500. stall after: sent, no
answer for STALL_S. cut: half of the answer's body. conflict: 409 and nothing sent. slow down: 503 and nothing sent.
racy: checked whether the name is free, then sent without its condition. unconditional: sent without its condition."""

STALL_S, RETRY_AFTER_S, RACE_S = 4.0, 7, 0.5


@dataclass(frozen=True)
class Request:
    """What a rule sees of a request."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    peer: int = 0
    """The client's port: one for each connection."""

    @property
    def conditional(self) -> bool:
        return self.headers.get("if-none-match") == "*"


@dataclass
class Reply:
    """An answer on its way back; header names are in lower case. `length` is told in place of the right one."""

    status: int
    headers: dict[str, str]
    content: bytes
    length: int | None = None


Change = Callable[[Request, Reply], None]
"""Alters a reply."""


@dataclass
class Rule:
    """What happens to which requests: to every `every`-th of them but the first `skip`, `times` times at most."""

    fault: Fault | Change
    when: Callable[[Request], bool]
    times: int | None
    every: int
    skip: int = 0
    met: int = 0

    def strikes(self, request: Request) -> bool:
        if not self.when(request):
            return False
        self.met += 1
        if self.met <= self.skip or self.met % self.every or self.times == 0:
            return False
        self.times = None if self.times is None else self.times - 1
        return True


class Proxy:
    """`fail` and `alter` add rules; the first that strikes a request decides what happens to it."""

    def __init__(self, endpoint_url: str) -> None:
        self.upstream = urlsplit(endpoint_url)
        self.seen: list[Request] = []
        self.failed: list[tuple[Fault | Change, Request]] = []
        self.answered: list[Request] = []
        """Requests whose answer was passed on."""
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        self._server.request_queue_size = 128
        self._server.daemon_threads = True
        self._server.server_bind()
        self._server.server_activate()
        self.port: int = self._server.server_address[1]
        self.endpoint_url = f"http://127.0.0.1:{self.port}"

    def fail(self, fault: Fault, when: Callable[[Request], bool], *, times: int | None = None, every: int = 1) -> None:
        self._rules.append(Rule(fault, when, times, every))

    def alter(
        self, change: Change, when: Callable[[Request], bool], *, skip: int = 0, times: int | None = None
    ) -> None:
        """Change answers on their way back."""
        self._rules.append(Rule(change, when, times, 1, skip))

    def heal(self) -> None:
        """No more rules."""
        with self._lock:
            self._rules.clear()

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.02)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fate(self, request: Request) -> Fault | Change | None:
        """What happens to a request."""
        with self._lock:
            self.seen.append(request)
            fault = next((rule.fault for rule in self._rules if rule.strikes(request)), None)
            if fault:
                self.failed.append((fault, request))
            return fault

    def ask(self, request: Request, method: str | None = None, condition: bool = True) -> http.client.HTTPResponse:
        """The server's answer, read in whole."""
        connection = http.client.HTTPConnection(self.upstream.hostname or "", self.upstream.port, timeout=60)
        skipped = {"expect", "connection", *([] if condition else ["if-none-match"])}
        skipped |= {"content-length"} if method else set()
        try:
            connection.putrequest(method or request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name not in skipped:
                    connection.putheader(name, value)
            connection.putheader("connection", "close")
            connection.endheaders(request.body if method is None else None)
            answer = connection.getresponse()
            answer.content = answer.read()  # type: ignore[attr-defined]
            return answer
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                request = Request(self.command, self.path, headers, body, self.client_address[1])
                with suppress(ConnectionError):  # the client is gone
                    _play(proxy, request, proxy.fate(request), self)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _play(proxy: Proxy, request: Request, fault: Fault | Change | None, handler: BaseHTTPRequestHandler) -> None:
    if fault == "before":
        return _drop(handler)
    if fault == "conflict":
        return _say(handler, 409, "ConditionalRequestConflict", {})
    if fault == "slow down":
        return _say(handler, 503, "SlowDown", {"Retry-After": str(RETRY_AFTER_S)})
    if fault == "racy":
        taken = proxy.ask(request, "HEAD", condition=False).status == 200
        time.sleep(RACE_S)
        if taken:
            return _say(handler, 412, "PreconditionFailed", {})
    answer = proxy.ask(request, condition=fault not in ("racy", "unconditional"))
    if fault == "after":
        return _drop(handler)
    if fault == "error after":
        return _say(handler, 500, "InternalError", {})
    if fault == "stall after":
        time.sleep(STALL_S)
        return _drop(handler)
    _pass_on(handler, request, answer, fault)
    proxy.answered.append(request)
    return None


def _pass_on(
    handler: BaseHTTPRequestHandler, request: Request, answer: http.client.HTTPResponse, fault: Fault | Change | None
) -> None:
    content: bytes = answer.content  # type: ignore[attr-defined]
    reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)
    if callable(fault):
        fault(request, reply)
    whole = answer.getheader("content-length") if handler.command == "HEAD" else str(len(reply.content))
    told = whole or "0" if reply.length is None else str(reply.length)
    handler.send_response_only(reply.status)
    for name, value in reply.headers.items():
        if name not in ("connection", "transfer-encoding", "content-length"):
            handler.send_header(name, value)
    handler.send_header("content-length", told)
    handler.end_headers()
    handler.wfile.write(reply.content[: len(reply.content) // 2] if fault == "cut" else reply.content)
    if fault == "cut" or reply.length is not None:
        _drop(handler)


def _say(handler: BaseHTTPRequestHandler, status: int, code: str, headers: dict[str, str]) -> None:
    content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>a proxy said so</Message></Error>".encode()
    handler.send_response_only(status)
    for name, value in {**headers, "content-type": "application/xml", "content-length": str(len(content))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(b"" if handler.command == "HEAD" else content)


def _drop(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(endpoint_url: str) -> Iterator[Proxy]:
    """A proxy that runs during the block."""
    proxy = Proxy(endpoint_url)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
