"""Rendered output that a test holds to a file: `make snapshots` writes the files again, and git shows what changed."""

from __future__ import annotations

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode


class TextFile(SingleFileSnapshotExtension):
    """A text as it is, in a file of its own, in `__snapshots__` next to the test."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"
