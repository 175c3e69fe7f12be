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
from storage.s3.errors import s3_errors

POOL = 32
"""Connections of a client: at least one for each thread that uses it."""
_CONNECT_S, _READ_S = 10, 60
_PART_ATTEMPTS = 5


class Clients:
    """`once` sends each request one time; `patient` lets the SDK repeat, only for requests that may arrive twice.
    `checked` repeats too, for bodies with a signed SHA-256, which the SDK then does not compute again.

    Threads may share the SDK's clients but not create them, so that happens under a lock.
    """

    def __init__(self, where: S3Address, address: str) -> None:
        self._where = where
        self._address = address
        self._lock = threading.Lock()

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
            found = self._session.get_credentials()
            return str(found.method) if found else None

    @cached_property
    def _session(self) -> Any:
        session = get_session()
        session.register_component("data_loader", _descriptions())
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
                return self._session.client("s3", region_name=region, endpoint_url=where.endpoint_url, config=config)
            except ValueError as error:  # from the SDK, for an invalid endpoint in its own configuration
                raise BadAddress(f"{self._address}: {error}") from error


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
