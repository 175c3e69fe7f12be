"""What goes wrong on the fake Drive; when, the base knows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.storage.fakes import faults

KINDS = {
    "429", "rateLimit", "userRateLimit", "dailyLimit",  # by their documented reasons; Retry-After if `retry_after`
    "quota", "service-quota", "forbidden", "not-found", "no-scope",  # refusals that the account would not meet itself
    "401",  # the access token is refused
    "500-before", "500-after",  # a server's error of `status`, without or with the effect
    "drop-before", "drop-after",  # the connection breaks, without or with the effect
    "hang-after",  # the effect, and no answer for `seconds`
    "slow",  # the right answer after `seconds`
    "html",  # the login page of a hotel
    "flip",  # one bit of the body changes on the way
    "cut",  # a download breaks off half way
    "short",  # half a download, with headers that say it is whole
    "keep",  # an upload server keeps `bytes` of what it was sent
    "no-session",  # an upload session that is gone, with `status` 404 or 410
}  # fmt: skip


@dataclass
class Fault(faults.Fault):
    """As the base; its text is target, Content-Range and metadata."""

    kinds = KINDS
    status: int = 0
    retry_after: float = 0
    bytes: int = 0
