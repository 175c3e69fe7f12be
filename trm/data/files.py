"""Data files that appear whole or not at all, made here or downloaded."""

from __future__ import annotations

import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trm.data.dataset import DataError

SUDOKU_EXTREME = "datasets/sapientinc/sudoku-extreme/resolve/main"
TIMEOUT_S = 30
_BLOCK = 1 << 20

Report = Callable[[str], None]
"""Takes one line to print."""


def silent(_line: str) -> None:
    """Prints nothing."""


def whole_path(source: str) -> Path:
    """The path with the home folder in place of `~`; unchanged where that is unknown, so that reading it fails."""
    return Path(os.path.expanduser(source))  # noqa: PTH111 - Path's raises for a user without a home


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; on success it replaces `path` at once, on failure it is removed.

    Raises DataError if the folder cannot be written or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=".part", delete=False) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror or error}"
        raise DataError(f"{what}. Free some space or choose another data folder.") from error


def hub_address() -> str:
    """The hub, or the mirror named by HF_ENDPOINT, the variable the hub's own client reads."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def sudoku_extreme(folder: Path, name: str, report: Report = silent) -> Path:
    """The path of Sudoku-Extreme's `name` (train.csv or test.csv) in the folder, downloaded the first time."""
    path = folder / "sudoku-extreme" / name
    if not path.exists():
        report(f"Downloading Sudoku-Extreme's {name} to {path} …")
        download(f"{hub_address()}/{SUDOKU_EXTREME}/{name}", path)
    return path


def download(url: str, path: Path) -> None:
    """Store the content at an address. Raises DataError if it is incomplete; then nothing is stored."""
    try:
        response = urllib.request.urlopen(url, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise _no_download(url, path, error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _no_download(url, path, error) from error
    with response, replacing(path) as file:
        for block in _blocks(response, url, path):
            file.write(block)


def _blocks(response: http.client.HTTPResponse, url: str, path: Path) -> Iterator[bytes]:
    try:
        while block := response.read(_BLOCK):
            yield block
        if response.length:  # a read with a size does not report an early end
            raise http.client.IncompleteRead(b"", response.length)
    except (OSError, http.client.HTTPException) as error:
        raise _no_download(url, path, error) from error


def _no_download(url: str, path: Path, error: Exception) -> DataError:
    reason = getattr(error, "reason", None) or error
    return DataError(
        f"{url} could not be downloaded ({reason}). Connect this machine to the network and try again, put the file at "
        f"{path} yourself, or set data.train and data.test to CSV files or to 'generated'."
    )
