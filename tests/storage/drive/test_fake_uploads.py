"""Resumable uploads to the fake Drive, part by part, and the conditional writes of v2; asked by the real SDK."""

from __future__ import annotations

import http.client
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from email.message import Message
from pathlib import Path
from random import Random
from typing import Any

import pytest
from googleapiclient.errors import HttpError, ResumableUploadError
from googleapiclient.http import MediaFileUpload, MediaIoBaseUpload

from tests.storage.drive.fake.checked import Services, refused
from tests.storage.drive.fake.files import Call
from tests.storage.drive.fake.media import run
from tests.storage.drive.fake.schema import find
from tests.storage.drive.fake.world import Access, Grant, World, scopes
from tests.storage.drive.handle import Fake, Person, running
from tests.storage.drive.processes import race_etag, race_ids, send, small
from tests.storage.remote.work import SPAWN, start

UNIT = 256 << 10
DATA = Random(1).randbytes(3 * UNIT + 5)


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


def parts(data: bytes = DATA, chunk: int = UNIT) -> MediaIoBaseUpload:
    return MediaIoBaseUpload(io.BytesIO(data), "application/octet-stream", chunksize=chunk, resumable=True)


def begin(sdk: Any, size: int | None = len(DATA), **body: Any) -> str:
    """The address of a new session."""
    headers = {"content-type": "application/json"} | ({"x-upload-content-length": str(size)} if size else {})
    uri = "https://www.googleapis.com/upload/drive/v3/files?uploadType=resumable&fields=id,size"
    reply, _ = sdk._http.request(uri, "POST", body=json.dumps({"name": "a", **body}), headers=headers)
    assert reply.status == 200 and reply["content-length"] == "0"
    return str(reply["location"])


def put(sdk: Any, uri: str, body: bytes = b"", range_: str | None = None) -> tuple[int, str | None, bytes]:
    """Status, Range and body of the answer to a PUT."""
    reply, told = sdk._http.request(uri, "PUT", body=body, headers={"content-range": range_} if range_ else {})
    return reply.status, reply.get("range"), told


def test_part_by_part(sdk: Any, person: Person) -> None:
    request = sdk.files().create(body={"name": "a"}, media_body=parts(), fields="id,size")
    seen = []
    done = None
    while done is None:
        status, done = request.next_chunk()
        seen.append(status.resumable_progress if status else None)
    assert seen == [UNIT, 2 * UNIT, 3 * UNIT, None]
    assert sdk.files().get_media(fileId=done["id"]).execute() == DATA
    assert person.look()["counts"]["v3.upload/put"] == 4 and person.look()["received"] == len(DATA)


def test_questions_on_the_way_and_after_the_end(sdk: Any) -> None:
    uri, whole = begin(sdk), f"bytes */{len(DATA)}"
    assert uri.startswith("https://www.googleapis.com/upload/drive/v3/files?uploadType=resumable&upload_id=")
    assert put(sdk, uri, b"", whole) == (308, None, b""), "no Range: nothing is held"
    assert put(sdk, uri, DATA[:UNIT], f"bytes 0-{UNIT - 1}/*")[:2] == (308, f"bytes=0-{UNIT - 1}")
    assert put(sdk, uri, b"", "bytes */*")[:2] == (308, f"bytes=0-{UNIT - 1}")
    status, _, told = put(sdk, uri, DATA[UNIT:], f"bytes {UNIT}-{len(DATA) - 1}/{len(DATA)}")
    assert status == 200 and json.loads(told)["size"] == str(len(DATA))
    assert put(sdk, uri, b"", whole) == (200, None, told)
    assert put(sdk, uri, DATA[UNIT:], f"bytes {UNIT}-{len(DATA) - 1}/{len(DATA)}") == (200, None, told)


def test_parts_that_do_not_fit(sdk: Any) -> None:
    uri, total = begin(sdk), len(DATA)
    assert put(sdk, uri, DATA[: UNIT + 9], f"bytes 0-{UNIT + 8}/{total}")[1] == f"bytes=0-{UNIT - 1}", "whole units"
    status, _, told = put(sdk, uri, DATA[2 * UNIT :], f"bytes {2 * UNIT}-{total - 1}/{total}")
    assert status == 503 and b"upload offset is 524288 byte(s), which exceeds already uploaded size of 262144" in told
    assert put(sdk, uri, DATA[UNIT : UNIT + 9], f"bytes {UNIT}-{UNIT + 8}/{total}")[0] == 400, "too short"
    assert put(sdk, uri, DATA[UNIT:], f"bytes {UNIT}-{total - 2}/{total}")[0] == 400, "the range is not the body's"
    assert put(sdk, uri, DATA[UNIT:], f"bytes {UNIT}-{total - 1}/{total + 1}")[0] == 400, "another total"
    assert put(sdk, uri, DATA, "bytes nonsense")[0] == 400
    assert put(sdk, uri, DATA, f"bytes 0-{total - 1}/{total}")[0] == 200, "what is held already is passed over"


