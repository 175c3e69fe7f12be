"""The tiny training states of tests/trm/conftest.py, for tests of what any loop needs."""

from __future__ import annotations

from tests.trm.conftest import batch_at, config, make, one_thread, run, shelf, sizes

__all__ = ["batch_at", "config", "make", "one_thread", "run", "shelf", "sizes"]
