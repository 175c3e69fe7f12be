"""`plan` and `next` as they are typed, and the page about plans: its numbers are the code's."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from relay.people.presets import PRESETS
from tests.app.cli import Desk
from tests.people.plans import DAY, HOUR, NOW, of


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk", {"RELAY_OWNER": "Ana"})


def test_a_plan_before_anything_exists_writes_nothing(desk: Desk) -> None:
    assert desk("plan", "--run", "r").out
    assert desk("plan", "--run", "r", "--json").json["state"] == "unknown"
    assert desk("next", "--run", "r", "--json").json["account"] is None
    assert list(desk.folder.iterdir()) == []


def test_a_run_is_planned_from_its_own_sessions(desk: Desk) -> None:
    desk("register", "account_1", "Ana's Colab")
    desk.train(4)
    desk.train(8)
    files = sorted(path for path in desk.folder.rglob("*") if path.is_file())
    found = desk("plan", "--run", "r", "--json", "target_steps=1000000").json
    assert found["state"] == "finished", "a run remembers its own target"
    desk.plugin.made = {"step_s": 0.2}
    desk.train(3000, "--budget-minutes", "0.08", code=75)
    found = desk("plan", "--run", "r", "--json", "--zone", "Europe/Berlin").json
    assert found["state"] == "planned" and found["zone"] == "Europe/Berlin" and found["accounts"] == 1
    text = desk("plan", "--run", "r", "--ascii").out
    assert "p50" in text and text.isascii()
    proposed = desk("next", "--run", "r", "--json", "--account", "account_1").json
    assert proposed["schema"] == "relay.next/2" and proposed["you"] is True and proposed["label"] == "Ana's Colab"
    assert desk("next", "--run", "r", "--redact", "--json").json["label"] == "account_1"
    assert set(files) <= {path for path in desk.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--preset", "giude"), 2, "Did you mean guide?"),
        (("--preset", "guide", "--zone", "Mars/Olympus"), 78, "is not a time zone"),
        (("--steps-per-hour", "nan"), 2, ""),
        (("--failure-rate", "1"), 2, ""),
    ],
)
def test_what_cannot_be_planned_is_refused(desk: Desk, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in desk("plan", *words, code=code).err


@pytest.mark.slow
def test_presets_need_no_store_and_tell_what_replaces_their_numbers(desk: Desk) -> None:
    text = desk(
        "plan", "--preset", "guide", "--steps-per-hour", "900", "--startup-minutes", "9", "--failure-rate", "0.1"
    ).out
    assert all(fact in text for fact in ("900 steps", "9 min", "10%"))
    for name in PRESETS:
        found = desk("plan", "--preset", name, "--json", TZ="America/New_York").json
        assert found["preset"] == name and found["zone"] == "America/New_York"
    assert list(desk.folder.iterdir()) == []


def hours(name: str, rate: float | None = None, startup_s: float | None = None) -> float:
    """Hours to the median end of a preset."""
    found = of(PRESETS[name].course(NOW, rate, startup_s, 0.0))
    assert math.isfinite(found.finish.p50)
    return (found.finish.p50 - NOW) / HOUR


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "plan.md"


@pytest.mark.slow
def test_the_page_says_what_the_plan_says() -> None:
    """The guide's claims, recomputed; the page's numbers are the code's."""
    page = PAGE.read_text()
    for rate in (1000, 1250, 1500):
        days = [hours("guide", rate, (60 - minutes) * 60) / 24 for minutes in (45, 50, 60)]
        assert f"| {rate:,} | {days[0]:.1f} | {days[1]:.1f} | {days[2]:.1f} |" in page
    dying = of(PRESETS["guide"].course(NOW, 1000, 15 * 60, 0.05)).finish.p50 - NOW
    assert f"take {dying / DAY:.1f} days" in page
    waiting = of(PRESETS["guide"].course(NOW, None, None, None)).shares
    assert f" {100 * waiting.quota:.0f} % of" in page and waiting.limit == "quotas"
    assert of(PRESETS["guide"].course(NOW, 1250, None, None)).helps[0].saves_s == pytest.approx(7 * DAY, abs=DAY)


def test_the_page_says_what_measured_speeds_give() -> None:
    page = PAGE.read_text()
    ours, reference = 3600 / 0.085, 3600 / 0.152
    numbers = (50_000 / ours, hours("h100"), 50_000 / reference, hours("h100", reference))
    given = re.search(r"At the measured 85 ms .*?([\d,]{6}) steps(.*?)\n(.*?)152 ms(.*)", page)
    assert given and given[1] == f"{ours:,.0f}"
    assert re.findall(r"\d+\.\d", "".join(given.groups()[1:])) == [f"{number:.1f}" for number in numbers]
    sessions = [of(PRESETS["h100"].course(NOW, rate, None, 0.0)).middle.count for rate in (ours, reference)]
    assert sessions == [2, 3]
