"""Serves the run's page on the loopback address, read-only."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from relay.app.dashboard.page import BOARD, MIME, SCRIPTS, SERVED_POLICY, STYLES, embedded, served, static
from relay.app.messages.errors import paragraph
from relay.app.redact import redact
from relay.core.clock import Runtime
from relay.core.errors import RelayError, UsageError
from storage.base import StoreError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

GROWTH = 1.5
SOON_S = 0.1
"""Seconds between two reads while old entries are still unread."""
UNWATCHED_S = 60.0
"""Seconds between two reads while no browser is connected."""
FAILED = "This program has failed and follows the run no more. Start the dashboard again."
Read = Callable[[], "Mapping[str, Any] | None"]


@dataclass(frozen=True)
class Pace:
    """Seconds between two reads: the shortest, after a change, and the longest."""

    first_s: float
    most_s: float


LOCAL, REMOTE = Pace(0.5, 0.5), Pace(4.0, 30.0)
"""Reading a folder is one `stat`; reading a service is a request that may cost money."""


@dataclass(frozen=True)
class News:
    """The newest document for the browsers."""

    version: int
    document: Mapping[str, Any]
    trouble: str = ""
    """Why the document is out of date."""

    def body(self) -> bytes:
        """Return the JSON document for the browser, in UTF-8."""
        return embedded({**self.document, "version": self.version, "trouble": self.trouble or None}).encode()


class Poller:
    """Reads the run in a thread. `read` returns a new document, or None if nothing has changed."""

    def __init__(
        self,
        read: Read,
        first: Mapping[str, Any],
        pace: Pace,
        runtime: Runtime,
        mask: Callable[[str], str] = redact,
    ) -> None:
        """`mask`: hides secrets in the text of an error."""
        self.news, self.masked = News(1, first), mask
        self.watchers = 0
        """Browsers that listen."""
        self._read, self._pace, self._runtime = read, pace, runtime
        self._wanted, self._over = runtime.event(), False
        self._wait = pace.first_s

    def start(self) -> None:
        """Start the thread."""
        self._runtime.spawn("dashboard", self._run)

    def stop(self) -> None:
        """End the thread after the current read."""
        self._over = True
        self._wanted.set()

    def wake(self) -> None:
        """Read now, and often again, because a browser has connected."""
        self._wait = self._pace.first_s
        self._wanted.set()

    def look(self) -> None:
        """Read once. If the store does not answer, the document stays, with the reason."""
        try:
            document, trouble = self._read(), ""
        except (RelayError, StoreError) as error:
            document, trouble = None, self.masked(paragraph(error))
        now = self.news
        if document is not None or trouble != now.trouble:
            self.news = News(now.version + 1, document if document is not None else now.document, trouble)
        if document is None:
            self._wait = min(self._pace.most_s, max(self._pace.first_s, self._wait) * GROWTH)
        else:
            self._wait = SOON_S if document["unread"] else self._pace.first_s

    def wait_s(self) -> float:
        """Return the seconds until the next read, unless a browser connects."""
        return self._wait if self.watchers else UNWATCHED_S

    def _run(self) -> None:
        try:
            while not self._over:
                self._wanted.wait(self.wait_s())
                self._wanted.clear()
                if not self._over:
                    self.look()
        finally:
            if not self._over:  # a bug: the page must not look up to date
                self.news = replace(self.news, version=self.news.version + 1, trouble=FAILED)


class Board(Protocol):
    """All runs of the store, for the start page. Each function reads the store. Raises RelayError, StoreError."""

    def runs(self) -> Mapping[str, Any]:
        """Return relay.board/1 with all runs."""
        ...

    def compare(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Return the comparison of some runs, named PROJECT/RUN."""
        ...

    def poller(self, project: str, run: str) -> Poller:
        """Return the poller of another run, not started."""
        ...


MOST_POLLERS = 8
"""Other runs that are followed at a time; the one that was looked at longest ago is given up."""


