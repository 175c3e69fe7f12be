"""Calls of the Dropbox SDK, each on a connection of its own, their errors told as StoreErrors; knows no objects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from storage.contract import Unavailable
from storage.dropbox.credentials import Credentials
from storage.dropbox.errors import told
from storage.dropbox.place import Place

TIMEOUT_S = 30.0
"""Longest silence of the server. An upload writes in small pieces, each of which starts it anew."""

T = TypeVar("T")


class Client:
    """Any number of threads may ask. One SDK object with one `requests` session serves one call at a time.

    The SDK retries nothing here (`max_retries_on_error=0`): one call is one request, so that an answer is an answer
    to it. Only an expired access token is renewed by the SDK and the request sent again; a 401 has no effect.
    """

    def __init__(self, credentials: Credentials, place: Place) -> None:
        self.credentials = credentials
        self._place = place
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._heard = threading.local()
        self._first = self._connect()
        self._idle.append(self._first)

    def ask(self, what: str, call: Callable[[Any], T]) -> T:
        """What `call` gets from the SDK object; `what` begins the text of an error. Raises StoreError."""
        with self._lent() as sdk, self._telling(what):
            return call(sdk)

    def heard(self) -> float:
        """The server's clock in the newest reply to this thread, unix seconds, whole. Raises Unavailable."""
        header = getattr(self._heard, "date", None)
        if header is None:
            raise Unavailable(f"{self._place.address}: Dropbox's reply tells no time. Is a proxy in the way?")
        return parsedate_to_datetime(header).timestamp()

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        with self._lock:
            sdk = self._idle.pop() if self._idle else None
        sdk = sdk or self._another()
        try:
            yield sdk
        finally:
            with self._lock:
                self._idle.append(sdk)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Errors of the SDK, of the network and of answers that make no sense, as StoreErrors."""
        from dropbox.exceptions import DropboxException
        from requests import RequestException
        from stone.backends.python_rsrc.stone_validators import ValidationError

        self._heard.reply = None
        try:
            yield
        except (DropboxException, RequestException, ValidationError, ValueError, AssertionError, KeyError) as error:
            if self._heard.reply is not None:
                self._heard.reply.close()  # of a download the SDK may have left it unread
            raise told(error, f"{self._place.address}: {what}", self.credentials) from error
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
        """A copy of the first object, with the token it got, on a session of its own."""
        return self._first.clone(session=self._session())

    def _session(self) -> Any:
        import dropbox

        session = dropbox.create_session(max_connections=1)
        session.hooks["response"].append(self._hear)
        return session

    def _hear(self, reply: Any, *_: object, **__: object) -> None:
        self._heard.reply = reply
        self._heard.date = reply.headers.get("Date")
