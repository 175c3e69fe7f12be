"""Posts one message to the address in RELAY_WEBHOOK as a session hands off; tells that address to nobody.

Slack reads `text`, Discord `content`, ntfy the whole body. The address is a secret: it is told to nobody, also not in
errors, and where it redirects to is not asked.
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
"""Longest that a session waits for it, reading the run included."""
EACH_S = 2.2
LONGEST = 1900
"""Characters of the text; Discord takes 2,000."""

Document = Callable[[], Mapping[str, Any]]


def address_of(environ: Mapping[str, str]) -> str | None:
    """The address, None if there is none. Raises BadConfig (78), which does not repeat it, unless it is https, or http
    on this machine."""
    url = environ.get(VARIABLE, "").strip()
    if not url:
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for what is no port
    except ValueError:
        parts = urlsplit("")
    strange = re.search(r"[\x00-\x20\x7f]|[^\x00-\x7f]", url)
    if strange or not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and _here(url))):
        raise BadConfig(
            f"{VARIABLE} must be an https:// address in ASCII without blanks (http:// only on this machine). "
            f"Correct it or unset it; it is not shown because it is a secret."
        )
    return url


def send(url: str, document: Document, runtime: Runtime) -> str:
    """Post what `document` makes, once more if that fails, within five seconds in all: empty, or what went wrong.

    It runs in a thread of its own that is left behind when it hangs. A second attempt after a lost answer may arrive
    as a second message.
    """
    said: list[str] = []
    until = runtime.monotonic() + IN_ALL_S

    def body() -> None:
        try:
            data = json.dumps(dict(document())).encode()
        except (RelayError, StoreError) as error:
            said.append(f"the run could not be read ({type(error).__name__})")
            return
        trouble = _post(url, data)
        if trouble and runtime.monotonic() + EACH_S < until:
            trouble = _post(url, data)
        said.append(trouble)

    runtime.spawn("webhook", body).join(IN_ALL_S)
    return said[0] if said else f"no answer within {IN_ALL_S:.0f} s"


def _post(url: str, data: bytes) -> str:
    """Empty, or what went wrong, in words that hold no part of the address."""
    headers = {"Content-Type": "application/json", "User-Agent": "trm-relay"}
    proxies = [ProxyHandler({})] if _here(url) else []
    try:
        with build_opener(_Stay, *proxies).open(Request(url, data, headers), timeout=EACH_S):
            return ""
    except HTTPError as answer:
        answer.close()
        moved = ", and redirects are not followed" if 300 <= answer.code < 400 else ""
        return f"it answered {answer.code}{moved}"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"it could not be reached ({type(reason).__name__})"


class _Stay(HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, *_: object) -> None:
        return None


def _here(url: str) -> bool:
    """Whether the address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
