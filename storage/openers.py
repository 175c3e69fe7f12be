"""Which module opens which kind of address, each imported only when it is needed; opens nothing by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from storage.base import BadAddress, Store

_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_DROPPED = re.compile(r"[\t\r\n]")
"""What urlsplit takes out of an address without a word: the store would lie elsewhere."""


def is_address(text: str) -> bool:
    """Whether it is meant as an address, as `file:/x` and `C:\\x` are too; else it is a plain path."""
    return _KIND.match(text) is not None


def refuse_misspelt(text: str) -> None:
    """Raises BadAddress for what begins as an address does and is none: a folder of that name is never meant."""
    if not (kind := _KIND.match(text)):
        return
    known = f"Write {kind[1].lower()}:// with two slashes" if kind[1].lower() in OPENERS else "Known are " + KNOWN
    raise BadAddress(f"{text} is no store address. {known}; for a folder of that name write ./{text}.")


def _open_file(url: str, read_only: bool) -> Store:
    if _DROPPED.search(url.strip()):
        raise BadAddress(f"{url!r} holds a tab or the end of a line. Copy the address again, all of it on one line.")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise BadAddress(
            f"{url} is not a local folder: write file:///absolute/path with three slashes, or a plain path."
        )
    return open_path(unquote(parts.path, errors="surrogateescape"), read_only)  # as Path.as_uri writes them


def open_path(path: str, read_only: bool) -> Store:
    """The store in a folder."""
    from storage.local import LocalStore

    if not path.strip():
        raise BadAddress("the store address is empty: give a folder path, or file:///path.")
    try:
        folder = Path(path).expanduser()
    except RuntimeError as error:
        raise BadAddress(f"{path}: nobody knows that home folder. Write the whole path.") from error
    return LocalStore(folder, read_only=read_only)


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
KNOWN = ", ".join(f"{name}://" for name in OPENERS) + " and plain folder paths"
