"""Faults planned on the fake Drive happen, once and to the user they were planned for, and leave what they promise."""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httplib2
import pytest
from googleapiclient.errors import HttpError
from googleapiclient.http import MediaIoBaseUpload

from tests.storage.drive.fake.checked import Services, item, refused
from tests.storage.drive.handle import Fake, Person, running


@pytest.fixture
def fake() -> Fake:
    return running()


@pytest.fixture
def person(fake: Fake) -> Person:
    return fake.person()


@pytest.fixture
def services() -> Iterator[Services]:
    with closing(Services()) as all_of_them:
        yield all_of_them


@pytest.fixture
def sdk(services: Services, person: Person) -> Any:
    return services(person)


def create(sdk: Any, data: bytes = b"x" * 100, **body: Any) -> Any:
    media = MediaIoBaseUpload(io.BytesIO(data), "application/octet-stream")
    return sdk.files().create(body={"name": "a", **body}, media_body=media, fields="*").execute()


@pytest.mark.parametrize(
    ("kind", "status", "reason", "domain"),
    [
        ("429", 429, "rateLimitExceeded", "usageLimits"),
        ("rateLimit", 403, "rateLimitExceeded", "usageLimits"),
        ("userRateLimit", 403, "userRateLimitExceeded", "usageLimits"),
        ("dailyLimit", 403, "dailyLimitExceeded", "usageLimits"),
        ("quota", 403, "storageQuotaExceeded", "global"),
        ("service-quota", 403, "storageQuotaExceeded", "usageLimits"),
        ("forbidden", 403, "insufficientFilePermissions", "global"),
        ("no-scope", 403, "insufficientPermissions", "global"),
        ("not-found", 404, "notFound", "global"),
        ("500-before", 500, "internalError", "global"),
    ],
)
def test_refusals(person: Person, sdk: Any, kind: str, status: int, reason: str, domain: str) -> None:
    person.fault(kind, route="v3.files.create")
    with pytest.raises(HttpError) as caught:
        create(sdk)
    inner = item(caught.value)
    assert (caught.value.resp.status, inner["reason"], inner["domain"]) == (status, reason, domain)
    assert person.look()["files"] == {} and person.look()["met"] == [f"{kind} v3.files.create/multipart"]
    assert create(sdk)["size"] == "100", "once only"


def test_waiting_times_and_other_statuses(person: Person, sdk: Any) -> None:
    person.fault("429", retry_after=7)
    person.fault("500-before", status=503)
    with pytest.raises(HttpError) as caught:
        create(sdk)
    assert caught.value.resp["retry-after"] == "7"
    with pytest.raises(HttpError) as caught:
        create(sdk)
    assert caught.value.resp.status == 503 and "html" in caught.value.resp["content-type"]


def test_the_sdk_sends_again_what_it_may(person: Person, sdk: Any) -> None:
    request = sdk.files().list()
    request._sleep = lambda seconds: None
    for kind in ("429", "rateLimit", "userRateLimit", "500-before"):
        person.fault(kind, route="v3.files.list")
        assert request.execute(num_retries=1)["files"] == []
    person.fault("dailyLimit", route="v3.files.list")
    assert refused(lambda: request.execute(num_retries=1)) == (403, "dailyLimitExceeded")


def test_an_effect_without_its_answer(person: Person, sdk: Any) -> None:
    first, second, third = sdk.files().generateIds(count=3).execute()["ids"]
    person.fault("500-after", route="v3.files.create")
    assert refused(lambda: create(sdk, id=first))[0] == 500
    assert list(person.look()["files"]) == [first]
    person.fault("drop-after", route="v3.files.create")
    assert refused(lambda: create(sdk, id=second)) == (409, "fileIdInUse"), "httplib2 asks again by itself"
    assert second in person.look()["files"]
    person.fault("drop-after", route="v3.files.create")
    create(sdk)
    assert len(person.look()["files"]) == 4, "without an id there are two"
    person.fault("drop-before", route="v3.files.create", times=-1)
    with pytest.raises((ConnectionError, httplib2.HttpLib2Error)):
        create(sdk, id=third)
    assert third not in person.look()["files"]


def test_an_answer_that_takes_too_long(fake: Fake, person: Person, services: Services) -> None:
    sdk = services(person)
    (id_,) = sdk.files().generateIds(count=1).execute()["ids"]
    sdk._http.http.timeout = 0.3
    sdk._http.http.close()
    person.fault("hang-after", route="v3.files.create", seconds=0.8)
    with pytest.raises(TimeoutError):
        create(sdk, id=id_)
    assert id_ in person.look()["files"]
    sdk._http.http.timeout = 60
    person.fault("slow", route="v3.files.get", seconds=0.1)
    begun = time.monotonic()
    assert sdk.files().get(fileId=id_).execute()["id"] == id_ and time.monotonic() - begun >= 0.1


