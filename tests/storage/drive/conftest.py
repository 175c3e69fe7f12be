"""Fixtures of the Drive tests: the fake of this process, a person with a Drive, a store of that person, small parts."""

from __future__ import annotations

import pytest

from storage.drive import upload
from tests.storage.drive.handle import Fake, Person, running
from tests.storage.drive.stores import Drive

MIB = 1 << 20


@pytest.fixture
def fake() -> Fake:
    return running()


@pytest.fixture
def person(fake: Fake) -> Person:
    return fake.person()


@pytest.fixture
def drive(person: Person) -> Drive:
    return Drive(person)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 1 MiB, for files of more than 1 MiB."""
    monkeypatch.setattr(upload, "PART", MIB)
    monkeypatch.setattr(upload, "SMALL", MIB)
