"""Turns what went wrong into an exit code and one paragraph, for people or as relay.error/1; recovers nothing."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relay.errors import Exit, RelayError
from relay.logs import close_log, open_log
from relay.redact import redact
from storage.base import (
    BadAddress,
    Corrupt,
    Denied,
    LostEntry,
    Missing,
    OutcomeUnknown,
    QuotaExceeded,
    StoreError,
    TooLong,
)

LOG_FOLDER = Path("sync") / "logs"
LOOK = "Look at the run with `rotate_accounts.py verify` and `rotate_accounts.py doctor`."
_STORE_ADVICE: tuple[tuple[type[StoreError], Exit, str], ...] = (
    (BadAddress, Exit.BAD_CONFIG, "Correct storage.url or RELAY_STORE."),
    (
        QuotaExceeded,
        Exit.STORAGE_UNREACHABLE,
        "Make room in the store or on the disk, then run it again.",
    ),
    (Denied, Exit.STORAGE_UNREACHABLE, "Check the credentials and permissions of the store, then run it again."),
    (OutcomeUnknown, Exit.UPLOAD_FAILED, "Look with `rotate_accounts.py status`, then run the same command again."),
    *((kind, Exit.BAD_DATA, LOOK) for kind in (Missing, TooLong, Corrupt, LostEntry)),
    (StoreError, Exit.STORAGE_UNREACHABLE, "Check the network and the store, then run the same command again."),
)


def explain(error: BaseException) -> tuple[int, str]:
    """(exit code, one paragraph) of an error a person can act on; anything else is a bug (1)."""
    if isinstance(error, RelayError):
        return int(error.exit_code), _one_line(error)
    if isinstance(error, StoreError):
        for kind, code, advice in _STORE_ADVICE:
            if isinstance(error, kind):
                return int(code), f"Storage: {_one_line(error)}. {advice}".replace("..", ".")
    return int(Exit.BUG), f"Unexpected {type(error).__name__}: {_one_line(error)}. This is a bug in trm-relay."


def log_bug(error: BaseException, cwd: Path, wall: float, secrets: Iterable[str]) -> Path | None:
    """Write the traceback (never its locals) to a log file; the path, or None where none can be written."""
    path = open_log(cwd / LOG_FOLDER, "error", wall, secrets)
    logging.getLogger("relay.cli").error("unexpected", exc_info=error)
    close_log()
    return path


def tell(code: int, kind: str, message: str, log: Path | None, as_json: bool, secrets: Iterable[str]) -> None:
    """The paragraph on stderr; under --json also one relay.error/1 document on stdout."""
    message = redact(message, secrets)
    print(f"{message} Traceback: {log}" if log else message, file=sys.stderr, flush=True)
    if as_json:
        document: dict[str, Any] = {
            "schema": "relay.error/1",
            "exit_code": code,
            "error": kind,
            "message": message,
            "log": str(log) if log else None,
        }
        print(json.dumps(document), flush=True)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
