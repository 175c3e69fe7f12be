"""Sends what the real SDKs of Drive and Dropbox say to their services to the fakes on this machine instead.

`httplib2` carries Google's SDK, `requests` Dropbox's, `requests` and `urllib` whatever else asks Google for a token.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httplib2
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

DRIVE, DROPBOX = "FAKE_DRIVE_PORT", "FAKE_DROPBOX_PORT"
"""The environment variables that say where a fake listens; empty: the real service is meant after all."""
HOSTS = {"googleapis.com": DRIVE, "dropboxapi.com": DROPBOX}
_before: list[Callable[..., Any]] = []


def install() -> None:
    """From now on, in this process; what is sent elsewhere goes as it went before."""
    if not _before:
        _before.extend([httplib2.Http.request, HTTPAdapter.send, urllib.request.OpenerDirector.open])
        httplib2.Http.request = request
        HTTPAdapter.send = send  # type: ignore[method-assign]
        urllib.request.OpenerDirector.open = open_url  # type: ignore[method-assign]


def elsewhere(url: str) -> tuple[str, SplitResult]:
    """Where a URL leads, and what it was."""
    parts = urlsplit(url)
    domain = ".".join((parts.hostname or "").split(".")[-2:])
    if domain in HOSTS and (port := os.environ[HOSTS[domain]]):
        url = parts._replace(scheme="http", netloc=f"127.0.0.1:{port}").geturl()
    return url, parts


def request(
    self: httplib2.Http, uri: str, method: str = "GET", body: Any = None, headers: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """httplib2.Http.request, with the host replaced; the Host header keeps the name that was meant."""
    url, meant = elsewhere(uri)
    headers = {**(headers or {}), "host": meant.netloc} if url != uri else headers
    return _before[0](self, url, method, body, headers, *args, **kwargs)


def send(self: HTTPAdapter, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
    """HTTPAdapter.send, likewise."""
    url, meant = elsewhere(request.url or "")
    if url != request.url:
        request.headers["Host"], request.url = meant.netloc, url
    sent: Response = _before[1](self, request, *args, **kwargs)
    return sent


def open_url(self: urllib.request.OpenerDirector, fullurl: Any, *args: Any, **kwargs: Any) -> Any:
    """OpenerDirector.open, likewise."""
    wanted = fullurl if isinstance(fullurl, urllib.request.Request) else urllib.request.Request(fullurl)
    url, meant = elsewhere(wanted.full_url)
    if url != wanted.full_url:
        wanted.full_url = url
        wanted.add_unredirected_header("Host", meant.netloc)
        return _before[2](self, wanted, *args, **kwargs)
    return _before[2](self, fullurl, *args, **kwargs)