class Others:
    """Follows the runs whose pages were opened from the start page."""

    def __init__(self, board: Board, runtime: Runtime) -> None:
        self.board = board
        self._lock, self._known = runtime.lock(), dict[tuple[str, str], Poller]()

    def of(self, project: str, run: str) -> Poller:
        """Return the run's poller, started at the first call. Raises RelayError, StoreError."""
        key = project, run
        with self._lock:
            found = self._known.pop(key, None)
            if found is None:
                found = self.board.poller(project, run)
                found.start()
            self._known[key] = found
            while len(self._known) > MOST_POLLERS:
                self._known.pop(next(iter(self._known))).stop()
        return found

    def stop(self) -> None:
        """End all threads."""
        with self._lock:
            for poller in self._known.values():
                poller.stop()


HOST = "127.0.0.1"
HOSTS = [HOST, "localhost"]
"""Host names that this server accepts; others are refused, against DNS rebinding."""
USUAL_PORT = 8377
MOST_WATCHERS = 32
TICK_S = 0.1
SIGN_S = 15.0
"""Seconds between two comments to a browser, which detect a closed connection."""
HEADERS = {
    "Content-Security-Policy": SERVED_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def application(poller: Poller, over: Callable[[], bool] = lambda: False, others: Others | None = None) -> Starlette:
    """Return the Starlette application; `over` returns whether the server is stopping.

    The only routes are the page of the run, its document and a stream of its versions, the same of the store's other
    runs, the page of all runs and their comparison, and static files.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    def asked(request: Request) -> Poller:
        names = request.path_params
        return others.of(names["project"], names["run"]) if others and names else poller

    def reading(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """An answer that reads the store; a failure is one line of JSON."""

        def answered(request: Request) -> Response:
            try:
                return answer(request)
            except (RelayError, StoreError) as error:
                told = {"error": poller.masked(paragraph(error))}
                return JSONResponse(told, 503 if isinstance(error, StoreError) else 404, HEADERS)

        return answered

    def page(request: Request) -> Response:
        shown = asked(request)
        shown.wake()
        return HTMLResponse(served(shown.news.document), headers=HEADERS)

    def data(request: Request) -> Response:
        return Response(asked(request).news.body(), media_type="application/json", headers=HEADERS)

    def part(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in (*STYLES, *SCRIPTS):
            return PlainTextResponse("There is no such part.", 404, HEADERS)
        return Response(static(name), headers=HEADERS | {"Content-Type": MIME[name.rpartition(".")[2]]})

    def events(request: Request) -> Response:
        shown = asked(request)
        if shown.watchers >= MOST_WATCHERS:
            return PlainTextResponse("Too many windows are open. Close some.", 503, HEADERS)
        return StreamingResponse(news(shown, over), media_type="text/event-stream", headers=HEADERS)

    def runs(_: Request) -> Response:
        assert others
        return HTMLResponse(served(others.board.runs(), BOARD), headers=HEADERS)

    def compared(request: Request) -> Response:
        assert others
        found = others.board.compare(request.query_params.getlist("run"))
        return Response(embedded(found).encode(), media_type="application/json", headers=HEADERS)

    answers = {"": page, "data.json": data, "events": events}
    routes = [Route(f"/{name}", answer, methods=["GET"]) for name, answer in answers.items()]
    routes.append(Route("/static/{name}", part, methods=["GET"]))
    if others:
        home = "/run/{project}/{run}/"
        routes += [Route(f"{home}{name}", reading(answer), methods=["GET"]) for name, answer in answers.items()]
        routes += [Route("/runs", reading(runs), methods=["GET"])]
        routes += [Route("/compare.json", reading(compared), methods=["GET"])]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)])


async def news(poller: Poller, over: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield events with the document's version, now and at each change; the browser then fetches the document."""
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
    """Return a listening socket on loopback: at `port`; without one, at the usual port or any free one.

    Raises UsageError (2) if the port is taken or not allowed.
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


def serve(poller: Poller, listener: socket.socket, others: Others | None = None) -> None:
    """Serve until the process is interrupted. Raises KeyboardInterrupt then, unless the server already stops."""
    import uvicorn

    from relay.app.dashboard.connections import Connection

    server: uvicorn.Server
    app = application(poller, lambda: server.should_exit, others)
    config = uvicorn.Config(
        app, http=Connection, ws="none", log_level="error", access_log=False, lifespan="off", server_header=False
    )
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    poller.start()
    try:
        server.run(sockets=[listener])
    finally:
        poller.stop()
        if others:
            others.stop()
