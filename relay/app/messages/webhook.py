"""Posts one message to the address in RELAY_WEBHOOK when a session hands off.

Slack reads `text`, Discord `content`, ntfy the whole body. The address is a secret: no message and no error contains
it, and redirects are not followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from relay.core.clock import Runtime
from relay.core.errors import BadConfig, RelayError
from storage.base import StoreError

VARIABLE = "RELAY_WEBHOOK"
IN_ALL_S = 5.0
"""Longest wait of a session for the webhook, including the time to read the run."""
EACH_S = 2.2
LONGEST = 1900
"""Characters of the text; Discord takes 2,000."""

Document = Callable[[], Mapping[str, Any]]


def address_of(environ: Mapping[str, str]) -> str | None:
    """The address; None if unset.

    Raises BadConfig (78) unless it is https, or http on this machine. The error does not contain the address.
    """
    url = environ.get(VARIABLE, "").strip()
    if not url:
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for an invalid port
    except ValueError:
        parts = urlsplit("")
    strange = re.search(r"[\x00-\x20\x7f]|[^\x00-\x7f]", url)
    if strange or not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and _here(url))):
        raise BadConfig(
            f"{VARIABLE} must be an https:// address in ASCII without spaces (http:// only on this machine). "
            f"Correct it or unset it. Its value is a secret and is not shown."
        )
    return url


def send(url: str, document: Document, runtime: Runtime) -> str:
    """Post the result of `document`, with one retry, within 5 s in all. Returns an error text, empty on success.

    A separate thread posts; it is abandoned if it hangs. A retry after a lost answer can arrive as a second message.
    """
    results: list[str] = []
    until = runtime.monotonic() + IN_ALL_S

    def body() -> None:
        try:
            data = json.dumps(dict(document())).encode()
        except (RelayError, StoreError) as error:
            results.append(f"the run could not be read ({type(error).__name__})")
            return
        trouble = _post(url, data)
        if trouble and runtime.monotonic() + EACH_S < until:
            trouble = _post(url, data)
        results.append(trouble)

    runtime.spawn("webhook", body).join(IN_ALL_S)
    return results[0] if results else f"no answer within {IN_ALL_S:.0f} s"


def _post(url: str, data: bytes) -> str:
    """An error text without any part of the address; empty on success."""
    headers = {"Content-Type": "application/json", "User-Agent": "trm-relay"}
    proxies = [ProxyHandler({})] if _here(url) else []
    try:
        with build_opener(_NoRedirects, *proxies).open(Request(url, data, headers), timeout=EACH_S):
            return ""
    except HTTPError as answer:
        answer.close()
        moved = ", and redirects are not followed" if 300 <= answer.code < 400 else ""
        return f"it answered {answer.code}{moved}"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"it could not be reached ({type(reason).__name__})"


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: object) -> None:
        return None


def _here(url: str) -> bool:
    """Whether the address is on this machine (loopback)."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
