"""Turns the exceptions of Google's packages into StoreErrors with advice."""

from __future__ import annotations

import json
import ssl
from typing import Any

from storage.answers import seconds_to_wait
from storage.contract import (
    BadAddress,
    Denied,
    Exists,
    Expired,
    Missing,
    QuotaExceeded,
    StoreError,
    Throttled,
    Unavailable,
)
from storage.drive.credentials import NARROW, OWN, DriveCredentials
from storage.guides import guide

LIMITED_S = 5.0
"""Wait after a rate limit that names no time, seconds."""
_LONGEST_S = 300.0


class UsedUp(Denied):
    """Drive refuses the id for ever: its file was deleted (400 invalid)."""


class NotOurs(BadAddress):
    """Drive refuses the id to this account (400 fileIdNotUsable)."""


class NotAllowed(Denied):
    """This account lacks the permission for this file."""


class Changed(Unavailable):
    """The file has changed since its etag was read (412)."""


_FULL = "the Google account that owns this is full (the bin counts too). Free space there or get more"
_REASONS: dict[str, tuple[type[StoreError], str]] = {
    "notFound": (Missing, "no file with this id, or this token may not see it"),
    "fileIdInUse": (Exists, "a file exists already"),
    "fileIdNotUsable": (
        NotOurs,
        "Google refuses this account an id that another account's client requested. Use one "
        f"token for everybody, or ask a member who can write to change the store's way ({guide('drive')})",
    ),
    "conditionNotMet": (Changed, "another client wrote at the same moment"),
    "storageQuotaExceeded": (QuotaExceeded, _FULL),
    "teamDriveFileLimitExceeded": (QuotaExceeded, "the shared drive has reached its item limit"),
    "numChildrenInNonRootLimitExceeded": (QuotaExceeded, "the folder has reached its item limit. Use a new store"),
    "dailyLimitExceeded": (QuotaExceeded, "the Google Cloud project has used up its requests for today"),
    "userRateLimitExceeded": (Throttled, "too many requests of this account"),
    "rateLimitExceeded": (Throttled, "too many requests"),
    "sharingRateLimitExceeded": (Throttled, "too many requests"),
    "accessNotConfigured": (Denied, "the Drive API is off in the Google Cloud project of this token. Enable it there"),
    "insufficientPermissions": (Denied, f"the token lacks the permission {NARROW.rpartition('/')[2]}. Make a new one"),
    "insufficientFilePermissions": (NotAllowed, "this account may not change it. Ask its owner for edit permission"),
    "insufficientParentPermissions": (Denied, "this account may not add files here. Ask the folder's owner"),
    "appNotAuthorizedToFile": (Denied, "another OAuth client or account made it, and a narrow token cannot change it"),
    "domainPolicy": (Denied, "the administrator of this Google domain has turned Drive apps off"),
    "cannotDownloadAbusiveFile": (Denied, "Google takes it for malware; only its owner can read it"),
    "fileNotDownloadable": (Denied, "it is a Google document or a shortcut, not a file of bytes"),
    "parentNotAFolder": (BadAddress, "the address does not name a folder. Use the address that `init` printed"),
}


def store_error(error: Exception, what: str, credentials: DriveCredentials) -> StoreError:
    """The StoreError for an error of the SDK, of google-auth or of the network below.

    `what` names the request and its target; of the credentials only the source is shown.
    """
    from google.auth import exceptions as auth
    from googleapiclient.errors import HttpError

    if isinstance(error, HttpError):
        return refused(error.resp, error.content, what, credentials)
    if _is_tls(error):
        return Unavailable(
            f"{what}: the connection is not Google's own (its certificate is not trusted here). If your network "
            f"inspects TLS, set HTTPLIB2_CA_CERTS to its authority's certificate file."
        )
    if isinstance(error, auth.TransportError):
        return Unavailable(f"{what}: no answer from Google's sign-in. Is the network up?")
    if isinstance(error, auth.RefreshError):
        return _refresh(error, what, credentials)
    if isinstance(error, auth.GoogleAuthError):
        return Denied(f"{what}: {credentials.source} gives no usable credentials ({type(error).__name__}).")
    if isinstance(error, OSError) or type(error).__module__.startswith(("httplib2", "http.")):
        return Unavailable(f"{what}: no answer ({type(error).__name__}). Is the network up?")
    return _not_drives(what, type(error).__name__)


