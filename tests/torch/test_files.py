"""Files that appear whole or not at all, made here or fetched from a double of the hub on this machine."""

from __future__ import annotations

import os
import socketserver
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import file_download

from relay.torch import files
from relay.torch.faults import DataError, TaskError
from tests.facts import raising
from tests.torch.hubdouble import Dataset, serving
from trm.data.hub import INSTEAD, SUDOKU_EXTREME, sudoku_extreme

CSV = (Path(__file__).parents[1] / "data" / "sudoku" / "good.csv").read_bytes()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dataset]:
    with serving(Dataset(SUDOKU_EXTREME, {"train.csv": CSV}), tmp_path, monkeypatch) as dataset:
        yield dataset


def _fail(*_: object) -> None:
    """Ends a download in place of the wait before its client tries again."""
    raise OSError(28, os.strerror(28))


def test_downloads_once_and_counts_every_byte(hub: Dataset, tmp_path: Path) -> None:
    lines, seen = list[str](), list[tuple[str, int]]()
    counted = list[int]()

    def fetching(name: str, total: int) -> Callable[[int], object]:
        seen.append((name, total))
        return counted.append

    path = sudoku_extreme(tmp_path / "data", "train.csv", lines.append, fetching)
    assert path.read_bytes() == CSV and path == tmp_path / "data" / "sudoku-extreme" / "train.csv"
    assert seen == [("train.csv", len(CSV))] and sum(counted) == len(CSV)
    asked = len(hub.asked)
    assert sudoku_extreme(tmp_path / "data", "train.csv", lines.append) == path
    assert len(hub.asked) == asked, "a file that is here is not asked for"
    assert len(lines) == 1 and "train.csv" in lines[0]


def test_a_download_that_was_cut_is_continued_later(hub: Dataset, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "train.csv"
    hub.cut = 100
    with monkeypatch.context() as once:
        once.setattr(file_download.time, "sleep", _fail)  # what the client does before it tries again
        with raising(DataError, os.strerror(28), path, INSTEAD):
            files.download(SUDOKU_EXTREME, path, instead=INSTEAD)
    assert not path.exists(), "an incomplete file has another name"
    before, counted = len(hub.asked), list[int]()
    files.download(SUDOKU_EXTREME, path, lambda name, total: counted.append)
    assert path.read_bytes() == CSV and not list(tmp_path.glob("*.part"))
    ranges = {wanted for method, wanted in hub.asked[before:] if method == "GET"}
    assert ranges == {"bytes=100-"}
    assert sum(counted) == len(CSV), "the first bytes count, too"


def test_a_download_that_is_cut_goes_on_by_itself(hub: Dataset, tmp_path: Path) -> None:
    hub.cut = 100
    counted = list[int]()
    files.download(SUDOKU_EXTREME, tmp_path / "train.csv", lambda name, total: counted.append)
    assert (tmp_path / "train.csv").read_bytes() == CSV and sum(counted) == len(CSV)


def test_bytes_that_are_not_the_hubs_are_refused_and_not_kept(hub: Dataset, tmp_path: Path) -> None:
    path, hub.cut = tmp_path / "train.csv", 100
    with pytest.MonkeyPatch.context() as once:
        once.setattr(file_download.time, "sleep", _fail)
        with pytest.raises(DataError):
            files.download(SUDOKU_EXTREME, path)
    (part,) = tmp_path.glob("*.part")
    part.write_bytes(b"x" * 100)
    with raising(DataError, "hash"):
        files.download(SUDOKU_EXTREME, path)
    assert not path.exists() and not part.exists()
    files.download(SUDOKU_EXTREME, path)
    assert path.read_bytes() == CSV


def test_a_token_is_sent_and_never_shown(hub: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secretsecretsecret"
    with raising(DataError, "train.csv", SUDOKU_EXTREME):
        files.download(SUDOKU_EXTREME, tmp_path / "train.csv")
    monkeypatch.setenv("HF_TOKEN", "hf_anotheranotherone")
    with pytest.raises(DataError) as refused:
        files.download(SUDOKU_EXTREME, tmp_path / "train.csv")
    assert "another" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    files.download(SUDOKU_EXTREME, tmp_path / "train.csv")
    assert (tmp_path / "train.csv").read_bytes() == CSV


def test_the_hubs_own_cache_is_used(hub: Dataset, tmp_path: Path) -> None:
    huggingface_hub.hf_hub_download(
        SUDOKU_EXTREME,
        "train.csv",
        repo_type="dataset",
        endpoint=files.hub_address(),
        cache_dir=tmp_path / "cache",
    )
    fetched = sum(method == "GET" for method, _ in hub.asked)
    files.download(SUDOKU_EXTREME, tmp_path / "here" / "train.csv")
    assert (tmp_path / "here" / "train.csv").read_bytes() == CSV
    assert sum(method == "GET" for method, _ in hub.asked) == fetched


def test_a_file_that_the_hub_has_not_got(hub: Dataset, tmp_path: Path) -> None:
    with raising(DataError, "other.csv", SUDOKU_EXTREME, tmp_path / "other.csv"):
        files.download(SUDOKU_EXTREME, tmp_path / "other.csv")
    assert not (tmp_path / "other.csv").exists()


def test_without_a_network(hub: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), None) as closed:  # type: ignore[arg-type]
        port = closed.server_address[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with raising(DataError, SUDOKU_EXTREME, tmp_path / "x"):
        files.download(SUDOKU_EXTREME, tmp_path / "x")


def test_a_missing_client_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with raising(TaskError, "huggingface_hub", "[hub]"):
        sudoku_extreme(tmp_path, "train.csv")


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
