"""Calls Google's SDK, each call on its own connection, and raises StoreErrors; does not know objects."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from typing import Any, NamedTuple

from storage.answers import Impossible, date_of
from storage.contract import Denied, Expired, Unavailable
from storage.drive.credentials import TOKEN_URI, DriveCredentials, check_scopes
from storage.drive.errors import store_error
from storage.ranges import BEHIND_THE_END

TIMEOUT_S = 30.0
"""Timeout of a reply, seconds."""
_NONSENSE = (KeyError, TypeError, ValueError)


class Wire:
    """One connection to Google, made by the SDK's own `build_http`; notes the server time of each reply.

    httplib2 sends again by itself if a connection breaks before the reply, a POST too: so every create names an id.
    """

    def __init__(self, heard: Callable[[str, str, Any, bytes], None]) -> None:
        from googleapiclient.http import build_http

        self.http = build_http()
        self.http.timeout = TIMEOUT_S
        self._heard = weakref.WeakMethod(heard)  # an unused client is closed at once

    def request(self, uri: str, *args: Any, **kwargs: Any) -> tuple[Any, bytes]:
        """As httplib2.Http.request."""
        reply, content = self.http.request(uri, *args, **kwargs)
        if heard := self._heard():
            heard(uri, str(reply.get("date", "")), reply, content)
        return reply, content

    def close(self) -> None:
        """Close the connection."""
        self.http.close()


class Fetched(NamedTuple):
    """A reply with bytes."""

    status: int
    content_range: str
    data: bytes


class DriveClient:
    """Serves any number of threads. A connection serves one call at a time; after a failure it is not used again.

    The SDK does not retry here: one call is one request, except for httplib2's second try and a renewed token.
    """

    def __init__(
        self,
        credentials: DriveCredentials,
        address: str,
        reload: Callable[[], DriveCredentials] | None = None,
    ) -> None:
        """`reload` reads the credentials again, once for each request that Google refuses for them."""
        self.credentials = credentials
        self._reload = reload
        self.address = address
        self._idle: list[Any] = []
        self._lock, self._vetting = threading.Lock(), threading.Lock()
        self._local = threading.local()
        self._scopes: frozenset[str] | None = None
        self._vetted = False
        weakref.finalize(self, _close, self._idle)

    def ask(self, what: str, make: Callable[[Any], Any]) -> Any:
        """The answer to the request that `make` builds with the v3 service. Raises StoreError."""
        return self.run(what, lambda wire: document(make(self.v3).execute(http=wire)))

    def send_only(self, what: str, make: Callable[[Any], Any]) -> None:
        """The same for a request whose answer is empty."""
        self.run(what, lambda wire: nothing(make(self.v3).execute(http=wire)))

    def ask_old(self, what: str, make: Callable[[Any], Any]) -> Any:
        """The same with the v2 service, which alone has etags."""
        return self.run(what, lambda wire: document(make(self._v2).execute(http=wire)))

    def run(self, what: str, call: Callable[[Any], Any]) -> Any:
        """The result of `call` with a connection; `what` begins the text of an error. Raises StoreError."""
        held = self.credentials
        try:
            return self._run(what, call)
        except Expired:
            if not self._renewed(held):
                raise
        return self._run(what, call)

    def fresh(self) -> DriveClient:
        """A client with these credentials on its own connections."""
        return DriveClient(self.credentials, self.address, self._reload)

    def _run(self, what: str, call: Callable[[Any], Any]) -> Any:
        with self.translating(what), self._lent() as wire:
            return call(wire)

    def _renewed(self, held: DriveCredentials) -> bool:
        """Whether there are other credentials than those `held` when Google refused; reads them again if needed."""
        with self._vetting:
            if self.credentials == held and self._reload is not None:
                with suppress(Denied):
                    self.credentials = self._reload()
                if self.credentials != held:
                    self.__dict__.pop("_google", None)
                    self._vetted = False
            return self.credentials != held

    def fetch(self, what: str, make: Callable[[Any], Any]) -> Fetched:
        """The bytes of a reply; a range past the end is an answer too. Raises StoreError.

        A text is not one of our files, whose type is bytes.
        """
        from googleapiclient.errors import HttpError

        replies: list[Any] = []

        def answered(wire: Any) -> bytes:
            request = make(self.v3)
            request.add_response_callback(replies.append)
            try:
                return bytes(request.execute(http=wire))
            except HttpError as error:
                if int(error.resp.status) == BEHIND_THE_END:
                    return b""
                raise

        data: bytes = self.run(what, answered)
        reply = replies[0]
        if str(reply.get("content-type", "")).startswith("text/"):
            raise store_error(ValueError(), f"{self.address}: {what}", self.credentials)
        return Fetched(int(reply.status), str(reply.get("content-range", "")), data)

    def heard(self) -> float:
        """The server's clock in the newest reply to this thread, unix seconds, whole. Raises Unavailable."""
        try:
            return date_of(getattr(self._local, "date", ""))
        except Impossible as error:
            raise Unavailable(f"{self.address}: Google's reply has {error}. Is a proxy in the way?") from error

    @cached_property
    def _google(self) -> Any:
        try:
            return self.credentials.google()
        except ValueError as error:  # without the reason, which may quote the key
            raise Denied(
                f"{self.address}: {self.credentials.source} holds an invalid key. Copy the whole file again."
            ) from error

    @cached_property
    def v3(self) -> Any:
        """The service that builds requests for `run`."""
        return _service("v3")

    @cached_property
    def _v2(self) -> Any:
        return _service("v2")

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        from googleapiclient.errors import HttpError

        with self._lock:
            wire = self._idle.pop() if self._idle else None
        if wire is not None and wire.credentials is not self._google:
            wire.close()  # it has credentials that were replaced
            wire = None
        wire = wire or self._connect()
        try:
            self._vet(wire)
            yield wire
        except HttpError:
            self._back(wire)
            raise
        except BaseException:
            wire.close()  # it may still receive the answer to an abandoned request
            raise
        self._back(wire)

    def _back(self, wire: Any) -> None:
        with self._lock:
            self._idle.append(wire)

    def _connect(self) -> Any:
        from google_auth_httplib2 import AuthorizedHttp

        return AuthorizedHttp(self._google, http=Wire(self._hear))

    def _vet(self, wire: Any) -> None:
        """Before the first request: get a token and check its permissions. Raises BadAddress or Denied."""
        if self._vetted:
            return
        from google_auth_httplib2 import Request

        with self._vetting:
            if not self._vetted:
                self._google.refresh(Request(wire.http))
                if self.credentials.kind == "user":
                    check_scopes(self._scopes or (), self.credentials)
                self._vetted = True

    def _hear(self, uri: str, date: str, reply: Any, content: bytes) -> None:
        self._local.date = date
        if uri == TOKEN_URI and reply.status == 200:
            self._scopes = frozenset(str(document(json.loads(content)).get("scope", "")).split())

    @contextmanager
    def translating(self, what: str) -> Iterator[None]:
        """Turns errors of the packages, of the network and of invalid answers into StoreErrors.

        Code that parses an answer runs inside this: KeyError, TypeError and ValueError mean that the answer is invalid.
        """
        from google.auth.exceptions import GoogleAuthError
        from googleapiclient.errors import Error
        from httplib2 import HttpLib2Error

        try:
            yield
        except (Error, GoogleAuthError, HttpLib2Error, http.client.HTTPException, OSError, *_NONSENSE) as e:
            raise store_error(e, f"{self.address}: {what}", self.credentials) from e


def document(answer: Any) -> Any:
    """The answer if it is a JSON object. Raises ValueError: the SDK returns any text that came with a 200."""
    if not isinstance(answer, dict):
        raise ValueError("no JSON object")
    return answer


def nothing(answer: Any) -> None:
    """Raises ValueError unless the answer is empty."""
    if answer:
        raise ValueError("an answer where none was expected")


def _close(idle: list[Any]) -> None:
    for wire in idle:
        wire.close()


@cache
def _service(version: str) -> Any:
    """Built from the discovery document in the SDK; a request gets its connection when it is sent.

    Once a process, and each collection once: the SDK's `files()` makes all its methods again, for every request.
    """
    import httplib2
    from googleapiclient.discovery import build

    logging.getLogger("googleapiclient").setLevel(logging.ERROR)  # its warnings are raised as errors here, or retried
    service = build("drive", version, http=httplib2.Http(), static_discovery=True, cache_discovery=False)
    for collection in ("files", "about"):
        setattr(service, collection, cache(getattr(service, collection)))
    return service
