"""Services of the real SDK that hold every answer of the fake against Drive's discovery document."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from google_auth_httplib2 import AuthorizedHttp
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError
from googleapiclient.http import build_http

from tests.storage.drive.fake.schema import find, problems
from tests.storage.drive.handle import Person

ITEM = {"message", "domain", "reason", "location", "locationType"}


class Checked(AuthorizedHttp):
    """The SDK's transport; raises AssertionError for an answer that the real service could not give."""

    def request(self, uri: str, method: str = "GET", *args: Any, **kwargs: Any) -> Any:
        reply, body = super().request(uri, method, *args, **kwargs)
        assert "date" in reply
        if "json" in reply.get("content-type", "") and body:
            meant = (kwargs.get("headers") or {}).get("x-http-method-override", method)
            check(uri, meant, reply.status, json.loads(body))
        return reply, body


def check(uri: str, method: str, status: int, told: Any) -> None:
    """Raises AssertionError."""
    if status >= 400:
        check_error(status, told)
        return
    path = urlsplit(uri).path
    found = find(method, path)
    version = "v2" if "/v2/" in path else "v3"
    wrong = problems(version, found[0].response if found else "File", told)
    assert not wrong, wrong


def check_error(status: int, told: Any) -> None:
    """The two levels of Google's errors. Raises AssertionError."""
    error = told["error"]
    assert set(told) == {"error"} and set(error) - {"status", "details"} == {"code", "message", "errors"}
    assert error["code"] == status and isinstance(error["message"], str)
    (item,) = error["errors"]
    assert {"message", "domain", "reason"} <= set(item) <= ITEM
    assert all(isinstance(value, str) for value in item.values())


class Services:
    """Services whose answers are all checked, closed together."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def __call__(self, person: Person, version: str = "v3", short_lived: bool = True) -> Any:
        """A service as this person's client uses it."""
        http = Checked(person.credentials(short_lived), http=build_http())
        self._open.append(build("drive", version, http=http))
        return self._open[-1]

    def close(self) -> None:
        for service in self._open:
            service.close()


def refused(call: Callable[[], object]) -> tuple[int, str]:
    """Status and reason of the HttpError that a call raises."""
    try:
        call()
    except HttpError as error:
        return int(error.resp.status), item(error)["reason"]
    raise AssertionError("not refused")


def item(error: HttpError) -> dict[str, str]:
    """The inner level of an error. The SDK's `error_details` shows `details` in its place where there are any."""
    return dict(json.loads(error.content)["error"]["errors"][0])
