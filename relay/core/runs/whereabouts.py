"""What there is where the run asked for is not, in words; asks a folder whether it is there, knows no object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from relay.core.names import nearest
from storage.oserrors import os_errors

SHOWN = 10
NOWHERE = "the store does not exist yet; the first run or register makes it"


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


def missing(project: str, run: str, known: Sequence[tuple[str, str]], nowhere: bool = False) -> str:
    """What the store holds instead of this run; `known` are the runs in it, oldest first, `nowhere`: it is absent."""
    if nowhere:
        return NOWHERE
    if not known:
        return "this store holds no run yet"
    others = [name if where == project else f"{where}/{name}" for where, name in known]
    listed = f"{'… ' if len(others) > SHOWN else ''}{', '.join(others[-SHOWN:])}"
    near = nearest(run, others)
    return f"this store holds no run {run}; it holds: {listed}{f'. Did you mean {near}?' if near else ''}"
