"""Maps an error to an exit code and one paragraph, as text or relay.error/1."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relay.app.machine.logs import close_log, open_log
from relay.app.messages.errors import paragraph
from relay.app.messages.wording import printable
from relay.app.redact import redact
from relay.app.terminal.color import colored, with_error
from relay.app.terminal.paragraphs import folded_for
from relay.core.errors import KINDS, Exit, RelayError, of_store
from relay.core.resources import exhausted
from storage.base import StoreError

STOPPED = "Stopped"
"""Value of `error` for an exit code that is not an error: a signal came before there was a session."""
LOG_FOLDER = Path("sync") / "logs"


def explain(error: BaseException) -> tuple[int, str]:
    """Return (exit code, one paragraph) of a RelayError, a StoreError or a limit of this machine; else a bug (1)."""
    error = exhausted(error) or error
    if isinstance(error, RelayError):
        return int(error.exit_code), _one_line(paragraph(error))
    if isinstance(error, StoreError):
        return explain(of_store(error))
    return int(Exit.BUG), f"Unexpected {type(error).__name__}: {_one_line(str(error))}. This is a bug in trm-relay."


def log_bug(error: BaseException, cwd: Path, wall: float, secrets: Iterable[str]) -> Path | None:
    """Write the traceback (never its locals) to a log file; returns its path, None if it cannot be written."""
    path = open_log(cwd / LOG_FOLDER, "error", wall, secrets)
    logging.getLogger("relay.cli").error("unexpected", exc_info=error)
    close_log()
    return path


def tell(code: int, message: str, log: Path | None, as_json: bool, secrets: Iterable[str]) -> None:
    """Print the paragraph on stderr; with `as_json` also one relay.error/1 document on stdout."""
    message = printable(redact(message, secrets))
    shown = f"{message} Traceback: {log}" if log else message
    print(colored(folded_for(sys.stderr, shown), sys.stderr, with_error), file=sys.stderr, flush=True)
    if as_json:
        document: dict[str, Any] = {
            "schema": "relay.error/1",
            "exit_code": code,
            "error": KINDS.get(code, STOPPED),
            "message": message,
            "log": str(log) if log else None,
        }
        print(json.dumps(document), flush=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())
