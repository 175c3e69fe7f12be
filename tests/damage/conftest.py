"""Fixtures of the tests of damage: a laboratory, real processes, and a desk whose store whole sessions have filled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.conftest import relay, warm  # noqa: F401 - fixtures
from tests.app.cli import hurry
from tests.core.conftest import lab  # noqa: F401 - a fixture
from tests.damage.scene import Picture, Scene, paint


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at a damaged slot nothing changes here, unless a test changes it."""
    hurry(monkeypatch)


@pytest.fixture(scope="session")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """The store and the disk after five sessions; painted once."""
    return paint(tmp_path_factory.mktemp("picture"))


@pytest.fixture
def scene(picture: Picture, tmp_path: Path) -> Callable[[str], Scene]:
    """scene(backend): a copy of the picture that a test may hurt."""
    return lambda backend: Scene.of(picture, tmp_path / "desk", backend)