def test_whole_files_and_empty_ones_in_one_put(sdk: Any) -> None:
    assert json.loads(put(sdk, begin(sdk, None), DATA)[2])["size"] == str(len(DATA))
    request = sdk.files().create(body={"name": "a"}, media_body=parts(b""), fields="size")
    assert request.execute() == {"size": "0"}


def test_sessions_end(fake: Fake, person: Person, sdk: Any) -> None:
    uri = begin(sdk)
    fake.control("expire_sessions", account=person.name)
    assert put(sdk, uri, b"", "bytes */*")[0] == 404
    assert put(sdk, uri.replace("upload_id=", "upload_id=x"), b"", "bytes */*")[0] == 404
    other = begin(sdk)
    assert sdk._http.request(other, "DELETE")[0].status == 499
    assert put(sdk, other, b"", "bytes */*")[0] == 404


def test_an_upload_server_may_keep_less_than_it_was_sent(person: Person, sdk: Any) -> None:
    person.fault("keep", route="v3.upload", bytes=UNIT + 7)
    person.fault("keep", route="v3.upload", bytes=0)
    uri, total = begin(sdk), len(DATA)
    assert put(sdk, uri, DATA, f"bytes 0-{total - 1}/{total}")[:2] == (308, f"bytes=0-{UNIT - 1}")
    assert put(sdk, uri, DATA[UNIT:], f"bytes {UNIT}-{total - 1}/{total}")[:2] == (308, f"bytes=0-{UNIT - 1}")
    person.fault("keep", route="v3.upload", bytes=UNIT)
    done = sdk.files().create(body={"name": "a"}, media_body=parts(chunk=2 * UNIT), fields="size").execute()
    assert done == {"size": str(total)}, "the SDK goes on from Range"


def test_room_is_asked_for_at_the_beginning_and_at_the_end(person: Person, sdk: Any) -> None:
    person.change(quota=len(DATA))
    uri = begin(sdk)
    request = sdk.files().create(body={"name": "b"}, media_body=small(b"x"))
    request.execute()
    status, _, told = put(sdk, uri, DATA)
    assert status == 403 and json.loads(told)["error"]["errors"][0]["reason"] == "storageQuotaExceeded"
    late = sdk.files().create(body={"name": "c"}, media_body=parts())
    with pytest.raises(ResumableUploadError, match="quota"):
        late.execute()


def test_two_uploads_to_one_id(fake: Fake, sdk: Any) -> None:
    (id_,) = sdk.files().generateIds(count=1).execute()["ids"]
    first, second = begin(sdk, id=id_), begin(sdk, id=id_)
    assert put(sdk, second, DATA)[0] == 200
    status, _, told = put(sdk, first, DATA)
    assert status == 409 and json.loads(told)["error"]["errors"][0]["reason"] == "fileIdInUse"
    assert put(sdk, first, b"", "bytes */*")[0] == 409, "it stays refused"
    third = begin(sdk, id=id_)
    assert put(sdk, third, DATA)[0] == 409
    again = sdk.files().create(body={"id": id_}, media_body=parts())
    with fake.ways(race="start"), pytest.raises(ResumableUploadError, match="409"):
        again.execute()


def test_an_upload_goes_on_in_another_process(fake: Fake, person: Person, sdk: Any, tmp_path: Path) -> None:
    path, note = tmp_path / "data", tmp_path / "note"
    path.write_bytes(Random(2).randbytes(20 * UNIT))
    (id_,) = sdk.files().generateIds(count=1).execute()["ids"]
    person.change(rate=1e6)
    process = start(send, fake.port, person.holds["access_token"], path, id_, note)
    while not note.exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    person.change(rate=0)
    (session,) = person.look()["sessions"]
    assert 0 < session["held"] < 20 * UNIT and session["held"] % UNIT == 0
    media = MediaFileUpload(str(path), "application/octet-stream", chunksize=UNIT, resumable=True)
    request = sdk.files().create(body={}, media_body=media)
    request.resumable_uri, request._in_error_state = note.read_text(), True
    assert request.execute()["id"] == id_
    media.stream().close()
    assert sdk.files().get_media(fileId=id_).execute() == path.read_bytes()
    assert person.look()["counts"]["v3.upload/put"] <= 22, "nothing that was held is sent again"


def test_what_arrived_of_a_part_that_broke_off_is_held_in_whole_units(fake: Fake, person: Person, sdk: Any) -> None:
    uri = begin(sdk)
    with closing(http.client.HTTPConnection("127.0.0.1", fake.port)) as line:
        line.putrequest("PUT", uri.removeprefix("https://www.googleapis.com"), skip_host=True)
        line.putheader("Host", "www.googleapis.com")
        line.putheader("Authorization", f"Bearer {person.holds['access_token']}")
        line.putheader("Content-Range", f"bytes 0-{len(DATA) - 1}/{len(DATA)}")
        line.putheader("Content-Length", str(len(DATA)))
        line.endheaders(DATA[: 2 * UNIT + 9])
    for _ in range(500):
        held = put(sdk, uri, b"", "bytes */*")[1]
        if held:
            break
        time.sleep(0.01)
    assert held == f"bytes=0-{2 * UNIT - 1}"


