"""Tests of kinds of failure that people reported of other tools: docs/contributing/failure-reports.md."""

from __future__ import annotations

from tests.core.conftest import lab
from tests.trm.conftest import make, one_thread, run

__all__ = ["lab", "make", "one_thread", "run"]