def test_downloads_that_break_or_lie(person: Person, sdk: Any) -> None:
    data = bytes(range(200))
    id_ = create(sdk, data)["id"]
    get = sdk.files().get_media(fileId=id_)
    person.fault("short", route="v3.files.get/media")
    assert get.execute() == data[:100]
    person.fault("flip", route="v3.files.get/media")
    assert get.execute() == data[:-1] + bytes([data[-1] ^ 1])
    person.fault("cut", route="v3.files.get/media")
    with pytest.raises(http.client.IncompleteRead):
        get.execute()
    person.fault("html", route="v3.files.get/media")
    assert b"hotel" in get.execute()
    assert get.execute() == data


def test_uploads_that_arrive_damaged_say_so_by_their_checksum(person: Person, sdk: Any) -> None:
    good = create(sdk)
    person.fault("flip", route="v3.files.create")
    assert create(sdk)["md5Checksum"] != good["md5Checksum"]
    person.fault("flip", route="v3.upload/put")
    media = MediaIoBaseUpload(io.BytesIO(b"x" * 100), "application/octet-stream", resumable=True)
    assert sdk.files().create(media_body=media, fields="md5Checksum").execute() != {"md5Checksum": good["md5Checksum"]}


@pytest.mark.parametrize("status", [404, 410])
def test_upload_sessions_get_lost(person: Person, sdk: Any, status: int) -> None:
    person.fault("no-session", route="v3.upload", status=status)
    media = MediaIoBaseUpload(io.BytesIO(b"x" * 100), "application/octet-stream", resumable=True)
    with pytest.raises(HttpError) as caught:
        sdk.files().create(media_body=media).execute()
    assert caught.value.resp.status == status


def test_files_rot_and_vanish(fake: Fake, sdk: Any) -> None:
    told = create(sdk, b"0123456789")
    fake.control("damage", file=told["id"], at=3)
    assert sdk.files().get_media(fileId=told["id"]).execute() == b"0122456789"
    assert sdk.files().get(fileId=told["id"], fields="md5Checksum").execute()["md5Checksum"] != told["md5Checksum"]
    fake.control("damage", file=told["id"], keep=4)
    assert sdk.files().get(fileId=told["id"], fields="size").execute() == {"size": "4"}
    hidden = create(sdk, b"0123456789")
    fake.control("damage", file=hidden["id"], at=3, hidden=True)
    assert sdk.files().get(fileId=hidden["id"], fields="md5Checksum").execute()["md5Checksum"] == hidden["md5Checksum"]
    fake.control("remove", file=told["id"], trash=True)
    assert sdk.files().get(fileId=told["id"], fields="trashed").execute() == {"trashed": True}
    fake.control("remove", file=told["id"])
    assert refused(lambda: sdk.files().get(fileId=told["id"]).execute()) == (404, "notFound")


def test_a_slow_line(person: Person, sdk: Any) -> None:
    id_ = create(sdk, bytes(200_000))["id"]
    person.change(rate=1e6, latency=0.1)
    begun = time.monotonic()
    sdk.files().get_media(fileId=id_).execute()
    assert 0.3 <= time.monotonic() - begun < 3


def test_faults_by_route_text_count_and_chance(person: Person, sdk: Any) -> None:
    person.fault("429", route="v3.files.create", match='"name": "b"', skip=1, times=2)
    assert create(sdk) and create(sdk, name="b")
    for _ in range(2):
        assert refused(lambda: create(sdk, name="b"))[0] == 429
    assert create(sdk, name="b")
    person.fault("429", route="v3.files.list", chance=0.5, times=-1)
    outcomes = []
    for _ in range(40):
        try:
            outcomes.append(bool(sdk.files().list().execute()))
        except HttpError:
            outcomes.append(False)
    assert 5 < sum(outcomes) < 35
    person.heal()
    assert sdk.files().list().execute()


def test_token_faults(person: Person, services: Services) -> None:
    sdk = services(person, short_lived=False)
    person.fault("401", route="v3.files.list")
    assert sdk.files().list().execute()["files"] == []
    assert person.asked("oauth2.token") == 2, "the SDK takes another token"
    person.fault("500-before", route="oauth2.token", status=503)
    person.expire()
    assert sdk.files().list().execute()["files"] == []


def test_faults_meet_the_user_they_were_planned_for(fake: Fake, services: Services, person: Person, sdk: Any) -> None:
    other = fake.person()
    other.fault("429", times=-1)
    assert create(sdk) and refused(lambda: create(services(other)))[0] == 429
    assert person.look()["met"] == []