def _not_drives(what: str, why: str) -> Unavailable:
    return Unavailable(f"{what}: the answer is not Drive's ({why}). Is a proxy or login in the way?")


def _is_tls(error: BaseException | None) -> bool:
    """Whether a certificate was refused; google-auth wraps the error of the connection."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def refused(reply: Any, content: bytes, what: str, credentials: DriveCredentials) -> StoreError:
    """The StoreError for a status of 300 or more. The reason decides first: one status has many meanings."""
    status, (reason, message) = int(reply.status), _reason(content)
    if reason in _REASONS:
        kind, text = _REASONS[reason]
        if kind is Throttled:
            return Throttled(f"{what}: {text}; Google asks to wait.", wait_s(reply))
        if reason == "storageQuotaExceeded" and (credentials.kind == "service" or "Service Account" in message):
            text = (
                f"a service account owns no storage. Use a person's token ({guide('drive')}), or a folder in a shared "
                "drive"
            )
        return kind(f"{what}: {text}.")
    if status == 400 and reason == "invalid":
        return UsedUp(f"{what}: Drive refuses this id: its file was deleted.")
    if status < 400 or (status < 429 and not reason and _is_page(content)):
        return _not_drives(what, f"a page or redirect with status {status}")
    return _by_status(status, f"{what}: ", credentials.masked(message) or reason, wait_s(reply), credentials)


def wait_s(reply: Any) -> float:
    """Seconds from Retry-After, a number or a date."""
    return seconds_to_wait(str(reply.get("retry-after", "")), _LONGEST_S, LIMITED_S)


def _by_status(status: int, begin: str, why: str, wait: float, credentials: DriveCredentials) -> StoreError:
    if status == 429:
        return Throttled(f"{begin}Google asks to wait.", wait)
    if status >= 500 or status == 408:
        return Unavailable(f"{begin}Google answered with a server error ({status}).")
    if status == 401:
        return Expired(f"{begin}Google refuses the token in {credentials.source}: expired or revoked.")
    if status in (404, 410):
        return _not_drives(begin.removesuffix(": "), f"status {status}")
    if status == 409:
        return Unavailable(f"{begin}a conflict without a winner.")
    return Denied(f"{begin}Google refused ({status}): {' '.join(why.split())[:300] or 'no reason given'}")


def _reason(content: bytes) -> tuple[str, str]:
    """The first reason in an error's JSON, and its message; both empty if there is none."""
    try:
        error = json.loads(content)["error"]
        items = error.get("errors") or [{}]
        return str(items[0].get("reason", "")), str(error.get("message", ""))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "", content[:300].decode("utf-8", "replace")


def _is_page(content: bytes) -> bool:
    """Whether an answer is HTML, and not the JSON or plain text of Drive."""
    return content.lstrip()[:1] == b"<"


def _refresh(error: Any, what: str, credentials: DriveCredentials) -> StoreError:
    if error.retryable:
        return Unavailable(f"{what}: Google's sign-in is out of service.")
    text = credentials.masked(str(error.args[0] if error.args else ""))
    if credentials.kind != "colab" and not (isinstance(error.args[-1], dict) and error.args[-1].get("error")):
        return _not_drives(what, "not one of Google's sign-in")
    if credentials.kind == "service":
        return Expired(f"{what}: Google refuses the service account's key in {credentials.source} ({text[:100]}).")
    if "invalid_grant" in text:
        return Expired(
            f"{what}: the token in {credentials.source} has expired or was revoked. A token of a client in testing "
            "lives for 7 days: set the client's consent screen to In production, then make a new token "
            f"({guide('drive')})."
        )
    if "invalid_client" in text or "unauthorized_client" in text:
        return Expired(
            f"{what}: Google does not know the OAuth client in {credentials.source}. Copy the token file again."
        )
    if credentials.kind == "colab":
        return Expired(f"{what}: Colab's sign-in is over. Run the cell again, or set {OWN}.")
    return Expired(f"{what}: Google refuses the token in {credentials.source} ({text[:100]}).")
