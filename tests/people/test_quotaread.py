"""What a provider's tool prints of a quota, as numbers; hostile input is one refusal."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import BadConfig
from relay.people.account import Reading
from relay.people.quota import MAX_BYTES, declared, moment, official

NOW = 1_764_000_000.0
"""2025-11-24T16:00:00Z."""
KAGGLE = """Warning: Looks like you're using an outdated API Version [sic]
[
  {
    "resource": "GPU",
    "used": "12.34h",
    "remaining": "17.66h",
    "total": "30.00h",
    "refreshAt": "2025-11-29T00:00:00+00:00"
  },
  {
    "resource": "TPU",
    "used": "0.00h",
    "remaining": "20.00h",
    "total": "20.00h",
    "refreshAt": "2025-11-29T00:00:00+00:00"
  }
]
"""
"""As kaggle 2.2.5 prints it (quota_view_cli, print_json), after a warning on the same stream."""


def rows(**row: Any) -> bytes:
    return json.dumps([{"resource": "GPU", **row}]).encode()


def test_kaggle_s_output_is_read_row_by_row() -> None:
    saturday = NOW + 4 * 86400 + 8 * 3600
    gpu = official(KAGGLE.encode(), "gpu", NOW)
    assert gpu == Reading(left_s=17.66 * 3600, of_s=108_000.0, source="official", read_at=NOW, resets_at=saturday)
    assert official(KAGGLE.encode(), "TPU", NOW).left_s == 72_000


@pytest.mark.parametrize(
    ("row", "left"),
    [
        ({"remaining": 2}, 7200),
        ({"remaining": "90 min"}, 5400),
        ({"remaining": "45s", "total": "1h"}, 45),
        ({"used": "10h", "total": "30h"}, 72_000),
        ({"used": 31, "total": 30, "colour": {"more": []}}, 0),
    ],
)
def test_amounts_are_read_leniently(row: dict[str, Any], left: float) -> None:
    assert official(rows(**row), "GPU", NOW).left_s == left


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"No quota information available\n",
        b"[]",
        b"{}",
        b"\xff\xfe[",
        b"[[[",
        b"[" * 9000 + b"]" * 9000,
        b"[" + b" " * MAX_BYTES + b"]",
        rows(),
        rows(remaining="soon"),
        rows(remaining=-1),
        rows(remaining=True),
        rows(remaining="1e9h"),
        rows(remaining="9999h"),
        rows(remaining="31h", total="30h"),
        rows(remaining="1h", refreshAt="never"),
        rows(remaining="1h", refreshAt="2025-11-01T00:00:00Z"),
        rows(remaining="1h", refreshAt="9999-12-31T23:59:59+00:00"),
        b'[{"resource": "GPU", "remaining": NaN}]',
        b'[{"resource": "GPU", "resource": "TPU"}]',
    ],
)
def test_what_cannot_be_read_is_78_with_what_to_do(data: bytes) -> None:
    with pytest.raises(BadConfig) as error:
        official(data, "GPU", NOW)
    assert len(str(error.value)) < 400 and "--left HOURS" in str(error.value), "nobody typed what was piped in"


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda t: rows(remaining=t, total=t, refreshAt=t)))
def test_nothing_else_than_78_comes_of_anything(data: bytes) -> None:
    try:
        found = official(data, "GPU", NOW)
    except BadConfig:
        return
    assert 0 <= found.left_s <= 366 * 86400


def test_what_a_person_says() -> None:
    said = declared(12.5, 30, "2025-11-29T00:00Z", NOW)
    assert (said.left_s, said.of_s, said.source, said.resets_at) == (45_000, 108_000, "declared", NOW + 374_400)
    assert declared(0, None, None, NOW).of_s is None
    for left, whole in ((-1.0, None), (float("nan"), None), (2.0, 1.0), (1e9, None)):
        with pytest.raises(BadConfig):
            declared(left, whole, None, NOW)


def test_a_time_without_an_offset_is_the_person_s_own() -> None:
    assert moment("2025-12-01", NOW, ZoneInfo("Asia/Tokyo")) == moment("2025-11-30T15:00Z", NOW)
    for wrong in ("", "tomorrow", "2025-11-24T15:59Z", "2035-01-01", "0001-01-01T00:00+14:00", "x" * 10_000):
        with pytest.raises(BadConfig, match="Write"):
            moment(wrong, NOW)
