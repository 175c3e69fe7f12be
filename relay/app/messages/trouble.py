"""What helps where storage fails: one table of advice for the storage errors; recovers nothing."""

from __future__ import annotations

import re

from relay.app.messages.advice import command
from relay.app.messages.wording import size
from relay.core.errors import NoRoomHere, OfStore, StorageUnreachable
from relay.core.runs.archive import StoreFull
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

_ADVISES = re.compile(r"\. (Ask|Check|Free|Give|Make|Replace|Set|Use|Wait)\b")
"""A store's message that itself says what to do: the table's general advice would say it twice."""
_INSTALLS = ". Install it"
"""What is missing is a package: the address may well be right."""
LOOK = f"Look at the run with `{command('verify')}` and `{command('doctor')}`."
_HELPS: tuple[tuple[type[StoreError], str], ...] = (
    (BadAddress, "Correct storage.url or RELAY_STORE."),
    (QuotaExceeded, "Make room in the store or on the disk, then run it again."),
    (Denied, "Check the credentials and permissions of the store, then run it again."),
    (OutcomeUnknown, f"Look with `{command('status')}`, then run the same command again."),
    *((kind, LOOK) for kind in (Missing, TooLong, Corrupt, LostEntry)),
    (StoreError, "Check the network and the store, then run the same command again."),
)


def advised(error: OfStore) -> str:
    """Which store, what happened there, what to do."""
    happened = " ".join(said(error.error).split())
    text = error.worded(happened)
    if _INSTALLS in happened or (isinstance(error, StorageUnreachable) and _ADVISES.search(happened)):
        return text
    return f"{text} {next(advice for kind, advice in _HELPS if isinstance(error.error, kind))}"


def said(error: StoreError) -> str:
    """What a storage error says to people, by itself."""
    match error:
        case NoRoomHere():
            return (
                f"{error.folder} cannot take a checkpoint of {size(error.needed)}: {size(error.free)} are free "
                f"({error.reason}). Free some space there, or name a folder on another disk with sync_dir=FOLDER, and "
                "run again."
            )
        case StoreFull():
            return f"{error} Where the store itself is full: `{command('gc', error.run, '--full')}`"
    return str(error)
