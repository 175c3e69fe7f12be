"""Serves the page on this machine's loopback, to read only; knows a Poller and no store.

Nothing is written and nothing can be asked for but the page, its parts, the document, and to be told of news.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from relay.app.dashboard.page import MIME, SCRIPTS, SERVED_POLICY, STYLES, embedded, served, static
from relay.app.messages.errors import paragraph
from relay.core.clock import Runtime
from relay.core.errors import RelayError, UsageError
from storage.base import StoreError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

GROWTH = 1.5
SOON_S = 0.1
"""While something old is still to be read."""
UNWATCHED_S = 60.0
"""Between two looks while no browser is there."""
FAILED = "This program has failed and follows the run no more. Start the dashboard again."
Read = Callable[[], "Mapping[str, Any] | None"]


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks: after something was new, and at most."""

    first_s: float
    most_s: float


LOCAL, REMOTE = Pace(0.5, 0.5), Pace(4.0, 30.0)
"""A look at a folder is one `stat`; at a service it is a request that somebody may pay for."""


@dataclass(frozen=True)
class News:
    """What the browsers are to show."""

    version: int
    document: Mapping[str, Any]
    trouble: str = ""
    """Why the document is not the newest."""

    def body(self) -> bytes:
        """As sent."""
        return embedded({**self.document, "version": self.version, "trouble": self.trouble or None}).encode()


class Poller:
    """`read` returns a new document, or None if nothing has changed."""

    def __init__(self, read: Read, first: Mapping[str, Any], pace: Pace, runtime: Runtime) -> None:
        self.news = News(1, first)
        self.watchers = 0
        """Browsers that listen."""
        self._read, self._pace, self._runtime = read, pace, runtime
        self._wanted, self._over = runtime.event(), False
        self._wait = pace.first_s

    def start(self) -> None:
        """Begin to look."""
        self._runtime.spawn("dashboard", self._run)

    def stop(self) -> None:
        """End the thread after the look that it is at."""
        self._over = True
        self._wanted.set()

    def wake(self) -> None:
        """Somebody has come: look now, and often again."""
        self._wait = self._pace.first_s
        self._wanted.set()

    def look(self) -> None:
        """Once. A store that does not answer leaves what is known, with the reason."""
        try:
            document, trouble = self._read(), ""
        except (RelayError, StoreError) as error:
            document, trouble = None, paragraph(error)
        now = self.news
        if document is not None or trouble != now.trouble:
            self.news = News(now.version + 1, document if document is not None else now.document, trouble)
        if document is None:
            self._wait = min(self._pace.most_s, max(self._pace.first_s, self._wait) * GROWTH)
        else:
            self._wait = SOON_S if document["unread"] else self._pace.first_s

    def wait_s(self) -> float:
        """Until the next look, unless somebody comes."""
        return self._wait if self.watchers else UNWATCHED_S

    def _run(self) -> None:
        try:
            while not self._over:
                self._wanted.wait(self.wait_s())
                self._wanted.clear()
                if not self._over:
                    self.look()
        finally:
            if not self._over:  # a bug: whoever looks at the page must not take it for the newest
                self.news = replace(self.news, version=self.news.version + 1, trouble=FAILED)


HOST = "127.0.0.1"
HOSTS = [HOST, "localhost"]
"""Names that this server answers to: a stranger's name that leads here does not open it (DNS rebinding)."""
USUAL_PORT = 8377
MOST_WATCHERS = 32
TICK_S = 0.1
SIGN_S = 15.0
"""Between two empty lines to a browser, by which a closed one is noticed."""
HEADERS = {
    "Content-Security-Policy": SERVED_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def application(poller: Poller, over: Callable[[], bool] = lambda: False) -> Starlette:
    """The routes; `over` says that the server is to end."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    def page(_: Request) -> Response:
        poller.wake()
        return HTMLResponse(served(poller.news.document), headers=HEADERS)

    def data(_: Request) -> Response:
        return Response(poller.news.body(), media_type="application/json", headers=HEADERS)

    def part(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in (*STYLES, *SCRIPTS):
            return PlainTextResponse("There is no such part.", 404, HEADERS)
        return Response(static(name), headers=HEADERS | {"Content-Type": MIME[name.rpartition(".")[2]]})

    def events(_: Request) -> Response:
        if poller.watchers >= MOST_WATCHERS:
            return PlainTextResponse("Too many windows are open. Close some.", 503, HEADERS)
        return StreamingResponse(news(poller, over), media_type="text/event-stream", headers=HEADERS)

    routes = [
        Route("/", page, methods=["GET"]),
        Route("/data.json", data, methods=["GET"]),
        Route("/events", events, methods=["GET"]),
        Route("/static/{name}", part, methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)])


async def news(poller: Poller, over: Callable[[], bool]) -> AsyncIterator[str]:
    """The document's version now, and whenever it changes; the browser then fetches the document."""
    poller.watchers += 1
    poller.wake()
    told, quiet = 0, 0.0
    try:
        while not over():
            if told != poller.news.version or quiet >= SIGN_S:
                fresh = told != poller.news.version
                told, quiet = poller.news.version, 0.0
                yield f"event: news\ndata: {told}\n\n" if fresh else ": here\n\n"
            await asyncio.sleep(TICK_S)
            quiet += TICK_S
    finally:
        poller.watchers -= 1


def listening(port: int | None) -> socket.socket:
    """A socket on loopback: at the port asked for, else at the usual one, else at any that is free.

    Raises UsageError (2) for a port that is taken or not allowed.
    """
    for number in (USUAL_PORT, 0) if port is None else (port,):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
            found.listen()
        except OSError as error:
            found.close()
            taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            if not taken or port is not None:
                raise UsageError(f"Port {number} cannot be used ({error.strerror}). Leave --port out.") from error
        else:
            return found
    raise AssertionError("port 0 is always free or an error")


def serve(poller: Poller, listener: socket.socket) -> None:
    """Until the process is interrupted: raises KeyboardInterrupt then, unless the server was told so in time."""
    import uvicorn

    server: uvicorn.Server
    app = application(poller, lambda: server.should_exit)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", server_header=False)
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    poller.start()
    try:
        server.run(sockets=[listener])
    finally:
        poller.stop()
