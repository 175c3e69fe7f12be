"""Files that appear whole or not at all, made here or fetched from a double of the hub on this machine."""

from __future__ import annotations

import hashlib
import os
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import file_download

from tests.facts import raising
from trm.data import files
from trm.data.dataset import DataError
from trm.presets import TaskError

CSV = (Path(__file__).parents[2] / "data" / "sudoku" / "good.csv").read_bytes()


COMMIT = "c" * 40
WHERE = f"/datasets/{files.SUDOKU_EXTREME}/resolve"


@dataclass
class Dataset:
    """A dataset on the hub: its file, and how the hub behaves."""

    content: bytes = CSV
    token: str | None = None
    """Only requests with it are answered."""
    cut: int | None = None
    """The next answer with content ends after so many bytes."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """(method, Range) of each request."""


class Hub(BaseHTTPRequestHandler):
    """Speaks the hub's HTTP for one file: metadata in the headers of HEAD, ranges, redirects to a store of large files,
    and errors by X-Error-Code."""

    dataset: Dataset

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.dataset.content)

    def _answer(self, body: bytes) -> None:
        dataset, wanted = self.dataset, self.headers.get("Range")
        dataset.asked.append((self.command, wanted))
        whole = len(dataset.content)
        known = self.headers.get("Authorization")
        if self.path == "/large" and known:
            return self._head(400, {"X-Error-Message": "a token was sent to another host"})
        if self.path != "/large" and dataset.token and known != f"Bearer {dataset.token}":
            return self._head(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        if self.path == "/large":
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            ranged = {"Content-Range": f"bytes {start}-{whole - 1}/{whole}"} if wanted else {}
            self._head(206 if wanted else 200, {"Content-Length": str(whole - start), **ranged})
            end, dataset.cut = dataset.cut, None
            self.wfile.write(body[start:end])
            return None
        if not self.path.startswith(WHERE) or not self.path.endswith("/train.csv"):
            return self._head(404, {"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha256(dataset.content).hexdigest()
        facts = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(whole)}
        return self._head(302, {**facts, "ETag": '"pointer"', "Location": f"{self.server.elsewhere}/large"})  # type: ignore[attr-defined]

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": "0"} | headers).items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dataset]:
    dataset = Dataset()
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 50)  # the client keeps whole pieces
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
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


def _fail(*_: object) -> None:
    """Ends a download in place of the wait before its client tries again."""
    raise OSError(28, os.strerror(28))


def test_downloads_once_and_counts_every_byte(hub: Dataset, tmp_path: Path) -> None:
    lines, seen = list[str](), list[tuple[str, int]]()
    counted = list[int]()

    def fetching(name: str, total: int) -> Callable[[int], object]:
        seen.append((name, total))
        return counted.append

    path = files.sudoku_extreme(tmp_path / "data", "train.csv", lines.append, fetching)
    assert path.read_bytes() == CSV and path == tmp_path / "data" / "sudoku-extreme" / "train.csv"
    assert seen == [("train.csv", len(CSV))] and sum(counted) == len(CSV)
    asked = len(hub.asked)
    assert files.sudoku_extreme(tmp_path / "data", "train.csv", lines.append) == path
    assert len(hub.asked) == asked, "a file that is here is not asked for"
    assert len(lines) == 1 and "train.csv" in lines[0]


def test_a_download_that_was_cut_is_continued_later(hub: Dataset, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "train.csv"
    hub.cut = 100
    with monkeypatch.context() as once:
        once.setattr(file_download.time, "sleep", _fail)  # what the client does before it tries again
        with raising(DataError, os.strerror(28), path, "data.train"):
            files.download(files.SUDOKU_EXTREME, path)
    assert not path.exists(), "an incomplete file has another name"
    before, counted = len(hub.asked), list[int]()
    files.download(files.SUDOKU_EXTREME, path, lambda name, total: counted.append)
    assert path.read_bytes() == CSV and not list(tmp_path.glob("*.part"))
    ranges = {wanted for method, wanted in hub.asked[before:] if method == "GET"}
    assert ranges == {"bytes=100-"}
    assert sum(counted) == len(CSV), "the first bytes count, too"


def test_a_download_that_is_cut_goes_on_by_itself(hub: Dataset, tmp_path: Path) -> None:
    hub.cut = 100
    counted = list[int]()
    files.download(files.SUDOKU_EXTREME, tmp_path / "train.csv", lambda name, total: counted.append)
    assert (tmp_path / "train.csv").read_bytes() == CSV and sum(counted) == len(CSV)


def test_bytes_that_are_not_the_hubs_are_refused_and_not_kept(hub: Dataset, tmp_path: Path) -> None:
    path, hub.cut = tmp_path / "train.csv", 100
    with pytest.MonkeyPatch.context() as once:
        once.setattr(file_download.time, "sleep", _fail)
        with pytest.raises(DataError):
            files.download(files.SUDOKU_EXTREME, path)
    (part,) = tmp_path.glob("*.part")
    part.write_bytes(b"x" * 100)
    with raising(DataError, "hash"):
        files.download(files.SUDOKU_EXTREME, path)
    assert not path.exists() and not part.exists()
    files.download(files.SUDOKU_EXTREME, path)
    assert path.read_bytes() == CSV


def test_a_token_is_sent_and_never_shown(hub: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secretsecretsecret"
    with raising(DataError, "train.csv", files.SUDOKU_EXTREME):
        files.download(files.SUDOKU_EXTREME, tmp_path / "train.csv")
    monkeypatch.setenv("HF_TOKEN", "hf_anotheranotherone")
    with pytest.raises(DataError) as refused:
        files.download(files.SUDOKU_EXTREME, tmp_path / "train.csv")
    assert "another" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    files.download(files.SUDOKU_EXTREME, tmp_path / "train.csv")
    assert (tmp_path / "train.csv").read_bytes() == CSV


def test_the_hubs_own_cache_is_used(hub: Dataset, tmp_path: Path) -> None:
    huggingface_hub.hf_hub_download(
        files.SUDOKU_EXTREME,
        "train.csv",
        repo_type="dataset",
        endpoint=files.hub_address(),
        cache_dir=tmp_path / "cache",
    )
    fetched = sum(method == "GET" for method, _ in hub.asked)
    files.download(files.SUDOKU_EXTREME, tmp_path / "here" / "train.csv")
    assert (tmp_path / "here" / "train.csv").read_bytes() == CSV
    assert sum(method == "GET" for method, _ in hub.asked) == fetched


def test_a_file_that_the_hub_has_not_got(hub: Dataset, tmp_path: Path) -> None:
    with raising(DataError, "other.csv", files.SUDOKU_EXTREME, tmp_path / "other.csv"):
        files.download(files.SUDOKU_EXTREME, tmp_path / "other.csv")
    assert not (tmp_path / "other.csv").exists()


def test_without_a_network(hub: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), None) as closed:  # type: ignore[arg-type]
        port = closed.server_address[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with raising(DataError, files.SUDOKU_EXTREME, tmp_path / "x"):
        files.download(files.SUDOKU_EXTREME, tmp_path / "x")


def test_a_missing_client_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with raising(TaskError, "huggingface_hub", "[hub]"):
        files.sudoku_extreme(tmp_path, "train.csv")


def test_replacing_keeps_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with files.replacing(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError, match="stop"), files.replacing(path) as file:
        file.write(b"new")
        raise RuntimeError("stop")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_replacing_says_why_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raising(DataError, tmp_path / "file" / "below"), files.replacing(tmp_path / "file" / "below"):
        pass
    with raising(DataError, tmp_path / "full", os.strerror(28)), files.replacing(tmp_path / "full"):
        raise OSError(28, os.strerror(28))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
