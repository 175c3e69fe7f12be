"""Writes one log file a session under sync/, limited in number and size, with secrets masked."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

from relay.app.redact import RedactingFormatter

LOGGERS = ("relay", "storage")
KEEP = 20
"""Number of sessions whose logs stay: the file, the one before it if it was full, those of processes that followed."""
MAX_BYTES = 5_000_000
FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class LogFile(logging.handlers.RotatingFileHandler):
    """A log on a disk that may be full or gone. Lines that cannot be written are dropped."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def open_log(folder: Path, label: str, wall: float, secrets: Iterable[str] = ()) -> Path | None:
    """Send log lines to a new file and return its path; None if the folder is not writable.

    `wall`: unix seconds, for the name only. The newest 20 sessions' logs stay, at most 10 MB each: a full file is
    renamed to `….log.1` and replaces the previous one.
    """
    file = log_path(folder, label, wall)
    written = True
    handlers: list[logging.Handler] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handlers.append(LogFile(file, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", delay=True))
        _forget_old(folder)
    except OSError:
        written = False
    for handler in handlers:
        handler.setFormatter(RedactingFormatter(FORMAT, secrets))
    for name in LOGGERS:
        _replace_handlers(logging.getLogger(name), handlers)
    return file if written else None


def log_path(folder: Path, label: str, wall: float) -> Path:
    """The file of a session that began then."""
    return folder / f"{datetime.fromtimestamp(wall, UTC):%Y%m%dT%H%M%SZ}_{label}.log"


def close_log() -> None:
    """Flush and detach our handlers."""
    for name in LOGGERS:
        _replace_handlers(logging.getLogger(name), [])


def _replace_handlers(logger: logging.Logger, handlers: list[logging.Handler]) -> None:
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    for new in handlers or [logging.NullHandler()]:
        logger.addHandler(new)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _forget_old(folder: Path) -> None:
    sessions = sorted({path.name.partition(".log")[0] for path in folder.glob("*.log*")})
    for old in sessions[:-KEEP]:
        for part in folder.glob(f"{escape(old)}.log*"):
            part.unlink(missing_ok=True)
