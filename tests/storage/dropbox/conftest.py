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
    """Parts of 4 MiB, the least that a concurrent session takes; side by side from 16 MiB on."""
    monkeypatch.setattr(upload, "PART", 4 * MIB)
    monkeypatch.setattr(store_module, "SMALL", 4 * MIB)
    monkeypatch.setattr(upload, "CONCURRENT_FROM", 16 * MIB)
