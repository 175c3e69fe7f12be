"""Files that appear whole or not at all, made here or fetched from a server on this machine."""

from __future__ import annotations

import os
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.facts import raising
from trm.data import files
from trm.data.dataset import DataError

CSV = (Path(__file__).parents[2] / "data" / "sudoku" / "good.csv").read_bytes()


class Hub(BaseHTTPRequestHandler):
    """Serves the CSV where the hub does, one file cut short, and one redirect."""

    def do_GET(self) -> None:
        where = {
            f"/{files.SUDOKU_EXTREME}/train.csv": (302, b""),
            "/elsewhere": (200, CSV),
            "/short": (200, CSV[:100]),
        }
        status, body = where.get(self.path, (404, b""))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(CSV) if status == 200 else 0))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_downloads_once(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address + "/")
    lines: list[str] = []
    path = files.sudoku_extreme(tmp_path, "train.csv", lines.append)
    assert path.read_bytes() == CSV
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.setattr(files, "download", None)
    assert files.sudoku_extreme(tmp_path, "train.csv", lines.append) == path
    assert len(lines) == 1 and "train.csv" in lines[0]


@pytest.mark.parametrize(("where", "reason"), [("/nothing", "Not Found"), ("/short", "IncompleteRead")])
def test_a_failed_download_leaves_nothing(tmp_path: Path, address: str, where: str, reason: str) -> None:
    with raising(DataError, reason, tmp_path / "train.csv", "data.train"):
        files.download(address + where, tmp_path / "train.csv")
    assert not list(tmp_path.iterdir())


def test_offline_and_nonsense_addresses(tmp_path: Path) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), None) as closed:  # type: ignore[arg-type]
        port = closed.server_address[1]
    for where in (f"http://127.0.0.1:{port}/x", "no address"):
        with raising(DataError, where, tmp_path / "x"):
            files.download(where, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_hub_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert files.hub_address() == "https://huggingface.co"


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
