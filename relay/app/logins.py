"""Signs in to a provider of storage for a person at a terminal or in a notebook's cell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from getpass import getpass
from pathlib import Path

from relay.app.terminal.streams import Streams
from relay.core.errors import BadConfig, StorageUnreachable, UsageError
from storage.base import BadAddress, StoreError
from storage.kinds import KINDS, SIGNED_IN, function
from storage.logins import Asked, BadAnswer, Desk


class Terminal:
    """Questions on stderr, answers from stdin."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def tell(self, text: str) -> None:
        """Neither masked nor folded: the address of a page must arrive whole, and holds public ids that look secret."""
        with self._streams.unmasked():
            print(text, file=sys.stderr, flush=True)

    def ask(self, prompt: str, *, secret: bool = False) -> str:
        if secret and sys.stdin.isatty():
            return getpass(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise UsageError("The input ended before an answer. Run it where you can type, or in a notebook's cell.")
        return line.strip()


class Cell:
    """Questions of a notebook's kernel, which shows a field below the cell."""

    def tell(self, text: str) -> None:
        print(text, flush=True)

    def ask(self, prompt: str, *, secret: bool = False) -> str:
        return (getpass if secret else input)(prompt).strip()


def log_in(
    service: str,
    desk: Desk,
    environ: Mapping[str, str],
    *,
    client: Path | None = None,
    app_key: str | None = None,
    keys_only: bool = False,
) -> dict[str, str]:
    """The variables that open stores of this service.

    Raises UsageError (2), BadConfig (78) for a missing package or a useless answer, StorageUnreachable (69).
    """
    if service not in SIGNED_IN:
        raise UsageError(f"There is no service {service[:40]!r} to sign in to. Known are {', '.join(SIGNED_IN)}.")
    asked = Asked(client, app_key or environ.get("DROPBOX_APP_KEY"), keys_only)
    try:
        return dict(function(KINDS[service].signs_in)(desk, asked))
    except (BadAddress, BadAnswer) as error:
        raise BadConfig(_sentence(error)) from error
    except StoreError as error:
        raise StorageUnreachable(_sentence(error)) from error


def _sentence(error: StoreError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
