"""A loopback double of the three clouds' metadata address: answers, hangs, lies and floods by request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NOW = 1_700_000_000.0
"""The double's clock, unix seconds."""
TOKEN = "AQAEAtoken=="
Reply = tuple[int, bytes]


@dataclass
class Cloud:
    """The answers of the address by path; an unknown path is 404, as on a machine that is not taken back."""

    replies: dict[str, Reply] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)
    """A header and its value, else 400."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    clock: bool = True
    address: str = ""

    def reply(self, method: str, path: str, headers: Any) -> Reply:
        self.asked.append((method, path))
        self.before()
        if any(headers.get(name) != value for name, value in self.needs.items()):
            return 400, b"Bad Request"
        if path == "/latest/api/token":
            good = method == "PUT" and headers.get("X-aws-ec2-metadata-token-ttl-seconds") == "21600"
            return self.replies.get(path, (200, TOKEN.encode())) if good else (400, b"")
        if path.startswith("/latest/") and headers.get("X-aws-ec2-metadata-token") != TOKEN:
            return 401, b""
        return self.replies.get(path, (404, b"<html>not found</html>"))

    def taken_by_aws(self, at: str = "2023-11-14T22:15:18Z") -> None:
        """In 118 s, on the double's clock."""
        body = json.dumps({"action": "terminate", "time": at}).encode()
        self.replies["/latest/meta-data/spot/instance-action"] = (200, body)

    def taken_by_gcp(self, said: bytes = b"TRUE") -> None:
        self.needs = {"Metadata-Flavor": "Google"}
        self.replies["/computeMetadata/v1/instance/preempted"] = (200, said)

    def events_of_azure(self, *events: dict[str, Any], name: str = "worker_0") -> None:
        self.needs = {"Metadata": "true"}
        body = json.dumps({"DocumentIncarnation": 1, "Events": events}).encode()
        self.replies["/metadata/scheduledevents?api-version=2020-07-01"] = (200, body)
        if name:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            self.replies[path] = (200, name.encode())


@contextmanager
def serving(cloud: Cloud) -> Iterator[Cloud]:
    """The double at a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            try:
                status, body = cloud.reply(self.command, self.path, self.headers)
                self.send_response_only(status)
                if cloud.clock:
                    self.send_header("Date", formatdate(NOW, usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the client has gone

        do_GET = do_PUT = _answer

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    cloud.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
