"""The server: loopback, read-only, its own name only; one reader of the store however many browsers there are."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest
import uvicorn
from starlette.testclient import TestClient

from relay.app.dashboard import connections
from relay.app.dashboard.data import Seen
from relay.app.dashboard.page import RUN_SCRIPTS, SCRIPTS, STYLES
from relay.app.dashboard.server import (
    HOST,
    LOCAL,
    MOST_POLLERS,
    MOST_WATCHERS,
    REMOTE,
    SOON_S,
    UNWATCHED_S,
    Others,
    Pace,
    Poller,
    application,
    listening,
    news,
)
from relay.core.clock import Task
from relay.core.errors import BadConfig, UsageError
from relay.torch.launch import reserved_port
from storage.base import Unavailable
from tests.app.shown import document
from tests.core.making import QuietRuntime
from tests.facts import raising
from tests.people.views import trained, view

FIRST = document(Seen(view(trained())))


def poller(read: Callable[[], Mapping[str, Any] | None] = lambda: None, pace: Pace = LOCAL) -> Poller:
    return Poller(read, FIRST, pace, QuietRuntime())


@pytest.fixture
def client() -> TestClient:
    return TestClient(application(poller()), base_url=f"http://{HOST}:8377")


def test_the_page_its_parts_and_the_document(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and 'id="data"' in page.text and "sudoku_rotation" in page.text
    for name in (*STYLES, *SCRIPTS):
        assert client.get(f"/static/{name}").status_code == 200
        assert (f"/static/{name}" in page.text) == (name in (*RUN_SCRIPTS, *STYLES))
    found = client.get("/data.json")
    assert found.headers["content-type"] == "application/json"
    assert json.loads(found.text) == json.loads(json.dumps({**FIRST, "version": 1, "trouble": None}))


@pytest.mark.parametrize("path", ["/", "/data.json", "/static/app.js"])
def test_every_answer_carries_a_strict_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store" and "access-control-allow-origin" not in headers


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(client: TestClient, verb: str) -> None:
    for path in ("/", "/data.json", "/events", "/static/app.js"):
        assert client.request(verb, path).status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example"])
def test_a_strange_name_that_leads_here_opens_nothing(client: TestClient, host: str) -> None:
    for path in ("/", "/data.json", "/events"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 400 and "sudoku" not in answer.text


@pytest.mark.parametrize(
    "path", ["/static/shell.html", "/static/..%2fpage.py", "/static/", "/ledger", "/static/uPlot.md"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_too_many_windows_are_refused() -> None:
    full = poller()
    full.watchers = MOST_WATCHERS
    assert TestClient(application(full), base_url=f"http://{HOST}").get("/events").status_code == 503


def test_a_browser_is_told_the_version_now_and_when_it_changes() -> None:
    fresh = iter([FIRST])
    watched = poller(lambda: next(fresh))

    async def hear() -> list[str]:
        stream: AsyncIterator[str] = news(watched, lambda: len(told) == 2)
        told: list[str] = []
        async for line in stream:
            told.append(line)
            assert watched.watchers == 1
            if len(told) == 1:
                watched.look()
        return told

    with ThreadPoolExecutor(1) as pool:  # a browser test before may have left a loop running in this thread
        heard = pool.submit(lambda: asyncio.run(hear())).result()
    assert [dict(line.split(": ") for line in event.splitlines() if line) for event in heard] == [
        {"event": "news", "data": version} for version in ("1", "2")
    ]
    assert watched.watchers == 0


def test_a_store_that_does_not_answer_leaves_what_is_known_and_is_told_once() -> None:
    answers: list[Any] = [None, Unavailable("silent"), Unavailable("silent"), None, FIRST]

    def read() -> Mapping[str, Any] | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watched, seen = poller(read), []
    for _ in range(5):
        watched.look()
        seen.append((watched.news.version, watched.news.trouble))
    assert seen == [(1, ""), (2, "silent"), (2, "silent"), (3, ""), (4, "")]
    assert json.loads(watched.news.body())["run"] == "sudoku_rotation"


class Inline(QuietRuntime):
    """Runs a thread's body at once."""

    def spawn(self, name: str, body: Callable[[], None]) -> Task:
        body()
        return cast(Task, None)


def test_a_reader_that_fails_does_not_leave_a_page_that_claims_to_be_new() -> None:
    failing = Poller(lambda: {}["bug"], FIRST, Pace(0.0, 0.0), Inline())
    failing.wake()
    with pytest.raises(KeyError):
        failing.start()
    assert failing.news.version == 2 and failing.news.trouble


def test_a_service_is_asked_less_and_less_while_nothing_is_new_and_soon_again_after() -> None:
    answers: list[Any] = [None] * 9 + [FIRST]
    watched = poller(lambda: answers.pop(0), REMOTE)
    waits = []
    for _ in range(10):
        watched.look()
        waits.append(watched.wait_s())
    assert waits[:9] == [UNWATCHED_S] * 9, "no browser looks"
    watched.watchers = 3
    assert watched.wait_s() == REMOTE.first_s, "after something new"
    answers += [None] * 8
    for _ in range(8):
        watched.look()
    assert watched.wait_s() == REMOTE.most_s
    watched.wake()
    assert watched.wait_s() == REMOTE.first_s
    answers += [{**FIRST, "unread": 7}, None]
    watched.look()
    assert watched.wait_s() == SOON_S, "there is more to be read"
    watched.look()
    assert watched.wait_s() >= REMOTE.first_s


