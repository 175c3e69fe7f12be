"""The fake Drive keeps files as the published protocol says, asked by the real SDK; every answer is held against the
discovery document."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from googleapiclient.http import MediaIoBaseUpload

from tests.storage.drive.fake.checked import Services, refused
from tests.storage.drive.fake.schema import problems
from tests.storage.drive.handle import Fake, Person, running

FOLDER, SHORTCUT = "application/vnd.google-apps.folder", "application/vnd.google-apps.shortcut"


@pytest.fixture
def fake() -> Fake:
    return running()


@pytest.fixture
def person(fake: Fake) -> Person:
    return fake.person(("drive",))


@pytest.fixture
def services() -> Iterator[Services]:
    with closing(Services()) as all_of_them:
        yield all_of_them


@pytest.fixture
def sdk(services: Services, person: Person) -> Any:
    return services(person)


def media(data: bytes = b"x") -> MediaIoBaseUpload:
    return MediaIoBaseUpload(io.BytesIO(data), "application/octet-stream")


def make(sdk: Any, data: bytes = b"x", fields: str = "*", **body: Any) -> dict[str, Any]:
    """A file as it is told on being made."""
    return dict(sdk.files().create(body={"name": "a", **body}, media_body=media(data), fields=fields).execute())


def folder(sdk: Any, **body: Any) -> str:
    return str(sdk.files().create(body={"name": "f", "mimeType": FOLDER, **body}).execute()["id"])


def new_ids(sdk: Any, count: int, **kwargs: Any) -> list[str]:
    return list(sdk.files().generateIds(count=count, **kwargs).execute()["ids"])


def test_a_generated_id_is_good_for_one_file_ever(sdk: Any) -> None:
    id_, other = new_ids(sdk, 2)
    assert make(sdk, id=id_)["id"] == id_ and folder(sdk, id=other) == other
    assert refused(lambda: make(sdk, id=id_)) == (409, "fileIdInUse")
    assert refused(lambda: make(sdk, id="1-made-up")) == (400, "fileIdNotUsable")
    assert sdk.files().delete(fileId=id_).execute() == ""
    assert refused(lambda: make(sdk, id=id_)) == (400, "invalid"), "burnt for ever"
    assert len({make(sdk)["id"], make(sdk)["id"]}) == 2, "without an id there are two files of one name"


def test_ids_by_count_and_type(sdk: Any) -> None:
    assert len(set(sdk.files().generateIds().execute()["ids"])) == 10 and len(new_ids(sdk, 1000)) == 1000
    assert refused(lambda: new_ids(sdk, 1001)) == (400, "invalid")
    (file,), (link,) = new_ids(sdk, 1), new_ids(sdk, 1, type="shortcuts")
    shortcut = {"mimeType": SHORTCUT, "shortcutDetails": {"targetId": make(sdk)["id"]}}
    create = sdk.files().create
    assert refused(lambda: create(body={"id": file, **shortcut}).execute()) == (400, "fileIdNotUsable")
    assert create(body={"id": link, **shortcut}).execute()["id"] == link
    doc = {"id": file, "mimeType": "application/vnd.google-apps.document"}
    assert refused(lambda: create(body=doc).execute())[0] == 403
    assert refused(lambda: make(sdk, id=new_ids(sdk, 1, space="appDataFolder")[0])) == (400, "fileIdNotUsable")


def test_ids_bound_to_the_user_who_was_given_them(fake: Fake, services: Services, sdk: Any) -> None:
    other = services(fake.person(("drive",)))
    first, second = new_ids(sdk, 2)
    with fake.ways(ids="owner"):
        assert refused(lambda: make(other, id=first)) == (400, "fileIdNotUsable")
        make(sdk, id=first)
        assert refused(lambda: make(other, id=first)) == (409, "fileIdInUse"), "taken is taken, for everybody"
    assert make(other, id=second)["id"] == second


@pytest.mark.parametrize(
    "data",
    [b"", b"\r", b"a\r\n", b"\n--", b"--==\r\n\r\n--", bytes(range(256)) * 300],
    ids=["nothing", "half a line end", "a line end", "a boundary's beginning", "like a boundary", "every byte"],
)
def test_contents_and_their_checksums(sdk: Any, data: bytes) -> None:
    told = make(sdk, data)
    assert sdk.files().get_media(fileId=told["id"]).execute() == data
    assert told["size"] == told["quotaBytesUsed"] == str(len(data))
    for name in ("md5", "sha1", "sha256"):
        assert told[f"{name}Checksum"] == hashlib.new(name, data).hexdigest()


def test_contents_without_metadata_and_metadata_without_contents(sdk: Any) -> None:
    assert sdk.files().create(media_body=media(b"abc"), fields="name,size").execute() == {
        "name": "Untitled",
        "size": "3",
    }
    empty = sdk.files().create(body={"name": "n"}, fields="id,size,mimeType").execute()
    assert (empty["size"], empty["mimeType"]) == ("0", "application/octet-stream")
    id_ = folder(sdk)
    assert "size" not in sdk.files().get(fileId=id_, fields="*").execute()
    assert refused(lambda: sdk.files().get_media(fileId=id_).execute()) == (403, "fileNotDownloadable")
    assert refused(lambda: make(sdk, bytes((5 << 20) + 1))) == (413, "uploadTooLarge")
    assert make(sdk, bytes(5 << 20), fields="size") == {"size": str(5 << 20)}


def test_only_the_fields_asked_for_are_told(sdk: Any) -> None:
    id_ = make(sdk, properties={"k": "v"})["id"]

    def told(fields: str | None) -> Any:
        return sdk.files().get(fileId=id_, fields=fields).execute()

    assert set(told(None)) == {"kind", "id", "name", "mimeType"}
    assert told("size,owners(me,kind)") == {"size": "1", "owners": [{"me": True, "kind": "drive#user"}]}
    assert told("owners/me,capabilities/canEdit") == {"owners": [{"me": True}], "capabilities": {"canEdit": True}}
    assert told("properties/k") == {"properties": {"k": "v"}}
    for wrong in ("nonsense", "id,,name", "owners(me", "owners/nonsense", "id)"):
        assert refused(lambda wrong=wrong: told(wrong)) == (400, "invalidParameter")
    assert refused(lambda: sdk.about().get().execute()) == (400, "required")


def test_the_check_of_answers_sees_what_does_not_fit() -> None:
    good = {"id": "1", "size": "5", "createdTime": "2026-01-02T03:04:05.678Z", "parents": ["x"]}
    assert problems("v3", "File", good) == []
    bad: list[dict[str, Any]] = [
        {"id": 1}, {"size": 5}, {"size": "five"}, {"createdTime": "2026-01-02T03:04:05Z"}, {"parents": "x"},
        {"nonsense": 1}, {"trashed": "true"}, {"owners": [{"nonsense": 1}]}, {"properties": {"k": 1}},
    ]  # fmt: skip
    assert all(len(problems("v3", "File", value)) == 1 for value in bad)


@pytest.mark.parametrize(
    ("header", "status", "body", "told"),
    [
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-4", 206, b"6789", "bytes 6-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
    ],
)
def test_ranges(person: Person, sdk: Any, header: str, status: int, body: bytes | None, told: str) -> None:
    request = sdk.files().get_media(fileId=make(sdk, b"0123456789")["id"])
    reply, found = request.http.request(request.uri, headers={"range": header})
    assert (reply.status, reply["content-range"]) == (status, told)
    assert body is None or found == body


def test_updates(sdk: Any) -> None:
    first, above = make(sdk, properties={"a": "1", "b": "2"}, appProperties={"mine": "3"}), folder(sdk)
    request = sdk.files().update(
        fileId=first["id"],
        addParents=above,
        removeParents=first["parents"][0],
        body={"name": "n", "properties": {"a": None, "c": "4"}},
        fields="*",
    )
    second = request.execute()
    assert (second["name"], second["properties"], second["parents"]) == ("n", {"b": "2", "c": "4"}, [above])
    assert second["md5Checksum"] == first["md5Checksum"] and int(second["version"]) > int(first["version"])
    assert second["headRevisionId"] == first["headRevisionId"] and second["createdTime"] == first["createdTime"]
    third = sdk.files().update(fileId=first["id"], media_body=media(b"new"), fields="*").execute()
    assert third["headRevisionId"] != first["headRevisionId"] and third["size"] == "3"
    update = sdk.files().update
    for body in ({"parents": [above]}, {"id": "x"}, {"size": "1"}):
        assert refused(lambda body=body: update(fileId=first["id"], body=body).execute()) == (403, "fieldNotWritable")
    other = folder(sdk)
    assert refused(lambda: update(fileId=first["id"], addParents=other).execute()) == (403, "cannotAddParent")
    long = {"properties": {"key": "v" * 122}}
    assert refused(lambda: update(fileId=first["id"], body=long).execute()) == (403, "propertyTooLong")


def test_v3_ignores_if_match(sdk: Any) -> None:
    request = sdk.files().update(fileId=make(sdk)["id"], media_body=media(b"new"), fields="size")
    request.headers["If-Match"] = '"stale"'
    assert request.execute() == {"size": "3"}


def test_trash_and_deletion_take_what_is_inside(sdk: Any) -> None:
    above = folder(sdk)
    inside = make(sdk, parents=[above])
    sdk.files().update(fileId=above, body={"trashed": True}).execute()
    told = sdk.files().get(fileId=inside["id"], fields="trashed,explicitlyTrashed").execute()
    assert told == {"trashed": True, "explicitlyTrashed": False}
    assert sdk.files().get_media(fileId=inside["id"]).execute() == b"x", "the trash can be read"
    sdk.files().update(fileId=above, body={"trashed": False}).execute()
    assert sdk.files().get(fileId=inside["id"], fields="trashed").execute() == {"trashed": False}
    sdk.files().delete(fileId=above).execute()
    for id_ in (above, inside["id"], "never"):
        assert refused(lambda id_=id_: sdk.files().get(fileId=id_).execute()) == (404, "notFound")
        assert refused(lambda id_=id_: sdk.files().delete(fileId=id_).execute()) == (404, "notFound")


def test_shortcuts(sdk: Any) -> None:
    target = make(sdk, b"data")["id"]
    body = {"name": "s", "mimeType": SHORTCUT, "shortcutDetails": {"targetId": target}}
    link = sdk.files().create(body=body, fields="id,size,shortcutDetails").execute()
    assert link["shortcutDetails"]["targetId"] == target and "size" not in link
    assert refused(lambda: sdk.files().get_media(fileId=link["id"]).execute()) == (403, "fileNotDownloadable")


def test_times_are_the_services_own(fake: Fake, sdk: Any) -> None:
    with fake.ways(ahead=86400.0):
        told = make(sdk)
        reply = sdk._http.request("https://www.googleapis.com/drive/v3/about?fields=kind")[0]
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    assert told["createdTime"] == told["modifiedTime"] and told["createdTime"].startswith(tomorrow)
    assert time.strftime("%d %b %Y", time.gmtime(time.time() + 86400)) in reply["date"]
    fixed = make(sdk, createdTime="2020-01-01T00:00:00.5Z", modifiedTime="2021-01-01T00:00:00Z")
    assert (fixed["createdTime"], fixed["modifiedTime"]) == ("2020-01-01T00:00:00.500Z", "2021-01-01T00:00:00.000Z")
