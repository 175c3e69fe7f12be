"""What goes wrong on the fake Dropbox; when, the base knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.storage.fakes import faults

KINDS = {
    "429",  # asked to wait `retry_after` seconds, as JSON
    "429-text",  # the same in plain text, with a Retry-After header
    "500-before", "500-after",  # an error page, without or with the effect
    "drop-before", "drop-after",  # the connection breaks, without or with the effect
    "hang-after",  # the effect, and no answer for `seconds`
    "error",  # a 409 of the route's error type: `error` is its JSON, `summary` its summary
    "401",  # `error` is an AuthError's JSON
    "400", "403",  # plain `text`
    "html",  # the login page of a hotel
    "flip",  # one bit of the body changes on the way
    "cut",  # a download breaks off half way
}  # fmt: skip


@dataclass
class Fault(faults.Fault):
    """As the base; its text is the argument of the route."""

    kinds = KINDS
    retry_after: float = 1
    error: Any = None
    summary: str = "fault/."
    text: str = ""
