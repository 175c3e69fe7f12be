"""What the sign-in flows of the providers share: a person to ask, and errors about the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage.contract import StoreError


class BadAnswer(StoreError):
    """A file, a code or a key that the person gave cannot be used."""


@dataclass(frozen=True)
class Asked:
    """What a person may give before the first question; each provider reads its own part."""

    client: Path | None = None
    """Google: the file of the OAuth client, of the kind Desktop app."""
    app_key: str | None = None
    """Dropbox: the app's key, which is not a secret."""
    keys_only: bool = False
    """Hugging Face: ask for S3 credentials, and sign in to nothing."""


class Desk(Protocol):
    """The person who signs in, at a terminal or in a notebook's cell."""

    def tell(self, text: str) -> None:
        """Show a line."""
        ...

    def ask(self, prompt: str, *, secret: bool = False) -> str:
        """The answer, without blanks at its ends; a secret one is not shown while it is typed."""
        ...


def answered(desk: Desk, prompt: str, *, secret: bool = False) -> str:
    """An answer that is a code or a key: one printable word. Raises BadAnswer, which does not repeat it."""
    text = desk.ask(prompt, secret=secret).strip()
    if not text:
        raise BadAnswer("nothing was entered. Run the same command again.")
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise BadAnswer("the answer holds blanks or characters that no code has. Copy it again, as one line.")
    return text


def opens(desk: Desk, url: str, then: str) -> None:
    """Ask the person to open a page in any browser, on any machine."""
    desk.tell(f"Open this page in a browser, on any machine, and allow what it asks:\n{url}\n{then}")