def test_contents_of_a_file_are_replaced_in_parts_too(sdk: Any) -> None:
    id_ = sdk.files().create(body={"name": "a"}, media_body=small(b"old")).execute()["id"]
    assert sdk.files().update(fileId=id_, media_body=parts(), fields="size").execute() == {"size": str(len(DATA))}
    assert sdk.files().get_media(fileId=id_).execute() == DATA


def test_v2_tells_an_etag_that_every_change_moves(fake: Fake, services: Services, person: Person) -> None:
    v2 = services(person, "v2")
    body = {"title": "t", "properties": [{"key": "k", "value": "v", "visibility": "PUBLIC"}]}
    first = v2.files().insert(body=body, media_body=small(b"one")).execute()
    assert (first["title"], first["fileSize"], first["labels"]["trashed"]) == ("t", "3", False)
    assert first["properties"][0]["value"] == "v"
    etags = [first["etag"]]
    etags.append(v2.files().update(fileId=first["id"], media_body=small(b"two")).execute()["etag"])
    etags.append(v2.files().patch(fileId=first["id"], body={"title": "u"}).execute()["etag"])
    fake.control("touch", file=first["id"])
    etags.append(v2.files().get(fileId=first["id"], fields="etag").execute()["etag"])
    assert len(set(etags)) == 4
    assert v2.files().get_media(fileId=first["id"]).execute() == b"two"
    request = v2.files().get(fileId=first["id"])
    request.headers["If-None-Match"] = etags[-1]
    with pytest.raises(HttpError) as caught:
        request.execute()
    assert caught.value.resp.status == 304


def test_v2_writes_only_over_the_etag_it_was_given(services: Services, person: Person) -> None:
    v2 = services(person, "v2")
    file = v2.files().insert(body={"title": "t"}, media_body=small(b"one")).execute()

    def guarded(request: Any, etag: str = file["etag"]) -> Any:
        request.headers["If-Match"] = etag
        return request

    update = v2.files().update
    second = guarded(update(fileId=file["id"], media_body=small(b"two"))).execute()
    stale = (
        guarded(update(fileId=file["id"], media_body=small(b"three"))),
        guarded(v2.files().patch(fileId=file["id"], body={"title": "u"})),
        guarded(v2.files().delete(fileId=file["id"])),
    )
    for request in stale:
        assert refused(request.execute) == (412, "conditionNotMet")
    with pytest.raises(ResumableUploadError, match="412"):
        guarded(update(fileId=file["id"], media_body=parts())).execute()
    assert v2.files().get_media(fileId=file["id"]).execute() == b"two"
    guarded(update(fileId=file["id"], media_body=small(b"3")), "*").execute()
    unguarded = update(fileId=file["id"], media_body=small(b"4")).execute()
    assert guarded(v2.files().delete(fileId=file["id"]), unguarded["etag"]).execute() == "" != second


def test_a_method_has_the_world_for_itself() -> None:
    world = World()
    grant = Grant(world.account("a"), "c", scopes(["drive"]))
    found = find("POST", "/drive/v3/files")
    assert found
    call = Call(Access(world, grant, False), found[0], {}, {}, Message(), {"name": "n"}, None, "", 0.0)
    thread = threading.Thread(target=run, args=(call,))
    with world.lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and len(world.tree.files) == 1
    thread.join()
    assert len(world.tree.files) == 2


@pytest.mark.parametrize("way", ["ids", "etag"])
def test_processes_race_and_one_wins(fake: Fake, person: Person, sdk: Any, tmp_path: Path, way: str) -> None:
    racers, rounds = 4, 12
    barrier, token = SPAWN.Barrier(racers), person.holds["access_token"]
    work: Callable[..., None] = race_ids if way == "ids" else race_etag
    about: tuple[Any, ...] = (sdk.files().generateIds(count=rounds).execute()["ids"],)
    if way == "etag":
        about = (sdk.files().create(media_body=small(b"")).execute()["id"], rounds)
    files = [tmp_path / str(racer) for racer in range(racers)]
    running_ = [start(work, fake.port, token, n, *about, barrier, file) for n, file in enumerate(files)]
    for process in running_:
        process.join(60)
    outcomes = zip(*(json.loads(file.read_text()) for file in files), strict=True)
    lost = 409 if way == "ids" else 412
    assert [sorted(outcome) for outcome in outcomes] == [[200] + [lost] * (racers - 1)] * rounds
