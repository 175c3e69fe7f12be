"""Buckets, S3 credentials, tokens and sign-ins of the fake Hugging Face; knows no routes."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field

from tests.storage.s3.servers import KEY, SECRET


@dataclass(frozen=True)
class Object:
    """What a key holds."""

    data: bytes
    modified: float
    etag: str


@dataclass
class Upload:
    """An upload in parts."""

    key: str
    begun: float
    parts: dict[int, Object] = field(default_factory=dict)


@dataclass
class Bucket:
    """A bucket; new ones are public unless asked otherwise."""

    private: bool
    objects: dict[str, Object] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)


@dataclass
class World:
    """Everything there is. Its lock is held while anything in it is read or changed."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=lambda: {KEY: SECRET})
    """Secret by access key id. One pair is that of every S3 server of these tests."""
    tokens: dict[str, str] = field(default_factory=dict)
    """User by token."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Sign-ins by device code: 'pending' until the first question, then the outcome."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(host, method and path, what was in Authorization: "", "token" or "signed")."""
    lists_uploads: bool = True
    """Whether the gateway answers ListMultipartUploads and ListParts, which its documentation does not mention."""
    down: bool = False
    """Whether the Hub's own pages fail; the gateway goes on."""
    outcome: str = "access_denied"
    """What a person does with a sign-in after its first question: a user who allows it, or an error."""

    def now(self) -> float:
        return time.time()

    def token(self, user: str) -> str:
        """A fresh token of a user."""
        made = f"hf_{secrets.token_hex(17)}"
        self.tokens[made] = user
        return made

    def key(self) -> tuple[str, str]:
        """Fresh S3 credentials, as the page of the tokens makes them."""
        made = f"HFAK{secrets.token_hex(8).upper()}"
        self.keys[made] = secrets.token_urlsafe(30)
        return made, self.keys[made]
