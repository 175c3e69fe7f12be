"""Recognizes a Git LFS pointer: the three lines that a clone without Git LFS holds in place of a large file."""

from __future__ import annotations

from pathlib import Path

from relay.torch.faults import DataError
from storage.regular import regular

_BEGIN = b"version https://git-lfs.github.com/spec/"
_LONGEST = 1024
"""Bytes of a pointer, by Git LFS's own specification."""


def refuse_pointer(path: Path) -> None:
    """Raises DataError for a pointer. A file that cannot be read is left to the caller."""
    try:
        with regular(path).open("rb") as file:
            text = file.read(_LONGEST + 1)
    except OSError:
        return
    if text.startswith(_BEGIN) and len(text) <= _LONGEST:
        raise DataError(
            f"{path} is a Git LFS pointer, not the file itself. Fetch the file with `git lfs pull` in its repository, "
            f"or download it again."
        )
