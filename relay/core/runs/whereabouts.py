"""Stores that are folders: where they are, whether anybody has made them yet; knows no object."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from storage.oserrors import os_errors


def folder_of(address: str) -> Path | None:
    """The folder that is a store, None for other kinds."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def absent(address: str) -> bool:
    """Whether the store is a folder that nobody has made yet."""
    folder = folder_of(address)
    return folder is not None and not folder.exists()


@contextmanager
def beside(address: str) -> Iterator[Path]:
    """A passing folder on the disk where an absent store would be. Raises Denied where no folder can be made."""
    folder = folder_of(address)
    assert folder is not None
    there = next(path for path in folder.parents if path.exists())
    with ExitStack() as stack:
        with os_errors(folder, reading=False):
            scratch = stack.enter_context(TemporaryDirectory(prefix=".trm-relay-", dir=there))
        yield Path(scratch)
