"""A store on Drive is made whole or not at all: no request that fails for good leaves a folder behind."""

from __future__ import annotations

import pytest

from storage.base import StoreError
from tests.storage.drive.handle import Person
from tests.storage.drive.stores import Drive

REQUESTS = [
    ("500-before", "v3.files.create", 0),
    ("500-after", "v3.files.create", 0),  # there is a folder, though nobody said so
    ("500-before", "v3.about.get", 0),
    ("500-before", "v3.files.generateIds", 1),
    ("500-before", "v3.files.create", 1),  # of the first slot; a lost reply of that one is found out by reading it
]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("retry", "log"):
        monkeypatch.setattr(f"storage.{module}._FIRST_WAIT", 0.001)


@pytest.mark.parametrize(("kind", "route", "before"), REQUESTS)
def test_what_fails_for_good_leaves_nothing_and_works_the_next_time(
    person: Person, kind: str, route: str, before: int
) -> None:
    person.fault(kind, route=route, skip=before, times=99, status=503)
    with pytest.raises(StoreError):
        Drive(person)
    assert person.look()["met"], "the fault was met"
    assert person.look()["files"] == {}
    person.heal()
    drive = Drive(person)
    assert drive.store().quota() and set(person.look()["files"]) == set(drive.address.split("/")[2:])
