"""The fake Drive knows its users apart: what a client sees, whose storage a file takes, who may do what, and tokens."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import google.auth.transport.requests
import pytest
import requests
from google.auth.exceptions import RefreshError
from googleapiclient.errors import HttpError
from googleapiclient.http import MediaIoBaseUpload

from tests.storage.drive.fake.checked import Services, item, refused
from tests.storage.drive.handle import SCOPE, TOKEN_URI, Fake, Person, running

FOLDER = "application/vnd.google-apps.folder"
NOT_FOUND, FORBIDDEN = (404, "notFound"), (403, "insufficientFilePermissions")


@pytest.fixture
def fake() -> Fake:
    return running()


@pytest.fixture
def services() -> Iterator[Services]:
    with closing(Services()) as all_of_them:
        yield all_of_them


@pytest.fixture
def ana(fake: Fake) -> Person:
    return fake.person(("drive",))


@pytest.fixture
def ben(fake: Fake) -> Person:
    return fake.person(("drive",))


def create(sdk: Any, data: bytes | None = b"x", fields: str = "*", all_drives: bool = False, **body: Any) -> Any:
    media = None if data is None else MediaIoBaseUpload(io.BytesIO(data), "application/octet-stream")
    asked = {"body": {"name": "a", **body}, "media_body": media, "fields": fields, "supportsAllDrives": all_drives}
    return sdk.files().create(**asked).execute()


def folder(sdk: Any, **more: Any) -> str:
    return str(create(sdk, None, mimeType=FOLDER, **more)["id"])


def get(sdk: Any, id_: str, **asked: Any) -> Any:
    return sdk.files().get(fileId=id_, **asked).execute()


def update(sdk: Any, id_: str, data: bytes | None = None, **body: Any) -> Any:
    media = None if data is None else MediaIoBaseUpload(io.BytesIO(data), "application/octet-stream")
    return sdk.files().update(fileId=id_, body=body, media_body=media, fields="*").execute()


def usage(sdk: Any) -> int:
    return int(sdk.about().get(fields="storageQuota").execute()["storageQuota"]["usage"])


def test_drive_file_shows_what_its_client_made(fake: Fake, services: Services, ana: Person) -> None:
    ours, theirs = fake.person(), None
    theirs = services(ours.with_client("202-other.apps.googleusercontent.com"))
    whole, small = services(ours.with_client("202-other.apps.googleusercontent.com", ("drive",))), services(ours)
    mine, other = create(small)["id"], create(theirs)["id"]
    assert get(small, mine)["id"] == mine and get(whole, other)["id"] == other and get(whole, mine)["id"] == mine
    assert refused(lambda: get(small, other)) == NOT_FOUND
    assert refused(lambda: update(small, other, name="n")) == (403, "appNotAuthorizedToFile")
    assert [file["id"] for file in small.files().list().execute()["files"]] == [mine]
    assert refused(lambda: get(small, "root")) == NOT_FOUND and "parents" not in get(small, mine, fields="*")
    foreign = folder(theirs)
    assert refused(lambda: create(small, parents=[foreign])) == (403, "insufficientParentPermissions")
    assert create(small, parents=["root"])["name"] == "a"


def test_drive_file_and_the_files_of_other_users_of_the_client(fake: Fake, services: Services) -> None:
    ana, ben = fake.person(), fake.person()
    theirs = create(services(ana))["id"]
    assert refused(lambda: get(services(ben), theirs)) == NOT_FOUND
    ana.share(theirs, **{ben.name: "writer"})
    assert get(services(ben), theirs)["id"] == theirs
    with fake.ways(sees="user"):
        assert refused(lambda: get(services(ben), theirs)) == NOT_FOUND


def test_roles_in_a_shared_folder(services: Services, ana: Person, ben: Person) -> None:
    hers, his = services(ana), services(ben)
    above = folder(hers)
    inside = create(hers, parents=[above])["id"]
    assert refused(lambda: get(his, inside)) == NOT_FOUND
    ana.share(above, **{ben.name: "reader"})
    assert get(his, inside, fields="*")["capabilities"]["canEdit"] is False
    assert refused(lambda: update(his, inside, name="n")) == FORBIDDEN
    assert refused(lambda: create(his, parents=[above])) == (403, "insufficientParentPermissions")
    ana.share(above, **{ben.name: "writer"})
    told = update(his, inside, b"longer")
    assert (told["ownedByMe"], told["owners"][0]["emailAddress"], told["shared"]) == (False, ana.email, True)
    assert refused(lambda: update(his, inside, trashed=True)) == FORBIDDEN
    assert refused(lambda: his.files().delete(fileId=inside).execute()) == FORBIDDEN
    update(hers, inside, trashed=True)
    assert refused(lambda: get(his, inside)) == NOT_FOUND, "nobody sees another's trash"
    ana.share(above, **{ben.name: None})
    assert refused(lambda: get(his, above)) == NOT_FOUND


def test_permissions_through_the_api(services: Services, ana: Person, ben: Person) -> None:
    hers, his = services(ana), services(ben)
    file, given = create(hers)["id"], {"type": "user", "role": "reader", "emailAddress": ben.email}
    made = hers.permissions().create(fileId=file, body=given, sendNotificationEmail=False).execute()
    assert made["role"] == "reader" and get(his, file)["id"] == file
    told = hers.permissions().list(fileId=file, fields="permissions(emailAddress,role)").execute()["permissions"]
    assert sorted((item["emailAddress"], item["role"]) for item in told) == [
        (ana.email, "owner"),
        (ben.email, "reader"),
    ]
    assert refused(lambda: his.permissions().create(fileId=file, body=given).execute()) == FORBIDDEN
    hers.permissions().delete(fileId=file, permissionId=made["id"]).execute()
    assert refused(lambda: get(his, file)) == NOT_FOUND
    assert refused(lambda: hers.permissions().delete(fileId=file, permissionId=made["id"]).execute()) == NOT_FOUND


def test_a_file_counts_against_its_owner(services: Services, ana: Person, ben: Person) -> None:
    hers, his = services(ana), services(ben)
    above = folder(hers)
    ana.share(above, **{ben.name: "writer"})
    file = create(his, b"12345", parents=[above])["id"]
    assert (usage(hers), usage(his)) == (0, 5)
    ana.change(quota=10)
    own = create(hers, b"12345678", parents=[above])["id"]
    full = (403, "storageQuotaExceeded")
    assert refused(lambda: create(hers, b"123")) == full
    assert refused(lambda: update(his, own, bytes(11))) == full, "the owner pays for what an editor writes"
    assert update(his, own, bytes(10))["size"] == "10"
    update(hers, own, trashed=True)
    told = hers.about().get(fields="storageQuota").execute()["storageQuota"]
    assert told == {"limit": "10", "usage": "10", "usageInDrive": "10", "usageInDriveTrash": "10"}, "trash counts"
    hers.files().delete(fileId=own).execute()
    assert usage(hers) == 0
    hers.files().delete(fileId=above).execute()
    assert get(his, file)["id"] == file, "a deleted folder takes only its owner's files along"


def test_a_service_account_owns_no_storage(fake: Fake, services: Services, ana: Person) -> None:
    robot = fake.person(("drive",), service=True)
    sdk = services(robot, short_lived=False)
    above = folder(services(ana))
    ana.share(above, **{robot.name: "writer"})
    assert folder(sdk, parents=[above])
    with pytest.raises(HttpError, match="Service Accounts do not have storage quota") as caught:
        create(sdk, parents=[above])
    inner = item(caught.value)
    assert (inner["reason"], inner["domain"]) == ("storageQuotaExceeded", "usageLimits")
    shared = fake.drive("d", **{robot.name: "organizer"})
    assert create(sdk, parents=[shared], all_drives=True)["driveId"] == shared
    assert update(sdk, create(services(ana), parents=[above])["id"], b"more")["size"] == "4"


def test_shared_drives_are_there_for_those_who_say_they_know_them(
    fake: Fake, services: Services, ana: Person, ben: Person
) -> None:
    hers, his = services(ana), services(ben)
    drive = fake.drive("Team", **{ana.name: "organizer", ben.name: "writer"})
    assert [item["id"] for item in hers.drives().list().execute()["drives"]] == [drive]
    assert his.drives().get(driveId=drive).execute()["name"] == "Team"
    assert refused(lambda: create(hers, parents=[drive])) == NOT_FOUND
    told = create(his, parents=[drive], all_drives=True)
    assert (told["driveId"], told["parents"], "owners" in told, "ownedByMe" in told) == (drive, [drive], False, False)
    assert usage(his) == 0
    assert refused(lambda: get(hers, told["id"])) == NOT_FOUND
    assert get(hers, told["id"], supportsAllDrives=True)["id"] == told["id"]
    everywhere = {"supportsAllDrives": True, "includeItemsFromAllDrives": True}
    assert hers.files().list(supportsAllDrives=True).execute()["files"] == []
    for more in (everywhere, {**everywhere, "corpora": "drive", "driveId": drive}):
        assert [file["id"] for file in hers.files().list(**more).execute()["files"]] == [told["id"]]
    delete = {"fileId": told["id"], "supportsAllDrives": True}
    assert refused(lambda: his.files().delete(**delete).execute()) == FORBIDDEN
    trash = {**delete, "body": {"trashed": True}}
    assert refused(lambda: his.files().update(**trash).execute()) == FORBIDDEN
    assert hers.files().delete(**delete).execute() == ""


def test_scopes(fake: Fake, services: Services, ana: Person) -> None:
    file, scope = create(services(ana))["id"], (403, "insufficientPermissions")
    reading = services(ana.with_client("303-r.apps.googleusercontent.com", ("drive.readonly",)))
    knowing = services(ana.with_client("404-m.apps.googleusercontent.com", ("drive.metadata.readonly",)))
    assert reading.files().get_media(fileId=file).execute() == b"x"
    assert refused(lambda: create(reading)) == scope == refused(lambda: reading.files().generateIds().execute())
    assert get(knowing, file)["id"] == file
    assert refused(lambda: knowing.files().get_media(fileId=file).execute()) == scope
    assert refused(lambda: services(fake.person()).drives().list().execute()) == scope


def test_an_expired_token_is_refreshed_or_refused(services: Services, ana: Person) -> None:
    lasting, short = services(ana, short_lived=False), services(ana)
    file = create(lasting)["id"]
    ana.expire()
    assert get(lasting, file)["id"] == file and ana.asked("oauth2.token") == 2
    with pytest.raises(RefreshError):
        get(short, file)
    reply = requests.get(f"https://www.googleapis.com/drive/v3/files/{file}", timeout=30)
    assert reply.status_code == 401 and reply.json()["error"]["errors"][0]["reason"] == "authError"
    ana.expire(revoke=True)
    with pytest.raises(RefreshError, match="invalid_grant: Token has been expired or revoked"):
        get(lasting, file)


def test_tokens_end_by_themselves(services: Services, ana: Person) -> None:
    ana.change(token_life=-1)
    sdk = services(ana, short_lived=False)
    assert refused(lambda: sdk.files().list().execute()) == (401, "authError")
    ana.change(token_life=3599)
    assert sdk.files().list().execute()["files"] == []


def test_what_a_token_allows_can_be_asked(fake: Fake, ana: Person) -> None:
    asked = {"access_token": ana.holds["access_token"]}
    new = requests.get("https://oauth2.googleapis.com/tokeninfo", params=asked, timeout=30).json()
    assert new["scope"] == f"{SCOPE}drive" and new["azp"] == new["aud"] == ana.holds["client_id"]
    assert new["expires_in"].isdigit()
    for version in ("v1", "v2", "v3"):
        url = f"https://www.googleapis.com/oauth2/{version}/tokeninfo?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=30) as opened:
            assert json.load(opened)["scope"] == new["scope"]
    reply = requests.get("https://oauth2.googleapis.com/tokeninfo?access_token=made-up", timeout=30)
    assert reply.status_code == 400 and reply.json() == {
        "error": "invalid_token",
        "error_description": "Invalid Value",
    }


def test_the_token_endpoint(fake: Fake, ana: Person) -> None:
    client = {name: ana.holds[name] for name in ("client_id", "client_secret")}

    def ask(**form: str) -> tuple[int, Any]:
        reply = requests.post(TOKEN_URI, data={**client, **form}, timeout=30)
        return reply.status_code, reply.json()

    first = {"grant_type": "authorization_code", "code": fake.control("code", account=ana.name)}
    status, told = ask(**first)
    assert status == 200 and told["refresh_token"] == ana.holds["refresh_token"] and told["expires_in"] == 3599
    assert ask(grant_type="authorization_code", code="4/made-up")[1]["error"] == "invalid_grant"
    again = {"grant_type": "refresh_token", "refresh_token": told["refresh_token"]}
    assert ask(**again)[1]["scope"] == f"{SCOPE}drive"
    assert ask(**again, client_secret="wrong") == (
        401,
        {"error": "invalid_client", "error_description": "The OAuth client was not found."},
    )
    assert ask(grant_type="refresh_token", refresh_token="1//made-up")[1]["error"] == "invalid_grant"
    credentials = ana.credentials()
    with requests.Session() as session:
        credentials.refresh(google.auth.transport.requests.Request(session))
    assert credentials.valid


def test_a_service_account_signs_for_its_token(fake: Fake) -> None:
    robot, other = fake.person(("drive.file",), service=True), fake.person(("drive.file",), service=True)
    with requests.Session() as session:
        transport = google.auth.transport.requests.Request(session)
        good, forged = robot.credentials(), robot.credentials()
        good.refresh(transport)
        forged._signer = other.credentials()._signer
        with pytest.raises(RefreshError, match="invalid_grant"):
            forged.refresh(transport)
    asked = {"access_token": good.token}
    told = requests.get("https://oauth2.googleapis.com/tokeninfo", params=asked, timeout=30).json()
    assert told["scope"] == f"{SCOPE}drive.file"


PROGRAM = """
import google.auth, googleapiclient.discovery, sys
credentials, _ = google.auth.default(scopes=[sys.argv[1]])
with googleapiclient.discovery.build("drive", "v3", credentials=credentials) as service:
    print(service.files().create(body={"mimeType": sys.argv[2]}).execute()["id"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("robot", [False, True])
def test_a_program_that_knows_nothing_of_the_fake_uses_it(fake: Fake, tmp_path: Any, robot: bool) -> None:
    person = fake.person(service=robot)
    keys = tmp_path / "credentials.json"
    keys.write_text(json.dumps(person.service_account() if robot else person.authorized_user()))
    environ = {**os.environ, **fake.environ(), "GOOGLE_APPLICATION_CREDENTIALS": str(keys)}
    command = [sys.executable, "-c", PROGRAM, f"{SCOPE}drive.file", FOLDER]
    made = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100)
    assert person.look()["files"][made.stdout.strip()]["mimeType"] == FOLDER
