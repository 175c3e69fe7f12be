"""Adds the fix to storage errors, from one table by error type."""

from __future__ import annotations

import re

from relay.app.messages.advice import command
from relay.app.messages.wording import size
from relay.core.errors import NoRoomHere, OfStore, StorageUnreachable
from relay.core.runs.archive import StoreFull
from storage.base import (
    BadAddress,
    BadSetting,
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
"""A store's message with advice of its own, which the general advice below would repeat."""
_INSTALLS = ". Install it"
"""A missing package: the address may be right."""
LOOK = f"Check the run with `{command('verify')}` and `{command('doctor')}`."
_HELPS: tuple[tuple[type[StoreError], str], ...] = (
    (BadSetting, "Correct it and run the same command again."),
    (BadAddress, "Correct storage.url or RELAY_STORE."),
    (QuotaExceeded, "Free space in the store or on the disk, then run the same command again."),
    (Denied, "Check the credentials and permissions of the store, then run the same command again."),
    (OutcomeUnknown, f"Check with `{command('status')}`, then run the same command again."),
    *((kind, LOOK) for kind in (Missing, TooLong, Corrupt, LostEntry)),
    (StoreError, "Check the network and the store, then run the same command again."),
)


def with_advice(error: OfStore) -> str:
    """The store, the failure and its fix."""
    happened = " ".join(sentence(error.error).split())
    text = error.worded(happened)
    if _INSTALLS in happened or (isinstance(error, StorageUnreachable) and _ADVISES.search(happened)):
        return text
    return f"{text} {next(advice for kind, advice in _HELPS if isinstance(error.error, kind))}"


def sentence(error: StoreError) -> str:
    """The storage error's own text; for a full disk or store it includes the fix."""
    match error:
        case NoRoomHere():
            return (
                f"{error.folder} has {size(error.free)} free ({error.reason}); a checkpoint needs "
                f"{size(error.needed)}. Free some space there, or set a folder on another disk with sync_dir=FOLDER, "
                f"and run again."
            )
        case StoreFull():
            return f"{error} If the store itself is full: `{command('gc', error.run, '--full')}`"
    return str(error)
