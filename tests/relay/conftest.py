"""A fresh laboratory for tests of whole sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.sessions import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """One shared store, one virtual clock; no thread outlives the test."""
    lab = Lab(tmp_path)
    yield lab
    lab.world.close()
