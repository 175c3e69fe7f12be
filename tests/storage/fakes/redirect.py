"""Sends what the real SDKs of Drive, Dropbox and Hugging Face say to their services to fakes on this machine instead.

`httplib2` carries Google's SDK, `requests` Dropbox's, `requests` and `urllib` whatever else asks Google for a token;
botocore and `urllib` carry what Hugging Face is asked (huggingface_hub itself takes HF_ENDPOINT).
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

DRIVE, DROPBOX, HF = "FAKE_DRIVE_PORT", "FAKE_DROPBOX_PORT", "FAKE_HF_PORT"
"""The environment variables that say where a fake listens; empty: the real service is meant after all."""
HOSTS = {"googleapis.com": DRIVE, "dropboxapi.com": DROPBOX, "hf.co": HF, "huggingface.co": HF}
_before: list[Callable[..., Any]] = []
_before_s3: list[Callable[..., Any]] = []


def install() -> None:
    """From now on, in this process; what is sent elsewhere goes as it went before."""
    if not _before:
        _before.extend([httplib2.Http.request, HTTPAdapter.send, urllib.request.OpenerDirector.open])
        httplib2.Http.request = request
        HTTPAdapter.send = send  # type: ignore[method-assign]
        urllib.request.OpenerDirector.open = open_url  # type: ignore[method-assign]
    if HF in os.environ and not _before_s3:
        from botocore.httpsession import URLLib3Session

        _before_s3.append(URLLib3Session.send)
        URLLib3Session.send = send_s3


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


def send_s3(self: Any, request: Any) -> Any:
    """botocore's URLLib3Session.send, likewise; the name that was meant is the signed one."""
    url, meant = elsewhere(request.url)
    if url != request.url:
        request.headers["Host"], request.url = meant.netloc, url
    return _before_s3[0](self, request)
