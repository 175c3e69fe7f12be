"""The SDK's clients for one bucket, made at first use, with the settings that S3 servers need."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import boto3
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import get_session

from storage.contract import BadAddress, BadSetting, Denied
from storage.s3.address import S3Address, is_local, is_region
from storage.s3.errors import BAD_KEYS, EXPIRED, NotS3, s3_errors

POOL = 32
"""Connections of a client: at least one for each thread that uses it."""
_CONNECT_S, _READ_S = 10, 60
_PART_ATTEMPTS = 5
_SENDS = {
    "PutObject": "ETag",
    "GetObject": "ETag",
    "HeadObject": "ETag",
    "ListObjectsV2": "IsTruncated",
    "CreateMultipartUpload": "UploadId",
    "UploadPart": "ETag",
    "CompleteMultipartUpload": "ETag",
    "ListParts": "Bucket",
    "ListMultipartUploads": "Bucket",
}
"""A part that S3 always sends in a successful answer, by the request; the others are answered by status 204."""
_SIGNED, _RENEWED = "relay.signed", "relay.renewed"
"""Notes at a request: the credentials that signed it, and that they were loaded again for it."""


class Clients:
    """`once` sends each request one time; `patient` lets the SDK repeat, only for requests that may arrive twice.
    `checked` repeats too, for bodies with a signed SHA-256, which the SDK then does not compute again.

    Threads may share the SDK's clients but not create them, so that happens under a lock.
    """

    def __init__(self, where: S3Address, address: str) -> None:
        self._where = where
        self._address = address
        self._lock = threading.Lock()
        self.server = ""
        """The server's name for itself in its last answer."""

    @property
    def once(self) -> Any:
        """A client without the SDK's retries, which would report a conflict to the writer that won."""
        with self._lock:
            return self._once

    @property
    def patient(self) -> Any:
        """A client that retries, for the parts of an upload."""
        with self._lock:
            return self._patient

    @property
    def checked(self) -> Any:
        """A client that retries, for parts whose SHA-256 is one of the signed headers."""
        with self._lock:
            return self._checked

    def credentials_source(self) -> str | None:
        """The SDK's name for the source of the credentials ('env', 'shared-credentials-file', …); None without any."""
        with self._lock, s3_errors(self._address, "the credentials"):
            found = self._keys.load_credentials()
            return str(found.method) if found else None

    @cached_property
    def _keys(self) -> _Keys:
        return _Keys()

    @cached_property
    def _session(self) -> Any:
        session = _session()
        session.register_component("credential_provider", self._keys)
        return boto3.session.Session(botocore_session=session)

    @cached_property
    def _once(self) -> Any:
        return self._client(1)

    @cached_property
    def _patient(self) -> Any:
        return self._client(_PART_ATTEMPTS)

    @cached_property
    def _checked(self) -> Any:
        return self._client(_PART_ATTEMPTS, {"payload_signing_enabled": False})

    def _client(self, attempts: int, signing: Mapping[str, bool] = MappingProxyType({})) -> Any:
        where = self._where
        check_keys(self._session.get_credentials(), self._address)
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            max_pool_connections=POOL,
            tcp_keepalive=True,
            retries={"mode": "standard", "total_max_attempts": attempts},
            # Older compatible servers refuse the SDK's own checksums. Files carry ours; bodies are signed by SHA-256.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            ignore_configured_endpoint_urls=True,  # the address says where the store is
            s3={"addressing_style": where.addressing or ("path" if where.endpoint_url else "auto"), **signing},
            **({"proxies": {}} if where.endpoint_url and is_local(where.endpoint_url) else {}),
        )
        with s3_errors(self._address, "the client"):
            region = where.region or checked_region(self._session.region_name or "us-east-1", self._address)
            try:
                client = self._session.client("s3", region_name=region, endpoint_url=where.endpoint_url, config=config)
            except ValueError as error:  # from the SDK, for an invalid endpoint in its own configuration
                raise BadAddress(f"{self._address}: {error}") from error
        client.meta.events.register("before-call.s3.HeadBucket", _ask_region_once)
        client.meta.events.register("before-sign.s3", self._keys.note)
        client.meta.events.register("needs-retry.s3", self._keys.renew)
        client.meta.events.register("after-call.s3", self._check)
        return client

    def _check(self, http_response: Any, parsed: Mapping[str, Any], model: Any, **_: object) -> None:
        """Raises NotS3 for a successful answer that lacks a part that S3 always sends: a login page, for example."""
        self.server = str(http_response.headers.get("server", ""))
        if http_response.status_code >= 300:
            return
        needed = _SENDS.get(model.name)
        if needed is None:
            if http_response.status_code != 204 and not any(
                name.startswith("x-amz-") for name in http_response.headers
            ):
                raise NotS3(f"status {http_response.status_code}")
        elif parsed.get(needed) in (None, ""):
            if "Body" in parsed:
                parsed["Body"].close()
            raise NotS3(f"it has no {needed}")


