"""What a process that will be killed does; a module of its own, so that another process can import it."""

from __future__ import annotations

from pathlib import Path

from storage.base import open_store
from storage.s3 import multipart, store
from storage.transfer import upload


def send(address: str, path: Path, part: int) -> None:
    """Upload a file in parts of `part` bytes, one after another."""
    multipart.PART = store.IN_PARTS = part
    multipart.SENDERS = 2
    upload(open_store(address), path.parent, {path.name: "m"})
