"""What a fault makes of a request to the fake Drive and of its answer; knows no route."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.storage.drive.fake import answers
from tests.storage.drive.fake.answers import Answer, PlainText, Refused
from tests.storage.drive.fake.faults import Fault

PORTAL = b"<html><body>Welcome to the hotel. Please log in.</body></html>"
Run = Callable[[bool, int | None], Answer]
"""The request itself; told whether a bit of it changes on the way, and how many bytes of an upload are kept."""


def faulty(fault: Fault | None, run: Run) -> Answer:
    """The answer, or what a fault makes of it."""
    if fault is None:
        return _told(run, False, None)
    if fault.kind in ("flip", "keep"):
        return _told(run, fault.kind == "flip", fault.bytes if fault.kind == "keep" else None)
    if fault.kind in ("500-after", "drop-after", "hang-after", "slow", "cut", "short"):
        real = _told(run, False, None)
        time.sleep(fault.seconds)
        if fault.kind in ("slow", "cut", "short"):
            real.cut = fault.kind == "cut"
            real.body = real.body[: len(real.body) // 2] if fault.kind == "short" else real.body
            return real
    return _refusal(fault)


def _told(run: Run, flip: bool, keep: int | None) -> Answer:
    """What a request does, with its refusals in words."""
    try:
        answer = run(flip, keep)
    except Refused as refused:
        return refused.answer()
    except PlainText as plain:
        return Answer(plain.status, plain.text.encode(), type="text/plain; charset=utf-8")
    return answer


def _refusal(fault: Fault) -> Answer:
    refusals = {
        "quota": answers.quota_exceeded, "service-quota": answers.service_account_quota,
        "forbidden": lambda: answers.no_permission("this"), "not-found": lambda: answers.not_found("this"),
        "no-scope": lambda: answers.no_scope("this"), "401": answers.unauthorized,
    }  # fmt: skip
    if fault.kind in refusals:
        return refusals[fault.kind]().answer()
    if fault.kind in ("429", "rateLimit", "userRateLimit", "dailyLimit"):
        limited = answers.limited(fault.kind).answer()
        if fault.retry_after:
            limited.headers["Retry-After"] = f"{fault.retry_after:.0f}"
        return limited
    if fault.kind == "html":
        return Answer(200, PORTAL, type="text/html")
    if fault.kind == "no-session":
        return Answer(fault.status or 404, b"Not Found", type="text/plain; charset=utf-8")
    if fault.kind.startswith("500"):
        status = fault.status or 500
        if status == 500:
            return Refused(500, "internalError", "Internal Error").answer()
        return Answer(status, b"<h1>Server Error</h1>", type="text/html")
    return Answer(0, drop=True)
