"""What each kind of storage promises and how the relay gets it from there: declared here, shown in docs/backends.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promises:
    """One backend's answers, each a phrase that stands alone."""

    exclusive: str
    """How of several writers of one log slot exactly one wins."""
    unknown: str
    """How a write whose answer was lost is settled."""
    reads: str
    """What a point read sees."""
    lists: str
    """What a listing is trusted for."""
    clock: str
    """Whose time decides."""
    verified: str
    """How a file that was sent is known to have arrived."""
    resumed: str
    """What is left of an upload that was killed, and who clears it away."""
    limits: str
    """Largest atomic write, and what else is bounded."""
    room: str
    """Whether free space can be told."""


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

_ADVICE = "clean-up only: it may hide, and nothing safe depends on it"
_NONCE = "reading the slot: every entry holds a nonce of its own"

PROMISES: dict[str, Promises] = {
    "local": Promises(
        exclusive="a hard link to a finished, fsynced file, which fails if the name exists",
        unknown=_NONCE,
        reads="every write that has returned",
        lists=_ADVICE,
        clock="the disk's: the time of a file just written",
        verified="reading it back",
        resumed="a temporary file beside the name, swept a day later",
        limits="the file system's; a POSIX disk or share with hard links, no mounted cloud drive",
        room="of the disk that holds the folder",
    ),
    "s3": Promises(
        exclusive="PutObject with If-None-Match: * (412 = taken), sent once, without the SDK's retries",
        unknown=f"{_NONCE}; 409 (a conflict) is no answer and is asked again",
        reads="every write that has returned (strong since 2020; other servers: tried by the self-test)",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="SHA-256 of the object or of each part, from a server that refused a wrong one; else reading it back",
        resumed="the server keeps the parts it has; the next attempt asks and sends the others; gc gives up the rest",
        limits="5 GiB in one request, 10,000 parts of at least 5 MiB; nothing is appended to",
        room="not told by the protocol",
    ),
    "dropbox": Promises(
        exclusive="files/upload in mode add, autorename off: other bytes at the path are a conflict",
        unknown=f"sending the same bytes again, which is no conflict with themselves; {_NONCE}",
        reads="every write that has returned (not documented for other accounts of a shared folder; raced at init)",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="Dropbox's content hash (SHA-256 over blocks of 4 MiB)",
        resumed="a note beside the file names the session; the next attempt goes on; Dropbox forgets it in 7 days",
        limits="one write at a time in a namespace; 150 MiB in one request, sessions beyond; names have no case",
        room="users/get_space_usage, of the account or its team",
    ),
    "drive": Promises(
        exclusive="creating a file at an id generated before (409 = taken); where ids are bound to a user, "
        "compare-and-set of one file by its etag",
        unknown=_NONCE,
        reads="by id: every write that has returned; names are never looked up",
        lists=_ADVICE,
        clock="the Date of a reply",
        verified="the SHA-256 that Drive computes; where it tells none, reading it back",
        resumed="a note beside the file names the upload's URI; the next attempt goes on; Drive forgets it in a week",
        limits="500,000 files in the store's folder; an id is used once for ever",
        room="about.get, of the account that owns the file",
    ),
}
"""By kind of backend. A backend joins with an entry here and one in tests/storage/backend_table.py."""