def test_a_taken_port_is_told_and_without_one_another_is_found() -> None:
    with listening(None) as one, listening(None) as other:
        ports = one.getsockname()[1], other.getsockname()[1]
        assert one.getsockname()[0] == other.getsockname()[0] == "127.0.0.1" and ports[0] != ports[1]
        with raising(UsageError, ports[1]):
            listening(ports[1])
    with reserved_port() as port, listening(port) as chosen:
        assert chosen.getsockname()[1] == port


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with little patience and few connections."""
    monkeypatch.setattr(connections, "PATIENCE_S", 0.4)
    monkeypatch.setattr(connections, "LOOK_S", 0.05)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    server = uvicorn.Server(
        uvicorn.Config(application(poller()), http=connections.Connection, log_level="error", lifespan="off")
    )
    with listening(None) as listener:
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(10)


HEAD = b"GET /data.json HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HALVES = {
    "nothing": b"",
    "half of the headers": b"GET /data.json HTTP/1.1\r\nHost: 127",
    "half of the body": HEAD + b"Content-Length: 100\r\n\r\nhalf",
    "a body without an end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhal",
    "an answer, and half of the next request": HEAD + b"\r\n" + HEAD,
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
def test_a_request_that_is_never_whole_is_closed(port: int, sent: bytes) -> None:
    with socket.create_connection((HOST, port), timeout=10) as half:
        half.sendall(sent)
        with suppress(ConnectionResetError):
            while half.recv(65536):
                pass


def test_a_browser_that_asks_now_and_then_keeps_its_connection(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=10) as kept:
        for _ in range(8):
            kept.sendall(HEAD + b"\r\n")
            head, _, body = kept.recv(65536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            (length,) = re.findall(rb"content-length: (\d+)", head)
            while len(body) < int(length):
                body += kept.recv(65536)
            time.sleep(0.15)


def test_one_letter_at_a_time_is_not_patience(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=10) as slow, pytest.raises(OSError):
        for letter in HEAD * 40:
            slow.sendall(bytes([letter]))
            time.sleep(0.02)


def test_a_client_that_reads_no_more_is_closed_and_a_listener_stays(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=10) as listens, socket.socket() as deaf:
        listens.sendall(HEAD.replace(b"/data.json", b"/events") + b"\r\n")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect((HOST, port))
        deaf.settimeout(1)
        with pytest.raises(ConnectionError):
            until = time.monotonic() + 60.0
            while time.monotonic() < until:  # more answers than buffers hold, however slow the server is
                with suppress(TimeoutError):
                    deaf.sendall((HEAD + b"\r\n") * 8)
                time.sleep(0.001)
        until = time.monotonic() + 1.0
        heard = b""
        listens.settimeout(0.1)
        while time.monotonic() < until:
            with suppress(TimeoutError):
                heard += (got := listens.recv(4096))
                assert got, "the stream of news was closed"
        assert b"event: news" in heard


def test_connections_are_bounded_and_free_again_after_a_while(port: int) -> None:
    held = [socket.create_connection((HOST, port), timeout=10) for _ in range(8)]
    with socket.create_connection((HOST, port), timeout=10) as more, suppress(ConnectionResetError):
        assert more.recv(1) == b"", "one too many"
    time.sleep(0.8)
    with socket.create_connection((HOST, port), timeout=10) as later:
        later.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert later.recv(100).startswith(b"HTTP/1.1 200")
    for one in held:
        one.close()


class OtherRuns:
    """A board whose runs have no thread."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def runs(self) -> Mapping[str, Any]:
        raise Unavailable("the store is away")

    def compare(self, names: Any) -> Mapping[str, Any]:
        raise UsageError(f"Name 2 to 8 different runs to compare; {len(names)} were given.")

    def poller(self, project: str, run: str) -> Poller:
        if run == "absent":
            raise BadConfig("no such run")
        self.made.append(run)
        made = poller()
        made.start = lambda: None  # type: ignore[method-assign]
        return made


def test_other_runs_have_their_own_pages_at_most_eight_and_errors_are_one_line() -> None:
    board = OtherRuns()
    others = Others(board, QuietRuntime())
    client = TestClient(application(poller(), others=others), base_url=f"http://{HOST}:8377")
    assert client.get("/run/p/r/").status_code == 200 and client.get("/run/p/r/data.json").json()["version"] == 1
    assert board.made == ["r"], "one reader of the run, however many requests"
    for number in range(MOST_POLLERS + 1):
        client.get(f"/run/p/r{number}/")
    client.get("/run/p/r/")
    assert board.made.count("r") == 2, "the run that was looked at longest ago was given up"
    for path, status in (("/runs", 503), ("/compare.json?run=p/r", 404), ("/run/p/absent/", 404)):
        answer = client.get(path)
        assert answer.status_code == status and answer.json()["error"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert client.get("/runs", headers={"Host": "evil.example"}).status_code == 400
    assert client.post("/runs").status_code == 405
    others.stop()
