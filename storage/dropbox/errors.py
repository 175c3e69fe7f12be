"""Turns what the Dropbox SDK raises into StoreErrors that say what to do; decides nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from storage.contract import (
    BadAddress,
    Denied,
    Exists,
    Missing,
    QuotaExceeded,
    StoreError,
    Throttled,
    Unavailable,
)
from storage.dropbox.credentials import Credentials

BUSY_S = 1.0
"""Seconds to wait after `too_many_write_operations`, which names no time."""
LIMITED_S = 5.0
"""Seconds to wait after a 429 that names no time; the SDK's own default."""
_SCOPE = re.compile(r"scope '?([a-z_]+\.[a-z.]+)'?")

_FULL = "the Dropbox that holds this folder is full. Make room there or get more, then run it again"
_TAGS: dict[str, tuple[type[StoreError], str]] = {
    "not_found": (Missing, "there is nothing at this path"),
    "not_file": (Missing, "this is a folder, not an object"),
    "not_folder": (Missing, "this is no folder"),
    "file": (Exists, "something is there already"),
    "folder": (Denied, "a folder of this name is there. On Dropbox a name that was once a folder stays one"),
    "file_ancestor": (Denied, "a part of this path is an object, so it cannot be a folder; use another name"),
    "insufficient_space": (QuotaExceeded, _FULL),
    "team_folder_insufficient_space": (QuotaExceeded, _FULL),
    "member_folder_insufficient_space": (QuotaExceeded, _FULL),
    "upload_traffic_limit_reached": (QuotaExceeded, "this account's upload traffic for the month is used up"),
    "too_many_write_operations": (Throttled, "too many writes to this Dropbox folder at once"),
    "restricted_content": (Denied, "Dropbox restricts this content (a legal notice?) and hands it to nobody"),
    "no_write_permission": (Denied, "you may read this folder but not write. Ask its owner to let you edit"),
    "access_restricted": (Denied, "a team administrator has restricted this folder"),
    "operation_suppressed": (Denied, "Dropbox does not allow this at this path"),
    "locked": (Denied, "somebody has locked this file in Dropbox; unlock it there"),
    "disallowed_name": (Denied, "Dropbox keeps this name for itself; use another run or file name"),
    "malformed_path": (BadAddress, "Dropbox cannot read this path. Check the folder in the address"),
    "content_hash_mismatch": (Unavailable, "the bytes were damaged on the way"),
    "reset": (Unavailable, "Dropbox lost its place in a listing"),
    "payload_too_large": (StoreError, "this is too long for one request"),
}
"""By the innermost tag of an error union (dropbox/files.py: LookupError, WriteError, …)."""


def told(error: Exception, what: str, credentials: Credentials) -> StoreError:
    """The StoreError that an error of the SDK, of requests below it, or of its parsing means.

    `what` says what was asked and where; of the credentials only their source is shown.
    """
    import requests
    from dropbox import exceptions

    if isinstance(error, exceptions.ApiError):
        return _refused(error, what)
    if isinstance(error, exceptions.AuthError):
        return Denied(f"{what}: {_auth(error.error, credentials.source)}")
    if isinstance(error, exceptions.RateLimitError):
        return Throttled(f"{what}: Dropbox asks to wait.", float(error.backoff or LIMITED_S))
    if isinstance(error, exceptions.PathRootError):
        return Denied(f"{what}: this account cannot see the shared folder with that id. Accept its invitation first.")
    if isinstance(error, exceptions.InternalServerError):
        return Unavailable(f"{what}: Dropbox answered with an error of its own ({error.status_code}).")
    if isinstance(error, exceptions.HttpError):
        return _bad_request(error, what, credentials)
    if isinstance(error, requests.RequestException):
        return Unavailable(f"{what}: no answer ({type(error).__name__}). Is the network up?")
    return Unavailable(f"{what}: the answer is not Dropbox's ({type(error).__name__}). Is a proxy or login in the way?")


def tags(union: Any) -> Iterator[str]:
    """The tags of an error union from the outside in."""
    while getattr(union, "_tag", None):
        yield union._tag
        union = union._value
        union = getattr(union, "reason", union)


def _refused(error: Any, what: str) -> StoreError:
    path = list(tags(error.error))
    kind, text = _TAGS.get(path[-1] if path else "", (Unavailable, f"Dropbox refused: {'/'.join(path) or 'no reason'}"))
    return Throttled(f"{what}: {text}.", BUSY_S) if kind is Throttled else kind(f"{what}: {text}.")


def _auth(union: Any, source: str) -> str:
    if union is not None and union.is_missing_scope():
        return _scope(union.get_missing_scope().required_scope)
    if union is not None and union.is_expired_access_token():
        return (
            "the access token has expired. Set DROPBOX_REFRESH_TOKEN and DROPBOX_APP_KEY, which renew it by "
            "themselves (docs/how-to/dropbox.md)."
        )
    if union is not None and union.is_invalid_access_token():
        return f"Dropbox does not know the token in {source}: mistyped, or revoked. Make a new one and set it."
    return f"Dropbox does not accept the credentials in {source} ({'/'.join(tags(union)) or 'no reason given'})."


def _scope(name: str) -> str:
    return (
        f"the token lacks the permission {name}. Tick it in the App Console under Permissions, submit, then make a "
        "new token: one made before keeps the old permissions."
    )


def _bad_request(error: Any, what: str, credentials: Credentials) -> StoreError:
    """400 and the like carry plain text; the missing scope of an app comes in this way too."""
    text = " ".join(credentials.masked(str(error.body or "")).split())[:300]
    scope = _SCOPE.search(text)
    return Denied(f"{what}: {_scope(scope[1]) if scope else f'Dropbox refused ({error.status_code}): {text}'}")
