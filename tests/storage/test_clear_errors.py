"""What goes wrong first on a team's storage is one line that names it and what would help, whatever the storage."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from storage.guides import GUIDES
from tests.app.cli import Desk, hurry
from tests.storage.dropbox.handle import running
from tests.storage.fakes.redirect import DROPBOX
from tests.storage.s3.servers import ENVIRONMENT, own_port

Situation = AbstractContextManager[str]
"""While it is open the address it gives is in trouble."""


@contextmanager
def answering(status: int, code: str, **headers: str) -> Iterator[str]:
    """An S3 server that answers every request with one refusal."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = f"<Error><Code>{code}</Code><Message>The reason.</Message></Error>".encode()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else text)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusal) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"s3://bucket/relay?endpoint_url=http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def dropbox(url: str = "dropbox:///relay", kind: str = "", short: bool = False, **told: object) -> Iterator[str]:
    """A new account, in trouble."""
    person = running().account()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in person.environ.items():
            patch.setenv(name, value)
        if kind == "scopes":
            person.change(scopes=["files.metadata.read", "account_info.read"])
        elif kind == "port":
            patch.setenv(DROPBOX, str(own_port()))
        elif kind:
            person.fault(kind, route="files/", times=-1, **told)
        if short:
            patch.delenv("DROPBOX_REFRESH_TOKEN")
            patch.setenv("DROPBOX_ACCESS_TOKEN", person.holds["access_token"])
        yield url


@contextmanager
def expired() -> Iterator[str]:
    """A token of the App Console, four hours later."""
    with dropbox(kind="401", error={".tag": "expired_access_token"}, short=True) as url:
        yield url


@contextmanager
def without(package: str, url: str) -> Iterator[str]:
    """A machine on which a package is not installed."""
    real = importlib.util.find_spec
    with pytest.MonkeyPatch.context() as patch:
        for module in ("storage.s3", "storage.dropbox"):
            patch.setattr(f"{module}.find_spec", lambda name: None if name == package else real(name))
        patch.setenv("DROPBOX_ACCESS_TOKEN", "x" * 20)
        yield url


HERE = "s3://bucket/relay?endpoint_url=http://127.0.0.1:1"
TROUBLES: dict[str, tuple[Callable[[], Situation], int, tuple[str, ...]]] = {
    "s3: missing package": (lambda: without("boto3", HERE), 78, ("pip install 'trm-relay[s3]'",)),
    "s3: wrong bucket": (lambda: answering(404, "NoSuchBucket"), 78, ("endpoint_url",)),
    "s3: expired token": (lambda: answering(400, "ExpiredToken"), 69, ("ExpiredToken",)),
    "s3: missing permission": (lambda: answering(403, "AccessDenied"), 69, ("AccessDenied", GUIDES["s3"])),
    "s3: wrong region": (
        lambda: answering(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3"), 78, ("?region=eu-west-3",)
    ),
    "s3: wrong clock": (lambda: answering(403, "RequestTimeTooSkewed"), 69, ("RequestTimeTooSkewed", "NTP")),
    "s3: no network": (lambda: nullcontext(HERE), 69, ("127.0.0.1:1",)),
    "dropbox: missing package": (
        lambda: without("dropbox", "dropbox:///relay"), 78, ("pip install 'trm-relay[dropbox]'",)
    ),
    "dropbox: wrong folder": (lambda: dropbox("dropbox://ns:99999/relay"), 69, ("99999",)),
    "dropbox: expired token": (expired, 69, ("DROPBOX_REFRESH_TOKEN", "DROPBOX_APP_KEY", GUIDES["dropbox"])),
    "dropbox: missing permission": (lambda: dropbox(kind="scopes"), 69, ("files.content.read",)),
    "dropbox: login page": (lambda: dropbox(kind="html"), 69, ("dropbox:///relay",)),
    "dropbox: no network": (lambda: dropbox(kind="port"), 69, ("ConnectionError",)),
}  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLES)
def test_one_line_names_the_trouble_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    hurry(monkeypatch)
    situation, code, facts = TROUBLES[trouble]
    with situation() as address:
        desk = Desk(tmp_path / "desk", {"RELAY_STORE": address})
        for command in ("status", "run"):
            done = desk(command, "--run", "r", code=code)
            (line,) = done.err.strip().splitlines()
            assert all(fact in line for fact in facts), line
            assert "Traceback" not in line and ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in line
        found = desk("doctor", "--run", "r", "--json", code=code).json
        assert found["stores"][0]["put_if_absent"] is None
        assert len([row for row in found["findings"] if row["subject"] == "store" and not row["ok"]]) == 1
