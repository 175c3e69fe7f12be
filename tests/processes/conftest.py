"""A nursery for all tests of this folder, and a fresh field for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.field import Field, Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def field(tmp_path: Path, nursery: Nursery) -> Iterator[Field]:
    field = Field(tmp_path, nursery)
    yield field
    field.end()
