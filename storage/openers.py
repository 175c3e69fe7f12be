"""Which module opens which kind of address, each imported only when it is needed; opens nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from storage.base import BadAddress, Store


def _open_file(url: str, read_only: bool) -> Store:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadAddress(
            f"{url} is not a local folder: write file:///absolute/path with three slashes, or a plain path."
        )
    return open_path(unquote(parts.path), read_only)


def open_path(path: str, read_only: bool) -> Store:
    """The store in a folder."""
    from storage.local import LocalStore

    if not path.strip():
        raise BadAddress("the store address is empty: give a folder path, or file:///path.")
    return LocalStore(Path(path).expanduser(), read_only=read_only)


def _open_memory(url: str, read_only: bool) -> Store:
    from storage.memory import MemoryStore

    return MemoryStore(url.removeprefix("memory://"), read_only=read_only)


def _open_s3(url: str, read_only: bool) -> Store:
    from storage.s3 import open_s3

    return open_s3(url, read_only)


def _open_dropbox(url: str, read_only: bool) -> Store:
    from storage.dropbox import open_dropbox

    return open_dropbox(url, read_only)


def _open_drive(url: str, read_only: bool) -> Store:
    from storage.drive import open_drive

    return open_drive(url, read_only)


OPENERS: dict[str, Callable[[str, bool], Store]] = {
    "file": _open_file,
    "memory": _open_memory,
    "s3": _open_s3,
    "dropbox": _open_dropbox,
    "drive": _open_drive,
}
