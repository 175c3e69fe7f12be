"""A fresh laboratory for tests of whole sessions, and a fresh machine for tests of commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.cli import Desk
from tests.core.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """One shared store, one virtual clock; no thread outlives the test."""
    lab = Lab(tmp_path)
    yield lab
    lab.world.close()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A machine on which nothing was ever run."""
    return Desk(tmp_path / "desk")
