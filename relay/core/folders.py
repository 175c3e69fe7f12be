"""Folders of this machine and this user: where they are, and whether they can be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from relay.core.errors import BadConfig


class FolderRefused(BadConfig):
    """The folder for this machine's checkpoints is not writable."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"Checkpoints cannot be written to {folder}: {why}.")
        self.folder, self.why = folder, why


class NoScratch(BadConfig):
    """This machine has no folder for temporary files."""

    def __init__(self) -> None:
        super().__init__("This machine has no folder for temporary files that this user can write.")


def home_folder() -> Path | None:
    """This user's home folder; None without HOME and without an entry in the system's list of users, as in containers
    that run under any user id."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def cache_folder() -> Path | None:
    """`~/.cache/trm-relay`, for what the sessions of this machine know of each other; None without a home folder."""
    home = home_folder()
    return None if home is None else home / ".cache" / "trm-relay"


def config_folder(environ: Mapping[str, str]) -> Path | None:
    """The relay's configuration folder of this user; None without a home folder."""
    if environ.get("XDG_CONFIG_HOME"):
        return Path(environ["XDG_CONFIG_HOME"]) / "trm-relay"
    home = Path(environ["HOME"]) if environ.get("HOME") else home_folder()
    return None if home is None else home / ".config" / "trm-relay"


def try_folder(folder: Path, make: bool = True) -> None:
    """Write and remove a small file, durably, to find a failing disk early. Raises FolderRefused (78).

    A folder that does not exist is made, or with `make=False` tried where it would be.
    """
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder)
        else:
            with _beside(folder) as there:
                _write(there)
    except OSError as error:
        raise FolderRefused(folder, str(error.strerror)) from error


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """The folder, or if it does not exist a temporary one in the nearest that does."""
    parts = (folder, *folder.parents)
    there = next(path for path in parts if os.path.exists(path))  # noqa: PTH110 - Path's own raises in a closed folder
    if there == folder:
        yield there
    else:
        with tempfile.TemporaryDirectory(prefix=".trm-relay-", dir=there) as scratch:
            yield Path(scratch)


def _write(folder: Path) -> None:
    path = folder / "probe.tmp"
    with path.open("wb") as file:
        file.write(b"probe")
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed afterwards. Raises NoScratch (78)."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise NoScratch from error
    with tempfile.TemporaryDirectory(prefix="trm-relay-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)
