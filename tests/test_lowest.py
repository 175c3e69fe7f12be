"""Every lower bound in pyproject.toml was installed and tested: the record changes with the bounds."""

from __future__ import annotations

from tests.lowest import bounds, recorded


def test_the_record_holds_the_bounds() -> None:
    assert {name: lowest for name, lowest in recorded().items() if name != "---"} == bounds(), "run `make lowest`"
