"""The laboratory and the desk of tests/core/conftest.py, for tests of accounts and plans."""

from __future__ import annotations

from tests.core.conftest import desk, lab

__all__ = ["desk", "lab"]
