"""A note beside a file, by which a later process goes on with its upload; a hint only, and knows no network."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class UploadNote:
    """Of one file. Not being able to keep it costs only time later."""

    def __init__(self, source: Path) -> None:
        self._path = source.with_name(f".{source.name}.upload")
        self._temporary = self._path.with_name(f"{self._path.name}.tmp")

    def keep(self, said: Mapping[str, object]) -> None:
        """Whole or not at all, for this user's eyes only: who has a session may write to it."""
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(said, file)
            self._temporary.replace(self._path)

    def read(self, limit: int) -> object:
        """What its first `limit` bytes say, whoever wrote them; None if it is not there or damaged."""
        try:
            with self._path.open("rb") as file:
                return json.loads(file.read(limit))
        except (OSError, ValueError, RecursionError):
            return None

    def drop(self) -> None:
        """The upload is over."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._temporary.unlink(missing_ok=True)  # of a process killed while it saved
