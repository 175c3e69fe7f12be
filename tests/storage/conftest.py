"""Fixtures of the storage tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage import transfer
from storage.local import LocalStore
from tests.storage.helpers import NAMES, LogWorld
from tests.storage.s3.servers import ENVIRONMENT, UNWANTED


@pytest.fixture(autouse=True)
def nobodys_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks with the credentials of the person who runs it."""
    for name in UNWANTED:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def few_races(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test races less on MiniStack, which tests/storage/remote/test_races.py races enough."""
    if not request.module.__name__.endswith("test_selftest"):
        monkeypatch.setattr("storage.selftest.MANY", 2)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def world() -> LogWorld:
    return LogWorld()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 1000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files whose sizes lie on, before and behind the edges of a chunk."""
    chance = Random(1)
    for name, size in zip(NAMES, (5500, 3000, 0, 1), strict=True):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    return tmp_path / "source"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """Let a call of `os` fail with an error number, for writes only if it is `open`."""

    def fail(call: str, code: int) -> None:
        real = getattr(os, call)

        def fails(*args: Any, **kwargs: Any) -> Any:
            if call == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, call, fails)

    yield fail
    monkeypatch.undo()
