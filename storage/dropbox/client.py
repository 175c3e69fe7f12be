"""Calls the Dropbox SDK, each call on its own connection, and raises StoreErrors; does not know objects."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from storage.answers import Impossible, date_of
from storage.contract import (
    BadAddress,
    BadSetting,
    Denied,
    Exists,
    Expired,
    Missing,
    QuotaExceeded,
    StoreError,
    Throttled,
    Unavailable,
)
from storage.dropbox.credentials import DropboxCredentials
from storage.dropbox.place import DropboxAddress
from storage.guides import guide

BUSY_S = 1.0
"""Wait after `too_many_write_operations`, which names no time, seconds."""
LIMITED_S = 5.0
"""Wait after a 429 that names no time, seconds; the SDK's own default."""
_NONSENSE = (AttributeError, KeyError, TypeError, ValueError)
"""What the SDK raises for JSON of another form than Dropbox's."""
_SCOPE = re.compile(r"scope '?([a-z_]+\.[a-z.]+)'?")

_FULL = "the Dropbox that holds this folder is full. Free space there or get more, then run it again"
_TAGS: dict[str, tuple[type[StoreError], str]] = {
    "not_found": (Missing, "no file at this path"),
    "not_file": (Missing, "this is a folder, not an object"),
    "not_folder": (Missing, "this is not a folder"),
    "file": (Exists, "a file exists already"),
    "folder": (Denied, "a folder has this name. On Dropbox a name that was once a folder stays one"),
    "file_ancestor": (Denied, "a part of this path is an object, so it cannot be a folder; use another name"),
    "insufficient_space": (QuotaExceeded, _FULL),
    "team_folder_insufficient_space": (QuotaExceeded, _FULL),
    "member_folder_insufficient_space": (QuotaExceeded, _FULL),
    "upload_traffic_limit_reached": (QuotaExceeded, "this account's upload traffic for the month is used up"),
    "too_many_write_operations": (Throttled, "too many writes to this Dropbox folder at once"),
    "restricted_content": (Denied, "Dropbox blocks this content (a legal notice?)"),
    "no_write_permission": (Denied, "you may only read this folder. Ask its owner for edit permission"),
    "access_restricted": (Denied, "a team administrator has restricted this folder"),
    "operation_suppressed": (Denied, "Dropbox does not allow this at this path"),
    "locked": (Denied, "this file is locked in Dropbox; unlock it there"),
    "disallowed_name": (Denied, "Dropbox reserves this name; use another run or file name"),
    "malformed_path": (BadAddress, "Dropbox cannot read this path. Check the folder in the address"),
    "content_hash_mismatch": (Unavailable, "the bytes were damaged on the way"),
    "reset": (Unavailable, "Dropbox lost its position in a listing"),
    "payload_too_large": (StoreError, "this is too long for one request"),
}
"""By the innermost tag of an error union (dropbox/files.py: LookupError, WriteError, …)."""


