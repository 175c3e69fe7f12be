"""A double of the Hugging Face hub on this machine: files of one dataset, over HTTP."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import file_download

COMMIT = "c" * 40


@dataclass
class Dataset:
    """A dataset on the hub: its files, and how the hub behaves."""

    repo: str
    files: dict[str, bytes]
    token: str | None = None
    """Only requests with it are answered."""
    cut: int | None = None
    """The next answer with content ends after so many bytes."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """(method, Range) of each request."""


class Hub(BaseHTTPRequestHandler):
    """Speaks the hub's HTTP: metadata in the headers of HEAD, ranges, redirects to a store of large files,
    and errors by X-Error-Code."""

    dataset: Dataset

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        dataset, wanted = self.dataset, self.headers.get("Range")
        dataset.asked.append((self.command, wanted))
        name, large = self.path.rpartition("/")[2], self.path.startswith("/large/")
        content = dataset.files.get(name, b"")
        body, whole = content if self.command == "GET" else b"", len(content)
        known = self.headers.get("Authorization")
        if large and known:
            return self._head(400, {"X-Error-Message": "a token was sent to another host"})
        if not large and dataset.token and known != f"Bearer {dataset.token}":
            return self._head(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        if large:
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            ranged = {"Content-Range": f"bytes {start}-{whole - 1}/{whole}"} if wanted else {}
            self._head(206 if wanted else 200, {"Content-Length": str(whole - start), **ranged})
            end, dataset.cut = dataset.cut, None
            self.wfile.write(body[start:end])
            return None
        if not self.path.startswith(f"/datasets/{dataset.repo}/resolve") or name not in dataset.files:
            return self._head(404, {"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha256(content).hexdigest()
        facts = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(whole)}
        return self._head(302, {**facts, "ETag": '"pointer"', "Location": f"{self.server.elsewhere}/large/{name}"})  # type: ignore[attr-defined]

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": "0"} | headers).items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@contextmanager
def serving(dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dataset]:
    """The dataset on a hub on this machine, which the hub's own client asks. folder: for its cache."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 50)  # the client keeps whole pieces
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(folder / "no token"))
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Hub,), {"dataset": dataset})) as server:
        server.address = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
        server.elsewhere = f"http://localhost:{server.server_port}"  # type: ignore[attr-defined]  # another host's name
        monkeypatch.setenv("HF_ENDPOINT", server.address + "/")  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield dataset
        server.shutdown()
        thread.join()
