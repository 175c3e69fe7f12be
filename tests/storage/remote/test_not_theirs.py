"""Answers that are not the service's own, on every backend: never a success, never Missing, never a crash (P2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from storage.base import BadAddress, Ref, Store, StoreError, Unavailable, make_store
from storage.log import Log, Won
from tests.facts import raising
from tests.storage.badlinks import KINDS, Link, link
from tests.storage.s3.proxy import Change, Reply, Request

PORTAL = b"<html><head><meta charset=utf-8><body>Please sign in to HotelWifi"
XHTML = b"<html><body>Please sign in to HotelWifi</body></html>"
_number = count()


def says(status: int, content: bytes, kind: str) -> Change:
    """In place of the service's answer, as a portal, a proxy or another service gives it."""

    def change(request: Request, reply: Reply) -> None:
        date = reply.headers.get("date", "")
        reply.status, reply.content = status, b"" if request.method == "HEAD" else content
        reply.headers = {"content-type": kind, "date": date, "server": "portal"}

    return change


ANSWERS = {
    "a redirect": says(302, b"", "text/html"),
    "a temporary redirect": says(307, XHTML, "text/html"),
    "a login page": says(200, PORTAL, "text/html"),
    "a page that is also XML": says(200, XHTML, "text/html; charset=utf-8"),
    "an empty answer": says(200, b"", "text/plain"),
    "other JSON": says(200, b"{}", "application/json"),
    "a list": says(200, b"[]", "application/json"),
    "a page with 403": says(403, PORTAL, "text/html"),
    "a page with 401": says(401, XHTML, "text/html"),
    "a page with 404": says(404, PORTAL, "text/html"),
    "a page with 405": says(405, PORTAL, "text/html"),
    "a page with 501": says(501, PORTAL, "text/html"),
}
VERBS: dict[str, Callable[[Store, Ref], object]] = {
    "put": lambda store, ref: store.put(f"put-{next(_number)}", b"new"),
    "put_new": lambda store, ref: store.put_new(f"new-{next(_number)}", b"new"),
    "put_if_absent": lambda store, ref: _create(store, f"free-{next(_number)}"),
    "get": lambda store, ref: store.get(ref, limit=1000),
    "read_range": lambda store, ref: store.read_range(ref, 0, 2),
    "stat": lambda store, ref: store.stat(ref),
    "delete": lambda store, ref: store.delete(ref),
    "list": lambda store, ref: list(store.list("")),
    "now": lambda store, ref: store.now(),
}
UNSEEN = {("drive", "delete", answer) for answer in ("an empty answer", "other JSON", "a list")}
"""What Drive itself may answer."""


def _create(store: Store, name: str) -> object:
    if store.unique_names:
        return store.put_if_absent(name, b"new")
    return store.create(store.reserve(1)[0], name, b"new")  # type: ignore[attr-defined]


@pytest.fixture(params=KINDS)
def behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.0001)
    with link(request.param, monkeypatch) as made:
        made.address = make_store(made.address)
        yield made


def anything(request: Request) -> bool:
    return True


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_verb_believes_an_answer_that_is_not_the_services(behind: Link, answer: str) -> None:
    store = behind.store()
    ref = store.put("a", b"data")
    for verb, ask in VERBS.items():
        behind.proxy.alter(ANSWERS[answer], anything)
        if (behind.kind, verb, answer) not in UNSEEN:
            with raising(Unavailable, store.address):
                ask(store, ref)
        behind.proxy.heal()
        ask(store, ref)
        ref = store.put("a", b"data")


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_append_answered_so_is_won_only_if_it_landed(behind: Link, answer: str) -> None:
    store = behind.store()
    log = Log(store, "runs/p/r/ledger/", sleep=lambda _: None)
    assert isinstance(log.append(0, b"zero"), Won)
    writes = _writes(behind.kind)
    behind.proxy.alter(ANSWERS[answer], writes, times=1)  # it reached the service: the answer alone is another's
    assert isinstance(log.append(1, b"one"), Won)
    assert log.read(1) == b"one" and log.tail() == 1


def _writes(kind: str) -> Callable[[Request], bool]:
    if kind == "s3":
        return lambda request: request.conditional
    if kind == "dropbox":
        return lambda request: request.path.endswith("/files/upload")
    return lambda request: request.method == "POST" and request.path.startswith("/upload/")


DATES = [
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "Mon, 01 Jan 0001 00:00:00 -0000",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Mon, 30 Nov 99999999999 00:00:00 GMT",
    "Mon, 30 Nov 2026 00:00:00 +99999999999",
    "yesterday",
    "",
]


@pytest.mark.parametrize("date", DATES)
def test_a_date_that_no_clock_shows_is_not_the_stores_time(behind: Link, date: str) -> None:
    store = behind.store()
    store.put("a", b"data")

    def change(_: Request, reply: Reply) -> None:
        reply.headers["date"] = date

    behind.proxy.alter(change, anything)
    with raising(Unavailable, store.address):
        store.now()
    behind.proxy.heal()
    assert store.now() > 1.7e9 and not store.clock_is_local


@pytest.mark.parametrize("year", ["9999", "1601"])
def test_a_time_of_an_object_that_no_clock_shows_is_not_believed(behind: Link, year: str) -> None:
    store = behind.store()
    ref = store.put("a", b"data")

    def change(_: Request, reply: Reply) -> None:
        reply.content = re.sub(rb"\b20\d\d(-\d\d-\d\dT)", year.encode() + rb"\1", reply.content)
        if "last-modified" in reply.headers:
            reply.headers["last-modified"] = f"Fri, 31 Dec {year} 23:59:59 GMT"

    behind.proxy.alter(change, anything)
    with raising(Unavailable, store.address):
        store.stat(ref)
    if behind.kind == "drive":  # where people can set it, a file of theirs must not stop everybody's listing
        assert not list(store.list(""))
    else:
        with raising(Unavailable, store.address):
            list(store.list(""))


def test_numbers_and_tags_that_are_none_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with link("s3", monkeypatch) as behind:
        store = behind.store()
        ref = store.put("a", b"data")
        headers: dict[str, Any] = {"etag": None, "last-modified": "soon"}
        for name, value in headers.items():

            def change(_: Request, reply: Reply, name: str = name, value: str | None = value) -> None:
                reply.headers.pop(name, None)
                if value:
                    reply.headers[name] = value

            behind.proxy.alter(change, anything)
            with raising(Unavailable, store.address):
                store.stat(ref)
            behind.proxy.heal()


@pytest.mark.parametrize("answer", ["a redirect", "a login page", "an empty answer", "other JSON", "a page with 401"])
def test_a_login_page_in_place_of_googles_sign_in_is_no_verdict_on_the_token(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("storage.retry._FIRST_WAIT", 0.0001)
    with link("drive", monkeypatch) as behind:
        behind.proxy.alter(ANSWERS[answer], lambda request: "token" in request.path)
        with pytest.raises(StoreError) as caught:
            make_store("drive://new")
        assert type(caught.value) in (Unavailable, BadAddress), caught.value
        assert "RELAY_DRIVE_TOKEN" not in str(caught.value)
        behind.proxy.heal()
