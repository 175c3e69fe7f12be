"""The fake Drive lists and searches as documented: late, in pages, in no order, and never to be trusted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.storage.drive.fake.checked import Services, refused
from tests.storage.drive.handle import Person, running

FOLDER = "application/vnd.google-apps.folder"


@pytest.fixture
def person() -> Person:
    return running().person(("drive",))


@pytest.fixture
def sdk(person: Person) -> Iterator[Any]:
    with closing(Services()) as services:
        yield services(person)


def make(sdk: Any, name: str, **body: Any) -> str:
    return str(sdk.files().create(body={"name": name, **body}).execute()["id"])


def listed(sdk: Any, q: str | None = None, **asked: Any) -> Any:
    return sdk.files().list(q=q, **asked).execute()


def names(sdk: Any, q: str | None = None, **asked: Any) -> list[str]:
    return [file["name"] for file in listed(sdk, q, **asked)["files"]]


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("name = 'plain'", ["plain"]),
        ("name = 'it\\'s \\\\ odd'", ["it's \\ odd"]),
        ("name contains 'pl'", ["plain"]),
        ("name contains 'lain'", []),
        ("'root' in parents and mimeType != 'application/vnd.google-apps.folder'", ["it's \\ odd", "plain", "thrown"]),
        ("'FOLDER' in parents", ["inside"]),
        ("not 'FOLDER' in parents and (name = 'inside' or name = 'plain')", ["plain"]),
        ("mimeType = 'application/vnd.google-apps.folder'", ["f"]),
        ("properties has { key='k' and value='v' }", ["inside"]),
        ("appProperties has { key='k' and value='v' }", []),
        ("createdTime > '2020-01-01T00:00:00' and starred = false and name='f'", ["f"]),
        ("createdTime < '2020-01-01T00:00:00'", []),
        ("sharedWithMe", []),
        ("'ME' in owners and trashed = true", ["thrown"]),
        ("trashed = false", ["f", "inside", "it's \\ odd", "plain"]),
        (None, ["f", "inside", "it's \\ odd", "plain", "thrown"]),
    ],
)
def test_queries(person: Person, sdk: Any, q: str | None, found: list[str]) -> None:
    folder = make(sdk, "f", mimeType=FOLDER)
    make(sdk, "plain")
    make(sdk, "it's \\ odd")
    make(sdk, "inside", parents=[folder], properties={"k": "v"})
    thrown = make(sdk, "thrown")
    sdk.files().update(fileId=thrown, body={"trashed": True}).execute()
    asked = q and q.replace("FOLDER", folder).replace("ME", person.email if "'ME'" in q else "ME")
    assert sorted(names(sdk, asked)) == found


@pytest.mark.parametrize(
    "q", ["name", "name = plain", "nonsense = 'x'", "(name = 'x'", "name = 'x", "'x' in y", "name has 'x'"]
)
def test_what_is_no_query_is_refused(sdk: Any, q: str) -> None:
    assert refused(lambda: listed(sdk, q)) == (400, "invalid")


def test_names_are_not_unique(sdk: Any) -> None:
    assert make(sdk, "twin") != make(sdk, "twin")
    assert names(sdk, "name = 'twin'") == ["twin", "twin"]


def test_pages(person: Person, sdk: Any) -> None:
    for number in range(5):
        make(sdk, f"n{number}")
    first = listed(sdk, pageSize=2, orderBy="name")
    assert [file["name"] for file in first["files"]] == ["n0", "n1"]
    second = sdk.files().list_next(sdk.files().list(pageSize=2, orderBy="name"), first).execute()
    assert [file["name"] for file in second["files"]] == ["n2", "n3"]
    assert "nextPageToken" not in sdk.files().list(pageToken=second["nextPageToken"], pageSize=2).execute()
    assert refused(lambda: listed(sdk, pageToken="made-up")) == (400, "invalid")
    person.change(page_cap=3)
    short = listed(sdk, pageSize=1000)
    assert len(short["files"]) == 3 and short["nextPageToken"], "a page may be shorter than asked"


def test_order(sdk: Any) -> None:
    for name in ("n10", "n9", "n1"):
        make(sdk, name)
    assert names(sdk, orderBy="name") == ["n1", "n10", "n9"]
    assert names(sdk, orderBy="name_natural desc") == ["n10", "n9", "n1"]
    assert names(sdk, orderBy="createdTime desc,name") == ["n1", "n9", "n10"]
    assert refused(lambda: listed(sdk, orderBy="nonsense")) == (400, "invalid")


def test_lists_lag_and_points_do_not(person: Person, sdk: Any) -> None:
    gone = make(sdk, "gone")
    person.change(lists_stand=True)
    person.change(name_lag=60)
    sdk.files().delete(fileId=gone).execute()
    new = make(sdk, "new")
    assert names(sdk, "'root' in parents") == ["gone"], "as it was then"
    person.change(lists_stand=False)
    assert names(sdk, "name = 'new'") == [] and names(sdk, "'root' in parents") == ["new"]
    person.change(list_lag=60)
    assert names(sdk, "'root' in parents") == []
    assert sdk.files().get(fileId=new).execute()["name"] == "new"
    person.change(name_lag=0.2, list_lag=0.2)
    time.sleep(0.3)
    assert names(sdk, "name = 'new'") == names(sdk, "'root' in parents") == ["new"]


def test_incomplete_searches_say_so(person: Person, sdk: Any) -> None:
    for number in range(4):
        make(sdk, f"n{number}")
    assert listed(sdk, fields="incompleteSearch") == {"incompleteSearch": False}
    person.change(incomplete=True)
    told = listed(sdk, fields="incompleteSearch,files/name")
    assert told["incompleteSearch"] is True and len(told["files"]) == 2


def test_a_query_too_long_for_an_address_goes_as_a_form(sdk: Any) -> None:
    make(sdk, "n7")
    q = " or ".join(f"name = 'n{number}'" for number in range(300))
    assert len(q) > 2048 and names(sdk, q) == ["n7"]
