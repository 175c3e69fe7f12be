"""A hand-off is posted once, to the one address, within five seconds, and that address appears nowhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from relay.app.messages import webhook
from relay.app.messages.webhook import address_of, send
from relay.app.redact import MASK, redact, secrets_of
from relay.core.clock import RealRuntime
from relay.core.errors import BadConfig, StorageUnreachable
from tests.app.cli import Desk

SECRET = "T0SECRET9xyz"


class Receiver(ThreadingHTTPServer):
    """Answers as configured, and remembers the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.location = ""
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/{SECRET}"

    def handle_error(self, *_: object) -> None:
        """A client that does not wait for an answer is not an error."""


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        code = self.server.answers.pop(0) if self.server.answers else 204
        if code == 0:
            self.server.released.wait(10)
            return
        self.send_response(code)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from serving()


@pytest.fixture
def elsewhere() -> Iterator[Receiver]:
    yield from serving()


def serving() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def posted(server: Receiver) -> str:
    return send(server.url, lambda: {"text": "hello"}, RealRuntime())


def test_a_message_is_posted_once(receiver: Receiver) -> None:
    assert posted(receiver) == "" and receiver.got == [{"text": "hello"}]


def test_a_failure_is_tried_once_more(receiver: Receiver) -> None:
    receiver.answers = [500]
    assert posted(receiver) == "" and len(receiver.got) == 2
    receiver.answers = [500, 503, 500]
    assert posted(receiver) == "it answered 503" and len(receiver.got) == 4


def test_nothing_is_followed_to_another_place(receiver: Receiver, elsewhere: Receiver) -> None:
    for code in (301, 302, 303, 307, 308):
        receiver.answers, receiver.location = [code, code], elsewhere.url
        told = posted(receiver)
        assert str(code) in told and "redirect" in told
    assert elsewhere.got == []


def test_whoever_hangs_is_left_behind(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "EACH_S", 0.1)
    monkeypatch.setattr(webhook, "IN_ALL_S", 0.6)
    receiver.answers = [0, 0, 0]
    began = RealRuntime().monotonic()
    assert "(TimeoutError)" in posted(receiver) and len(receiver.got) == 2
    assert RealRuntime().monotonic() - began < 2
    hanging = threading.Event()
    assert " 1 s" in send(receiver.url, lambda: (hanging.wait(2) and {}) or {}, RealRuntime())
    hanging.set()


def test_what_cannot_be_read_or_reached_is_told_without_the_address() -> None:
    def unread() -> dict[str, Any]:
        raise StorageUnreachable(f"no such thing as {SECRET}")

    closed = f"http://127.0.0.1:1/{SECRET}"
    told = [send(closed, unread, RealRuntime()), send(closed, dict, RealRuntime())]
    assert [text.rpartition(" ")[2] for text in told] == ["(StorageUnreachable)", "(ConnectionRefusedError)"]
    assert not [text for text in told if SECRET in text]


@pytest.mark.parametrize(
    "url",
    [
        f"http://hooks.example.com/{SECRET}",
        f"ftp://127.0.0.1/{SECRET}",
        f"file:///{SECRET}",
        SECRET,
        f"https:///{SECRET}",
        f"https://a:b:c/{SECRET}",
        f"https://hooks.example.com/{SECRET}\r\nHost: x",
        f"https://h\u00f6oks.example.com/{SECRET}",
        f"http://127.0.0.1.example.com/{SECRET}",
    ],
)
def test_only_https_or_this_machine(url: str) -> None:
    with pytest.raises(BadConfig, match=r"RELAY_WEBHOOK .*https://") as raised:
        address_of({"RELAY_WEBHOOK": url})
    assert SECRET not in str(raised.value)


def test_addresses_that_are_taken() -> None:
    for url in ("https://hooks.example.com/x?y=1", "http://127.0.0.1:8/x", "http://[::1]:8/x", "http://localhost/x"):
        assert address_of({"RELAY_WEBHOOK": f" {url} "}) == url
    assert address_of({}) is None and address_of({"RELAY_WEBHOOK": " "}) is None


def test_the_address_is_masked_like_any_secret() -> None:
    url = f"https://hooks.example.com/{SECRET}"
    assert redact(f"cannot reach {url}", secrets_of({"RELAY_WEBHOOK": url})) == f"cannot reach {MASK}"


def test_a_session_tells_who_is_next_and_leaves_no_trace(tmp_path: Path, receiver: Receiver) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_WEBHOOK": receiver.url, "RELAY_OWNER": "Ana"})
    desk("register", "account_1", "Ana's Colab")
    desk("register", "account_2", "Bo <!channel> @all's Kaggle", "--owner", "Bo", "--provider", "local")
    done = desk.train(6, "--budget-minutes", "5")
    (told,) = receiver.got
    assert told["allowed_mentions"] == {"parse": []}, "Discord calls nobody"
    assert told["text"] == told["content"] and told["text"].startswith("account_1 ")
    assert (told["run"], told["step"], told["target"], told["state"]) == ("r", 6, 6, "finished")
    desk.environ["RELAY_OWNER"] = "Bo"
    more = desk.train(9, "--redact", account="account_2")
    assert "Bo" not in receiver.got[1]["text"]
    spoken = done.out + done.err + more.out + more.err
    stored = [path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()]
    assert SECRET not in spoken and not [data for data in stored if SECRET.encode() in data]
    assert SECRET not in desk("config", "show", "--origin").out


def test_labels_call_nobody_in_a_chat(tmp_path: Path, receiver: Receiver) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_WEBHOOK": receiver.url, "RELAY_OWNER": "Ana"})
    desk("register", "account_1", "<!channel> @everyone [x](http://evil)", "--provider", "local")
    desk.train(3)
    desk("stop", "--run", "r", code=None)
    desk.plugin.made = {"step_s": 0.2}
    desk.train(10_000, "--budget-minutes", "0.08", code=75)
    text = receiver.got[-1]["text"]
    assert "!channel" in text and not set("<>@[") & set(text.partition(" project")[0])
    assert receiver.got[-1]["next"] == "account_1" and receiver.got[-1]["state"] == "idle"


def test_a_webhook_that_fails_changes_no_exit_code(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [500, 500]
    desk = Desk(tmp_path / "desk", {"RELAY_WEBHOOK": receiver.url})
    done = desk.train(3, "--json")
    assert done.json["exit_code"] == 0 and "500" in done.err
    assert desk.train(3).code == 0 and len(receiver.got) == 2, "a session that never began hands nothing off"
    refused = Desk(tmp_path / "other", {"RELAY_WEBHOOK": "http://example.com/x"})
    assert "RELAY_WEBHOOK" in refused.train(3, code=78).err and not (refused.folder / "relay_store").exists()
