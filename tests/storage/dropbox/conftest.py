"""Fixtures of the Dropbox tests: the fake of this process, a person with an account, small parts."""

from __future__ import annotations

import pytest

from storage.dropbox import store as store_module
from storage.dropbox import upload
from tests.storage.dropbox.handle import Fake, Person, running

MIB = 1 << 20


@pytest.fixture
def fake() -> Fake:
    return running()


@pytest.fixture
def person(fake: Fake) -> Person:
    return fake.account()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 1 MiB in sequence; side by side (4 MiB, the least that Dropbox takes there) from 8 MiB on."""
    monkeypatch.setattr(upload, "PART", MIB)
    monkeypatch.setattr(store_module, "SMALL", MIB)
    monkeypatch.setattr(upload, "CONCURRENT_FROM", 8 * MIB)
