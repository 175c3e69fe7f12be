"""What each kind of storage promises and how the relay uses it; docs/contributing/backends.md shows this table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promises:
    """One backend's answers, each a complete phrase."""

    exclusive: str
    """How exactly one of several writers of one log slot wins."""
    unknown: str
    """How a write whose answer was lost is settled."""
    reads: str
    """Which writes a point read sees."""
    lists: str
    """The use of a listing."""
    clock: str
    """Whose time decides."""
    verified: str
    """How an upload is verified."""
    resumed: str
    """What remains after a kill during an upload, and what removes it."""
    limits: str
    """Largest atomic write, and other limits."""
    room: str
    """Whether free space is known."""


QUESTIONS = {
    "exclusive": "put-if-absent by",
    "unknown": "unknown outcome settled by",
    "reads": "a point read sees",
    "lists": "a listing is trusted for",
    "clock": "store clock",
    "verified": "an upload is verified by",
    "resumed": "after a kill during an upload",
    "limits": "limits",
    "room": "free space",
}
"""The row of each field."""

_ADVICE = "clean-up only: it may hide names, and safety never depends on it"
_NONCE = "reading the slot: every entry has its own nonce"

PROMISES: dict[str, Promises] = {
    "local": Promises(
        exclusive="a hard link to a finished, fsynced file, which fails if the name exists",
        unknown=_NONCE,
        reads="every write that has returned",
        lists=_ADVICE,
        clock="the disk's: the time of a file just written",
        verified="reading it back",
        resumed="a temporary file next to the name, removed a day later",
        limits="the file system's; a POSIX disk or share with hard links, of a kind below; no mounted cloud drive, no "
        "folder that a sync client copies",
        room="of the disk that holds the folder",
    ),
    "s3": Promises(
        exclusive="PutObject with If-None-Match: * (412 = taken), sent once, without the SDK's retries",
        unknown=f"{_NONCE}; 409 (a conflict) is not an answer and is retried",
        reads="every write that has returned (strong since 2020; other servers: tried by the self-test)",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="SHA-256 of the object or of each part, if the server refused a wrong one; otherwise reading it back",
        resumed="the server keeps its parts; the next attempt sends the others; gc discards the rest",
        limits="5 GiB in one request, 10,000 parts of at least 5 MiB; no append",
        room="not in the protocol",
    ),
    "dropbox": Promises(
        exclusive="files/upload in mode add, autorename off: other bytes at the path are a conflict",
        unknown=f"sending the same bytes again, which do not conflict with themselves; {_NONCE}",
        reads="every write that has returned (not documented for other accounts of a shared folder; raced at init)",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="Dropbox's content hash (SHA-256 over blocks of 4 MiB)",
        resumed="a note next to the file names the session; the next attempt continues; Dropbox keeps it 7 days",
        limits="one write at a time in a namespace; 150 MiB in one request, sessions beyond; names have no case",
        room="users/get_space_usage, of the account or its team",
    ),
    "drive": Promises(
        exclusive="creating a file at an id generated before (409 = taken); if ids are bound to a user, "
        "compare-and-set of one file by its etag",
        unknown=_NONCE,
        reads="by id: every write that has returned; names are never looked up",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="the SHA-256 that Drive computes; without one, reading it back",
        resumed="a note next to the file names the upload's URI; the next attempt continues; Drive keeps it a week",
        limits="500,000 files in the store's folder; an id is used once for ever",
        room="about.get, of the account that owns the file",
    ),
    "hf": Promises(
        exclusive="PutObject with If-None-Match: * (documented for PutObject; whether one of many wins: the self-test)",
        unknown=f"{_NONCE}; 409 (a conflict) is not an answer and is retried",
        reads="every write that has returned (not documented; tried by the self-test)",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="reading it back: the gateway accepts checksums and ignores them",
        resumed="the gateway keeps parts for 7 days; the next attempt sends the others if it lists them",
        limits="no user metadata, no versions; keys without //, ./ and ../",
        room="not in the protocol",
    ),
}
"""By kind of backend. A new backend needs an entry here and one in tests/storage/backend_table.py."""
