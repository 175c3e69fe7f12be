"""Whatever a service, the network or a proxy answers is told as what it is, with its address, and without a secret."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from storage.base import Denied, Expired, QuotaExceeded, Store, StoreError, Throttled, Unavailable
from storage.drive.errors import NotAllowed
from tests.facts import raising
from tests.storage.remote.services import SERVICES, WAIT_S, Service

_number = count()
Verb = Callable[[Store, Any], object]
VERBS: dict[str, Verb] = {
    "put": lambda store, ref: store.put("new", b"new"),
    "put_if_absent": lambda store, ref: store.put_if_absent(f"free-{next(_number)}", b"new"),
    "get": lambda store, ref: store.get(ref),
    "read_range": lambda store, ref: store.read_range(ref, 0, 2),
    "stat": lambda store, ref: store.stat(ref),
    "delete": lambda store, ref: store.delete(ref),
    "list": lambda store, ref: list(store.list("")),
    "now": lambda store, ref: store.now(),
}
Answer = tuple[dict[str, Any], type[StoreError], tuple[str, ...]]
"""The fault that brings it, the error, and the facts that it names."""
MISSING = "Your app is not permitted: it does not have the required scope 'files.content.write'."
ANSWERS: dict[str, dict[str, Answer]] = {
    "s3-ministack": {
        "429": ({"kind": "429"}, Throttled, ()),
        "no answer": ({"kind": "drop-before"}, Unavailable, ()),
        "no answer after all": ({"kind": "drop-after"}, Unavailable, ()),
        "500": ({"kind": "500-after"}, Unavailable, ("Internal",)),
    },
    "dropbox": {
        "429": ({"kind": "429"}, Throttled, ()),
        "429 in words": ({"kind": "429-text"}, Throttled, ()),
        "500": ({"kind": "500-before"}, Unavailable, ("500",)),
        "no answer": ({"kind": "drop-before"}, Unavailable, ("ConnectionError",)),
        "a login page": ({"kind": "html"}, Unavailable, ()),
        "no scope of the app": ({"kind": "400", "text": MISSING}, Denied, ("files.content.write",)),
        "no token": ({"kind": "400", "text": "Invalid 7"}, Denied, ("400", "Invalid 7")),
        "a wrong token": (
            {"kind": "401", "error": {".tag": "invalid_access_token"}}, Expired, ("DROPBOX_REFRESH_TOKEN",)
        ),
        "nobody": ({"kind": "401", "error": {".tag": "user_suspended"}}, Denied, ("user_suspended",)),
        "no scope": (
            {"kind": "401", "error": {".tag": "missing_scope", "required_scope": "files.content.read"}},
            Denied, ("files.content.read",),
        ),
    },
    "drive": {
        "429": ({"kind": "429"}, Throttled, ()),
        "a user's limit": ({"kind": "userRateLimit"}, Throttled, ()),
        "a project's limit": ({"kind": "rateLimit"}, Throttled, ()),
        "a day's limit": ({"kind": "dailyLimit"}, QuotaExceeded, ()),
        "503": ({"kind": "500-before", "status": 503}, Unavailable, ("503",)),
        "no answer": ({"kind": "drop-before", "times": 9}, Unavailable, ()),
        "a login page": ({"kind": "html"}, Unavailable, ()),
        "forbidden": ({"kind": "forbidden"}, NotAllowed, ()),
        "no scope": ({"kind": "no-scope"}, Denied, ("drive.file",)),
    },
}  # fmt: skip
CASES = [
    pytest.param(service, fault, verb, id=f"{service}-{fault}-{verb}")
    for service, answers in ANSWERS.items()
    for fault in answers
    for verb in VERBS
    if (service, verb) != ("drive", "put_if_absent")  # there an append goes by an id: tests/storage/drive/test_chain.py
]


@pytest.mark.parametrize("service", ["dropbox", "drive"], indirect=True)
def test_a_full_account_says_how_full_and_stores_nothing_more(service: Service) -> None:
    store = service.store()
    used = store.quota()[0]  # type: ignore[attr-defined]
    person = service.people[0] if service.kind == "dropbox" else service.person  # type: ignore[attr-defined]
    person.change(quota=used + 1000)
    for write in (store.put, store.put_if_absent) if store.unique_names else (store.put,):
        with raising(QuotaExceeded, "0.00 GB"):
            write("a", b"x" * 5000)
    assert store.quota() == (used, used + 1000)  # type: ignore[attr-defined]
    assert store.put("b", b"small")


def plan(service: Service, fault: dict[str, Any]) -> None:
    """The next request of a store meets a fault, which may be one that only this service knows."""
    if service.kind.startswith("s3"):
        service.fault(**fault)
        return
    person = service.people[0] if service.kind == "dropbox" else service.person  # type: ignore[attr-defined]
    person.fault(route="v3.files" if service.kind == "drive" else "files/", retry_after=WAIT_S, **fault)


@pytest.mark.parametrize(("name", "fault", "verb"), CASES)
def test_what_any_verb_may_be_answered(name: str, fault: str, verb: str) -> None:
    told, expected, facts = ANSWERS[name][fault]
    with SERVICES[name]() as service:
        store = service.store()
        ref = store.put("a", b"data")
        if name == "drive":
            store.reserve(1)  # type: ignore[attr-defined] - what asks for more than one thing has the first by now
            told = told | ({"times": 2} if (verb, fault) == ("delete", "forbidden") else {})  # then it tries the bin
        plan(service, told)
        with raising(expected, store.address, *facts) as caught:
            VERBS[verb](store, ref)
        if isinstance(caught.value, Throttled):
            assert caught.value.retry_after == WAIT_S
        service.heal()
        VERBS[verb](store, ref)