def _ask_region_once(context: dict[str, Any], **_: object) -> None:
    """The SDK asks for a bucket's region after a redirect, and without this again after a redirect of that request."""
    context.setdefault("s3_redirect", {})["redirected"] = True


class _Keys:
    """The SDK's credentials. When a server no longer accepts them they are loaded again, once for each request.

    The SDK reads a file of credentials only once. A source that it renews by itself, like a role, stays as it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Any = None

    def load_credentials(self) -> Any:
        """As botocore's credential provider: itself in place of what it holds; None without credentials."""
        with self._lock:
            self._held = self._held or _session().get_credentials()
            return self if self._held else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)

    def note(self, request: Any, **_: object) -> None:
        """Before a request is signed: note with which credentials."""
        request.context[_SIGNED] = self._held.get_frozen_credentials() if self._held else None

    def renew(self, response: Any, operation: Any, request_dict: Mapping[str, Any], **_: object) -> float | None:
        """After an answer: 0 to send the request again, as there are other credentials now; otherwise None."""
        context = request_dict["context"]
        if response is None or _RENEWED in context or not _refuses_keys(response, operation.name):
            return None
        context[_RENEWED] = True
        with self._lock:
            if self._held.get_frozen_credentials() == context.get(_SIGNED):
                self._held = _session().get_credentials() or self._held
            return None if self._held.get_frozen_credentials() == context.get(_SIGNED) else 0.0


def _refuses_keys(response: tuple[Any, Mapping[str, Any]], operation: str) -> bool:
    """Whether the credentials may be the reason of a refusal; an answer to a HEAD gives none."""
    code = str(response[1].get("Error", {}).get("Code", ""))
    return code in EXPIRED | BAD_KEYS or (operation == "HeadObject" and code in ("400", "403"))


def _session() -> Any:
    """A session of the SDK, which reads the environment and the files of credentials."""
    session = get_session()
    session.register_component("data_loader", _descriptions())
    return session


_STATIC = ("env", "shared-credentials-file", "config-file")
_KEYS = (
    ("AWS_ACCESS_KEY_ID", "access_key"),
    ("AWS_SECRET_ACCESS_KEY", "secret_key"),
    ("AWS_SESSION_TOKEN", "token"),
)


def check_keys(found: Any, address: str) -> None:
    """Raises Denied for a typed or pasted key with a blank or the end of a line, which no server can be sent."""
    if found is None or found.method not in _STATIC:
        return
    for variable, name in _KEYS:
        value = getattr(found, name) or ""
        if not (value.isascii() and value.isprintable() and " " not in value):
            where = f"{variable}" if found.method == "env" else f"{variable.lower()} in the SDK's {found.method}"
            raise Denied(
                f"{address}: {where} holds a blank, a line break or another character that no key has. Set it again, "
                f"on one line."
            )


def checked_region(name: str, address: str) -> str:
    """The region of the environment without blanks around it. Raises BadSetting if it cannot be one."""
    if not is_region(name.strip()):
        raise BadSetting(
            f"{address}: the region {name[:60]!r} of AWS_DEFAULT_REGION or ~/.aws/config is not one (like "
            f"eu-central-1)."
        )
    return name.strip()


@functools.cache
def _descriptions() -> Any:
    """The SDK's description of the service, shared by all clients of a process: reading it takes half a second."""
    return create_loader()
