"""Sends what the real SDK says to dropboxapi.com to the fake one on this machine instead; changes nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

PORT = "FAKE_DROPBOX_PORT"
"""The environment variable that says where the fake listens; empty: the real service is meant after all."""
_before: list[Callable[..., Response]] = []


def install() -> None:
    """From now on, in this process; what is sent elsewhere goes as it went before."""
    if not _before:
        _before.append(HTTPAdapter.send)
        HTTPAdapter.send = send  # type: ignore[method-assign]


def send(self: HTTPAdapter, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
    """HTTPAdapter.send, with the host replaced; the Host header keeps the name that was meant."""
    parts = urlsplit(request.url or "")
    if (parts.hostname or "").endswith(".dropboxapi.com") and (port := os.environ[PORT]):
        request.headers["Host"] = parts.netloc
        request.url = parts._replace(scheme="http", netloc=f"127.0.0.1:{port}").geturl()
    return _before[0](self, request, *args, **kwargs)
