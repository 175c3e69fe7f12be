"""Times are told in the reader's zone and in one style; documents for programs stay in UTC."""

from __future__ import annotations

import os
import re
import time
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from relay.app.checks import doctor
from relay.app.machine.env import Machine
from relay.app.messages.errors import paragraph
from relay.core.errors import BadConfig
from relay.people import zones
from relay.people.zones import FORM, HERE, known_as, local, reader, reading_in, stamp, wall, zone_wanted
from tests.app.cli import Desk
from tests.facts import raising

NOON = 1_795_867_200.0
"""2026-11-28T12:00:00Z."""
STYLE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d (UTC|[A-Z]{2,5})\b")
OTHERS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\(Europe/|\(UTC\)")


@pytest.fixture
def machine_in_tokyo() -> Iterator[None]:
    with mock.patch.dict(os.environ, {"TZ": "Asia/Tokyo"}):
        time.tzset()
        yield
    time.tzset()


def test_a_moment_is_told_in_the_reader_s_zone_else_in_the_machine_s(machine_in_tokyo: None) -> None:
    assert local(NOON) == "Sat 2026-11-28 21:00 JST" == wall(NOON, reader()) and reader() == HERE
    with reading_in("Europe/Berlin"):
        assert local(NOON) == "Sat 2026-11-28 13:00 CET" == wall(NOON, reader())
        assert stamp(NOON) == "2026-11-28T13:00:00+01:00" and known_as(reader(), NOON) == "Europe/Berlin"
        with reading_in(None):
            assert local(NOON).endswith("JST") and known_as(reader(), NOON) == "JST"
        assert local(NOON).endswith("CET")
    with reading_in("UTC"):
        assert stamp(NOON) == "2026-11-28T12:00:00Z", "the guide's own spelling"
    assert local(NOON).endswith("JST") and local(None) == ""


def test_zones_without_letters_are_told_by_their_offset_and_summer_by_its_own_name() -> None:
    assert wall(NOON, "Asia/Kathmandu") == "Sat 2026-11-28 17:45 UTC+05:45"
    assert wall(NOON - 120 * 86400, "Europe/Berlin") == "Fri 2026-07-31 14:00 CEST"


def test_no_moment_is_beyond_a_calendar() -> None:
    with reading_in("Pacific/Kiritimati"):
        assert local(1e30).startswith("Wed 9892") and local(-1e30, "%Y") == "1969"


def test_relay_zone_goes_before_tz_and_a_tz_without_a_name_leaves_it_to_the_machine() -> None:
    assert zone_wanted({"RELAY_ZONE": "Asia/Tokyo", "TZ": "Europe/Berlin"}) == "Asia/Tokyo"
    assert zone_wanted({"TZ": "Europe/Berlin"}) == "Europe/Berlin" == zone_wanted({"TZ": ":Europe/Berlin"})
    for tz in ("", "CET-1CEST", ":/etc/localtime", "/etc"):
        assert zone_wanted({"TZ": tz}) is None
    with pytest.raises(BadConfig), reading_in("Europe/Berlinn"):
        pass


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "here", {"RELAY_STORE": f"file://{tmp_path / 'store'}", "RELAY_ZONE": "Europe/Berlin"})
    made("register", "account_1", "Ana's Colab", "--owner", "Ana", "--zone", "Asia/Tokyo")
    made.train(10)
    made("accounts", "pause", "account_1", "--until", f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%d}")
    return made


def test_every_command_tells_times_in_one_style_and_zone(desk: Desk) -> None:
    asked = (
        ("report",), ("report", "--sessions"), ("report", "--session", "last"), ("status", "--account", "account_1"),
        ("accounts", "list"), ("accounts", "show", "account_1"), ("verify",),
    )  # fmt: skip
    shown = {words: desk(*words, "--run", "r").out for words in asked}
    shown[("next",)] = desk("next", "--run", "r", "target_steps=100").out
    for words, text in shown.items():
        assert not OTHERS.search(text), (words, text)
        assert "JST" not in text or words == ("next",), "what is told to its person is in that person's zone"
    told = "\n".join(shown.values())
    assert STYLE.search(told) and " CET" in told
    assert STYLE.search(desk("report", "--run", "r", RELAY_ZONE="America/New_York").out)[2] in ("EST", "EDT")  # type: ignore[index]


def test_documents_stay_in_utc(desk: Desk) -> None:
    for words in (("report",), ("status",), ("report", "--sessions"), ("accounts", "list"), ("next",)):
        document = str(desk(*words, "--run", "r", "--json").json)
        assert "CET" not in document and not STYLE.search(document.replace(str(desk("next", "--run", "r").out), ""))


def test_the_report_that_others_read_is_in_utc(desk: Desk) -> None:
    left = next((desk.folder / "sync").rglob("session_e*.md")).read_text()
    assert STYLE.search(left)[2] == "UTC"  # type: ignore[index]


def test_a_zone_that_is_none_is_refused_before_anything_is_read(desk: Desk) -> None:
    told = desk("report", "--run", "r", code=78, RELAY_ZONE="Europe/Berlinn").err
    assert "'Europe/Berlinn'" in told and told.count("\n") == 1
    assert FORM.endswith("%Z")


def without_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slim image: neither the system's database nor the package tzdata."""

    def absent(name: str) -> zoneinfo.ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    zones.zone.cache_clear()
    monkeypatch.setattr(zones, "ZoneInfo", absent)


def test_a_machine_without_a_time_zone_database_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without_database(monkeypatch)
    try:
        with raising(zones.NoZones, "Europe/Berlin") as caught:
            zones.zone("Europe/Berlin")
        assert "tzdata" in paragraph(caught.value) and caught.value.exit_code == 78
        with reading_in("UTC"):
            assert zones.local(0) == "Thu 1970-01-01 00:00 UTC" and zones.stamp(0) == "1970-01-01T00:00:00Z"
        assert zones.wall(0, "Europe/Berlin") == "Thu 1970-01-01 00:00 UTC"
        (found,) = [one for one in doctor.machine(Machine("local", None, None), "cpu", []) if not one.ok]
        assert "tzdata" in found.advice and not found.code
    finally:
        zones.zone.cache_clear()


@pytest.mark.parametrize(
    ("tz", "shown"), [("UTC+3", "UTC-03:00"), ("GMT-5:30", "UTC+05:30"), ("UTC0", "UTC"), ("EST5", "EST")]
)
def test_a_zone_with_the_name_of_another_is_shown_by_its_offset(
    monkeypatch: pytest.MonkeyPatch, tz: str, shown: str
) -> None:
    """TZ=UTC+3 is three hours west of UTC, and the C library calls it UTC."""
    monkeypatch.setenv("TZ", tz)
    time.tzset()
    try:
        with reading_in(None):
            assert zones.local(86400 * 10, "%Z") == shown
    finally:
        monkeypatch.undo()
        time.tzset()
