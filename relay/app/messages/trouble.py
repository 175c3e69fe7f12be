"""What each storage error means to a person: one table of exit codes and advice; recovers nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.app.messages.advice import command
from relay.app.messages.wording import size
from relay.core.errors import BadConfig, BadData, RelayError, StorageUnreachable, UploadFailed
from storage.base import (
    BadAddress,
    Corrupt,
    Denied,
    LostEntry,
    Missing,
    OutcomeUnknown,
    QuotaExceeded,
    Store,
    StoreError,
    TooLong,
)

_ADVISES = re.compile(r"\. (Ask|Check|Free|Give|Make|Replace|Set|Use|Wait)\b")
"""A store's message that itself says what to do: the table's general advice would say it twice."""
_INSTALLS = ". Install it"
"""What is missing is a package: the address may well be right."""
LOOK = f"Look at the run with `{command('verify')}` and `{command('doctor')}`."
_MEANINGS: tuple[tuple[type[StoreError], type[RelayError], str], ...] = (
    (BadAddress, BadConfig, "Correct storage.url or RELAY_STORE."),
    (QuotaExceeded, StorageUnreachable, "Make room in the store or on the disk, then run it again."),
    (Denied, StorageUnreachable, "Check the credentials and permissions of the store, then run it again."),
    (OutcomeUnknown, UploadFailed, f"Look with `{command('status')}`, then run the same command again."),
    *((kind, BadData, LOOK) for kind in (Missing, TooLong, Corrupt, LostEntry)),
    (StoreError, StorageUnreachable, "Check the network and the store, then run the same command again."),
)


@contextmanager
def speaking(store: Store, doing: str = "") -> Iterator[None]:
    """Storage errors of the block as errors a person can act on; `doing` says what could not be done because of it."""
    try:
        yield
    except StoreError as error:
        raise explained(error, store.address, doing) from error


def explained(error: StoreError, address: str = "", doing: str = "") -> RelayError:
    """The error of ours that a storage error means: which store, what happened there, what to do."""
    kind, advice = next((ours, advice) for theirs, ours, advice in _MEANINGS if isinstance(error, theirs))
    happened = " ".join(str(error).split())
    where = "Storage" if not address or address in happened else f"Storage {address}"
    where = "This machine's disk" if error.here else where
    begin = f"{doing}. {where}" if doing else where
    told = happened or type(error).__name__
    text = f"{begin}: {told if told.endswith(('.', '?', '!')) else f'{told}.'}"
    advised = _INSTALLS in happened or (kind is StorageUnreachable and _ADVISES.search(happened))
    return kind(text if advised else f"{text} {advice}")


@contextmanager
def telling_room(folder: Path, needed: int) -> Iterator[None]:
    """Where this machine's disk is full: how many bytes were `needed` in a folder, how many are free, what to do."""
    try:
        yield
    except QuotaExceeded as error:
        there = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
        if not error.here or there is None:
            raise
        told = QuotaExceeded(
            f"{folder} cannot take a checkpoint of {size(needed)}: {size(shutil.disk_usage(there).free)} are free "
            f"({_reason(error)}). Free some space there, or name a folder on another disk with sync_dir=FOLDER, and "
            "run again."
        )
        told.here = True
        raise told from error


def _reason(error: StoreError) -> str:
    cause = error.__cause__
    return cause.strerror or "full" if isinstance(cause, OSError) else "full"
