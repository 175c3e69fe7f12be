"""The fake Dropbox answers as the published protocol says, asked by the real SDK alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import dropbox
import pytest
import requests
from dropbox import files
from dropbox.content_hash import content_hash
from dropbox.exceptions import ApiError, AuthError, BadInputError, HttpError, RateLimitError

from tests.storage.dropbox.handle import Fake, Person

BLOCK = 4 << 20


@pytest.fixture
def sdk(person: Person) -> dropbox.Dropbox:
    return dropbox.Dropbox(person.holds["access_token"], max_retries_on_error=0, max_retries_on_rate_limit=0)


def refused(call: Callable[[], object]) -> str:
    """The tags of the ApiError that a call raises."""
    with pytest.raises(ApiError) as caught:
        call()
    union, tags = caught.value.error, []
    while hasattr(union, "_tag"):
        tags.append(union._tag)
        union = getattr(union._value, "reason", union._value)
    return "/".join(tags)


def test_write_modes(sdk: dropbox.Dropbox) -> None:
    first = sdk.files_upload(b"one", "/F/a.txt")
    assert sdk.files_upload(b"one", "/f/A.TXT").rev == first.rev, "identical contents: no conflict, nothing written"
    assert refused(lambda: sdk.files_upload(b"one", "/f/a.txt", strict_conflict=True)) == "path/conflict/file"
    assert refused(lambda: sdk.files_upload(b"two", "/f/a.txt")) == "path/conflict/file"
    second = sdk.files_upload(b"two", "/f/a.txt", mode=files.WriteMode.overwrite)
    assert second.id == first.id and second.rev != first.rev
    assert refused(lambda: sdk.files_upload(b"3", "/f/a.txt", mode=files.WriteMode.update(first.rev))).endswith("file")
    assert sdk.files_upload(b"3", "/f/a.txt", mode=files.WriteMode.update(second.rev)).size == 1
    assert sdk.files_upload(b"4", "/f/a.txt", autorename=True).name == "a (1).txt"
    overwrite = files.WriteMode.overwrite
    assert refused(lambda: sdk.files_upload(b"x", "/f", mode=overwrite)) == "path/conflict/folder"
    assert refused(lambda: sdk.files_upload(b"x", "/f/a.txt/b", mode=overwrite)) == "path/conflict/file_ancestor"


def test_hashes_limits_and_malformed_requests(sdk: dropbox.Dropbox) -> None:
    assert sdk.files_upload(b"x" * 5_000_000, "/a").content_hash == content_hash(b"x" * 5_000_000)
    assert refused(lambda: sdk.files_upload(b"x", "/b", content_hash="0" * 64)) == "content_hash_mismatch"
    assert refused(lambda: sdk.files_get_metadata("/b")) == "path/not_found"
    assert refused(lambda: sdk.files_get_metadata("/b/")) == "path/malformed_path"
    with pytest.raises(BadInputError):
        raw = sdk.request_json_string_with_retry
        raw("api", "files/get_metadata", "rpc", '{"path": "no-slash"}', "user", None)


def test_downloads_and_ranges(sdk: dropbox.Dropbox) -> None:
    sdk.files_upload(b"0123456789", "/a")
    told, reply = sdk.files_download("/a", extra_headers={"Range": "bytes=3-5"})
    assert (told.size, reply.status_code, reply.content) == (10, 206, b"345")
    assert reply.headers["Content-Range"] == "bytes 3-5/10"
    assert sdk.files_download("/a", extra_headers={"Range": "bytes=8-99"})[1].content == b"89"
    with pytest.raises(HttpError) as caught:
        sdk.files_download("/a", extra_headers={"Range": "bytes=10-"})
    assert caught.value.status_code == 416
    assert refused(lambda: sdk.files_download("/none")) == "path/not_found"


def _append(sdk: dropbox.Dropbox, id_: str, offset: int, data: bytes, close: bool = False) -> None:
    sdk.files_upload_session_append_v2(data, files.UploadSessionCursor(id_, offset), close=close)


def test_a_session_in_sequence(sdk: dropbox.Dropbox) -> None:
    id_ = sdk.files_upload_session_start(b"abc").session_id
    _append(sdk, id_, 3, b"def")
    with pytest.raises(ApiError) as caught:
        _append(sdk, id_, 3, b"def")
    assert caught.value.error.get_incorrect_offset().correct_offset == 6
    assert refused(lambda: _append(sdk, "made-up", 0, b"")) == "not_found"
    commit = files.CommitInfo("/a")
    wrong = files.UploadSessionCursor(id_, 5)
    assert refused(lambda: sdk.files_upload_session_finish(b"", wrong, commit)) == "lookup_failed/incorrect_offset"
    sdk.files_upload(b"in the way", "/a")
    cursor = files.UploadSessionCursor(id_, 6)
    assert refused(lambda: sdk.files_upload_session_finish(b"", cursor, commit)) == "path/conflict/file"
    over = files.CommitInfo("/a", mode=files.WriteMode.overwrite)
    assert sdk.files_upload_session_finish(b"", cursor, over).size == 6, "a refused commit can be committed again"
    assert refused(lambda: sdk.files_upload_session_finish(b"", cursor, over)) == "lookup_failed/closed"
    assert refused(lambda: _append(sdk, id_, 6, b"g")) == "closed"
    assert sdk.files_download("/a")[1].content == b"abcdef"


def test_a_concurrent_session(sdk: dropbox.Dropbox) -> None:
    kind = files.UploadSessionType.concurrent
    data_not_allowed = "concurrent_session_data_not_allowed"
    assert refused(lambda: sdk.files_upload_session_start(b"x", session_type=kind)) == data_not_allowed
    id_ = sdk.files_upload_session_start(b"", session_type=kind).session_id
    assert refused(lambda: _append(sdk, id_, 5, bytes(BLOCK))) == "concurrent_session_invalid_offset"
    assert refused(lambda: _append(sdk, id_, 0, b"short")) == "concurrent_session_invalid_data_size"
    cursor, commit = files.UploadSessionCursor(id_, BLOCK * 2 + 1), files.CommitInfo("/a")

    def finish(data: bytes = b"") -> Any:
        return sdk.files_upload_session_finish(data, cursor, commit)

    _append(sdk, id_, BLOCK, b"b" * BLOCK)
    assert refused(finish) == "concurrent_session_not_closed"
    _append(sdk, id_, BLOCK * 2, b"c", close=True)
    assert refused(finish) == "concurrent_session_missing_data"
    assert refused(lambda: finish(b"x")) == data_not_allowed
    assert refused(lambda: _append(sdk, id_, 0, b"a" * BLOCK)) == "closed"
    other = sdk.files_upload_session_start(b"", session_type=kind).session_id
    _append(sdk, other, BLOCK, b"b" * BLOCK)
    _append(sdk, other, 0, b"a" * BLOCK)
    _append(sdk, other, BLOCK * 2, b"c", close=True)
    cursor = files.UploadSessionCursor(other, BLOCK * 2 + 1)
    assert finish().content_hash == content_hash(b"a" * BLOCK + b"b" * BLOCK + b"c")


def test_sessions_belong_to_an_account_and_last_a_week(sdk: dropbox.Dropbox, fake: Fake) -> None:
    id_ = sdk.files_upload_session_start(b"abc").session_id
    other = dropbox.Dropbox(fake.account().holds["access_token"])
    assert refused(lambda: _append(other, id_, 3, b"")) == "not_found"
    fake.control("set", expire_sessions=True)
    assert refused(lambda: _append(sdk, id_, 3, b"")) == "not_found"


def test_deletes(sdk: dropbox.Dropbox) -> None:
    first = sdk.files_upload(b"1", "/f/a")
    sdk.files_upload(b"2", "/f/b")
    assert refused(lambda: sdk.files_delete_v2("/none")) == "path_lookup/not_found"
    assert refused(lambda: sdk.files_delete_v2("/f/a", parent_rev="f" * 15)).startswith("path_write/conflict")
    assert sdk.files_delete_v2(first.id).metadata.path_lower == "/f/a"
    sdk.files_delete_v2("/F")
    assert refused(lambda: sdk.files_get_metadata("/f/b")) == "path/not_found"


def test_listings_go_on_with_what_changed(sdk: dropbox.Dropbox, person: Person) -> None:
    for name in ("/f/a", "/f/g/b", "/other"):
        sdk.files_upload(b"x", name)
    assert {entry.name for entry in sdk.files_list_folder("/f").entries} == {"a", "g"}
    page = sdk.files_list_folder("/f", recursive=True, limit=2)
    entries = list(page.entries)
    while page.has_more:
        page = sdk.files_list_folder_continue(page.cursor)
        entries += page.entries
    assert {entry.path_lower for entry in entries} == {"/f", "/f/a", "/f/g", "/f/g/b"}
    anybody = dropbox.Dropbox("not-a-token-of-anybody", max_retries_on_error=0)  # longpoll asks for no token
    threading.Timer(0.2, lambda: sdk.files_delete_v2("/f/a")).start()
    began = time.monotonic()
    assert anybody.files_list_folder_longpoll(page.cursor, timeout=30).changes
    assert time.monotonic() - began < 10
    changed = sdk.files_list_folder_continue(page.cursor).entries
    assert [(type(entry), entry.path_lower) for entry in changed] == [(files.DeletedMetadata, "/f/a")]
    assert refused(lambda: sdk.files_list_folder_continue("made-up")) == "reset"
    assert refused(lambda: sdk.files_list_folder("/other")) == "path/not_folder"
    assert refused(lambda: sdk.files_list_folder("/none")) == "path/not_found"


def test_tokens(person: Person) -> None:
    person.change(token_life=1000)
    sdk = dropbox.Dropbox(oauth2_refresh_token=person.holds["refresh_token"], app_key=person.holds["app_key"])
    assert sdk.check_user("hello").result == "hello"
    with pytest.raises(AuthError) as caught:
        dropbox.Dropbox("sl.made-up").check_user("hello")
    assert caught.value.error.is_invalid_access_token()
    person.change(token_life=-1)
    sdk.refresh_access_token()
    old = sdk._oauth2_access_token
    with pytest.raises(AuthError) as caught:
        dropbox.Dropbox(old).check_user("hello")
    assert caught.value.error.is_expired_access_token()


@pytest.mark.parametrize("kind", ["429", "429-text"])
def test_waiting_is_asked_for_in_both_documented_ways(sdk: dropbox.Dropbox, person: Person, kind: str) -> None:
    person.fault(kind, retry_after=17)
    with pytest.raises(RateLimitError) as caught:
        sdk.files_get_metadata("/a")
    assert caught.value.backoff == 17


def test_each_route_has_its_host(person: Person) -> None:
    url = f"http://127.0.0.1:{os.environ['FAKE_DROPBOX_PORT']}/2/files/get_metadata"
    headers = {"Authorization": f"Bearer {person.holds['access_token']}", "Host": "content.dropboxapi.com"}
    assert requests.post(url, data='{"path": "/a"}', headers=headers).status_code == 404


def test_a_slow_line_is_slow(sdk: dropbox.Dropbox, person: Person) -> None:
    person.change(rate=1 << 20, latency=0.1)
    began = time.monotonic()
    sdk.files_upload(bytes(1 << 19), "/a")
    assert time.monotonic() - began > 0.5