def store_error(error: Exception, what: str, credentials: DropboxCredentials) -> StoreError:
    """The StoreError for an error of the SDK, of requests below it, or of parsing.

    `what` names the request and its target; of the credentials only the source is shown.
    """
    import requests
    from dropbox import exceptions

    if isinstance(error, exceptions.ApiError):
        return _refused(error, what)
    if isinstance(error, exceptions.AuthError):
        return _auth(error.error, what, credentials.source)
    if isinstance(error, exceptions.RateLimitError):
        return Throttled(f"{what}: Dropbox asks to wait.", float(error.backoff or LIMITED_S))
    if isinstance(error, exceptions.PathRootError):
        return Denied(f"{what}: this account cannot see the shared folder with that id. Accept its invitation first.")
    if isinstance(error, exceptions.InternalServerError):
        return Unavailable(f"{what}: Dropbox answered with a server error ({error.status_code}).")
    if isinstance(error, exceptions.HttpError):
        return _bad_request(error, what, credentials)
    if isinstance(error, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Unavailable(
            f"{what}: the connection is not Dropbox's own (its certificate is not trusted here). If your network "
            f"inspects TLS, set REQUESTS_CA_BUNDLE to its authority's certificate file."
        )
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return BadSetting(f"{what}: REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names no certificate file.")
    if isinstance(error, requests.RequestException):
        return Unavailable(f"{what}: no answer ({type(error).__name__}). Is the network up?")
    return _not_dropboxs(what, type(error).__name__)


def _not_dropboxs(what: str, why: str) -> Unavailable:
    return Unavailable(f"{what}: the answer is not Dropbox's ({why}). Is a proxy or login in the way?")


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


def _auth(union: Any, what: str, source: str) -> Denied:
    if union is not None and union.is_missing_scope():
        return Denied(f"{what}: {_scope(union.get_missing_scope().required_scope)}")
    if union is not None and union.is_expired_access_token():
        return Expired(
            f"{what}: the access token has expired. Set DROPBOX_REFRESH_TOKEN and DROPBOX_APP_KEY, which renew it by "
            f"themselves ({guide('dropbox')})."
        )
    if union is not None and union.is_invalid_access_token():
        return Expired(
            f"{what}: Dropbox does not know the token in {source}: mistyped or revoked. Make a new one and set it."
        )
    return Denied(
        f"{what}: Dropbox refuses the credentials in {source} ({'/'.join(tags(union)) or 'no reason given'})."
    )


def _scope(name: str) -> str:
    return (
        f"the token lacks the permission {name}. Set it in the App Console under Permissions, submit, then make a "
        "new token: an older one keeps the old permissions."
    )


def _bad_request(error: Any, what: str, credentials: DropboxCredentials) -> StoreError:
    """Statuses like 400 carry plain text, never a page; a missing scope of the app arrives this way too."""
    text = " ".join(credentials.masked(str(error.body or "")).split())[:300]
    if text.startswith("<") or error.status_code < 400:
        return _not_dropboxs(what, f"a page or redirect with status {error.status_code}")
    scope = _SCOPE.search(text)
    return Denied(f"{what}: {_scope(scope[1]) if scope else f'Dropbox refused ({error.status_code}): {text}'}")


TIMEOUT_S = 30.0
"""Timeout of a reply, seconds. An upload writes in small pieces, and each restarts it."""

T = TypeVar("T")


class DropboxClient:
    """Serves any number of threads. One SDK object with one `requests` session serves one call at a time.

    The SDK does not retry here (`max_retries_on_error=0`): one call is one request, so an answer belongs to that
    request. The exception is an expired access token: the SDK renews it and sends again; a 401 has no effect.
    """

    def __init__(
        self,
        credentials: DropboxCredentials,
        place: DropboxAddress,
        reload: Callable[[], DropboxCredentials] | None = None,
    ) -> None:
        """`reload` reads the credentials again, once for each request that Dropbox refuses for them."""
        self.credentials = credentials
        self._reload = reload
        self._place = place
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._heard = threading.local()
        self._first = self._connect()
        self._idle.append(self._first)

    def ask(self, what: str, call: Callable[[Any], T]) -> T:
        """The result of `call` with the SDK object; `what` begins the text of an error. Raises StoreError."""
        held = self.credentials
        try:
            return self._ask(what, call)
        except Expired:
            if not self._renewed(held):
                raise
        return self._ask(what, call)

    def fresh(self) -> DropboxClient:
        """A client with these credentials on its own connections."""
        return DropboxClient(self.credentials, self._place, self._reload)

    def _ask(self, what: str, call: Callable[[Any], T]) -> T:
        with self._lent() as sdk, self.translating(what):
            return call(sdk)

    def _renewed(self, held: DropboxCredentials) -> bool:
        """Whether there are other credentials than those `held` when Dropbox refused; reads them again if needed."""
        with self._lock:
            if self.credentials == held and self._reload is not None:
                with suppress(Denied):
                    self.credentials = self._reload()
                if self.credentials != held:
                    self._first = self._connect()
                    self._idle = [self._first]
            return self.credentials != held

    def heard(self) -> float:
        """The server's clock in the newest reply to this thread, unix seconds, whole. Raises Unavailable."""
        try:
            return date_of(getattr(self._heard, "date", None) or "")
        except Impossible as error:
            address = self._place.address
            raise Unavailable(f"{address}: Dropbox's reply has {error}. Is a proxy in the way?") from error

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        with self._lock:
            first, sdk = self._first, self._idle.pop() if self._idle else None
        sdk = sdk or self._another()
        try:
            yield sdk
        finally:
            with self._lock:
                if first is self._first:  # otherwise it has credentials that were replaced
                    self._idle.append(sdk)

    @contextmanager
    def translating(self, what: str) -> Iterator[None]:
        """Turns errors of the SDK, of the network and of invalid answers into StoreErrors."""
        from dropbox.exceptions import DropboxException
        from stone.backends.python_rsrc.stone_validators import ValidationError

        self._heard.reply = None
        try:
            yield
        except (DropboxException, OSError, ValidationError, AssertionError, *_NONSENSE) as error:
            if self._heard.reply is not None:
                self._heard.reply.close()  # the SDK may not have read the end of a download
            raise store_error(error, f"{self._place.address}: {what}", self.credentials) from error
        finally:
            self._heard.reply = None

    def _connect(self) -> Any:
        import dropbox

        sdk = dropbox.Dropbox(
            oauth2_access_token=self.credentials.access_token,
            oauth2_refresh_token=self.credentials.refresh_token,
            app_key=self.credentials.app_key,
            app_secret=self.credentials.app_secret,
            max_retries_on_error=0,
            max_retries_on_rate_limit=0,
            timeout=TIMEOUT_S,
            user_agent="trm-relay",
            session=self._session(),
        )
        if self._place.namespace is None:
            return sdk
        return sdk.with_path_root(dropbox.common.PathRoot.namespace_id(self._place.namespace))

    def _another(self) -> Any:
        """A copy of the first object, with its token, on its own session."""
        return self._first.clone(session=self._session())

    def _session(self) -> Any:
        import dropbox

        session = dropbox.create_session(max_connections=1)
        session.hooks["response"].append(self._hear)
        return session

    def _hear(self, reply: Any, *_: object, **__: object) -> None:
        self._heard.reply = reply
        self._heard.date = reply.headers.get("Date")
