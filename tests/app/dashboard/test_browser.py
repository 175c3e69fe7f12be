"""The page as people meet it: in a real Chromium, live and as a file, wide and narrow, light and dark, by keyboard."""

from __future__ import annotations

import json
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from relay.app.dashboard.data import Seen
from relay.app.dashboard.page import export
from tests.app.dashboard.demo_store import Story
from tests.app.dashboard.test_page import hostile
from tests.app.dashboard.waiting import until_drawn
from tests.app.shown import document
from tests.people.views import view

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PANELS = (
    "overview",
    "curves",
    "timeline",
    "pace",
    "machine",
    "people",
    "settings",
    "storage",
    "handoffs",
    "incidents",
)
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
WITHIN_S = 2.0
TRIES = 3
"""The quickest counts: other tests share the machine."""


def text(page: Page, panel: str) -> str:
    return page.locator(f"#{panel}").inner_text()


EVERYTHING = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLORS = ("color-contrast", "link-in-text-block")


FIRST_OF_EACH_KIND = """() => { for (const body of document.querySelectorAll('tbody')) { const seen = new Set();
    for (const row of [...body.rows]) {
        const kind = [row, ...row.querySelectorAll('*')].map((one) => one.cloneNode().outerHTML).join();
        if (seen.size === seen.add(kind).size) row.remove(); } } }"""
"""Of rows of a table that differ in nothing but their texts, axe finds the same in each, and takes long."""


def unfold(page: Page) -> None:
    page.evaluate("for (const box of document.querySelectorAll('details')) box.open = true")


def troubles(page: Page, tags: tuple[str, ...] = EVERYTHING) -> list[str]:
    """The findings of axe, with everything folded away opened. The page loses rows: look at it before."""
    unfold(page)
    page.evaluate(FIRST_OF_EACH_KIND)
    page.evaluate(AXE)
    found = page.evaluate("tags => axe.run({ runOnly: tags, resultTypes: ['violations'] })", list(tags))
    return [f"{one['id']}: {one['help']}: {node['html'][:120]}" for one in found["violations"] for node in one["nodes"]]


def test_every_panel_says_what_the_ledger_says(story: Story, address: str, visit: Any) -> None:
    page, state = visit().open(address), story.state
    assert not [panel for panel in PANELS if len(text(page, panel)) < 20]
    assert f"{state.step:,} of 50,000" in text(page, "overview") and "Mei's lab PC" in text(page, "overview")
    assert "1,000 steps" in text(page, "overview"), "trained again after damage"
    assert page.locator("#timeline svg rect").count() == state.links_total == 9
    assert page.locator("#curves .plot canvas").count() == 3
    assert "H100 80GB HBM3" in text(page, "pace") and "training" in text(page, "pace")
    assert "Zoë's spot" in text(page, "people") and "estimated" in text(page, "people")
    assert "\nunknown" in text(page, "storage"), "the limit of the store"
    assert {"killed", "rewind"} <= set(text(page, "incidents").split())
    shown = page.evaluate("Relay.data.sessions.reduce((sum, row) => sum + row.stands, 0)")
    assert shown == state.step, "no step is lost and none is counted twice"


def test_a_commit_shows_within_two_seconds(story: Story, address: str, visit: Any, record_property: Any) -> None:
    page, took = visit().open(address), []
    for _ in range(TRIES):
        story.store.clock = time.time()
        story.commit(story.state.step + 500)
        began = time.monotonic()
        page.wait_for_function("step => Relay.data.header.step === step", arg=story.state.step, timeout=30_000)
        took.append(time.monotonic() - began)
        if took[-1] < WITHIN_S:
            break
    record_property("summary", f"a commit shows after {min(took):.1f} s")
    assert min(took) < WITHIN_S
    assert f"step {story.state.step:,}" in page.locator("#live").inner_text()
    assert f"{story.state.step:,} of" in text(page, "overview")


def test_filters_axes_and_tables_by_keyboard(address: str, visit: Any) -> None:
    page = visit().open(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.href").endswith("/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Relay.state.axis") == "time"
    assert "over time" in (page.locator("#curves .plot").first.get_attribute("aria-label") or "")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Relay.state.axis") not in ("step", "time")
    assert "lease" in (page.locator("#curves .plot").first.get_attribute("aria-label") or "")
    page.select_option("#who", "account_1")
    mine = page.locator("#timeline svg rect").count()
    assert 0 < mine < 9
    page.locator("#timeline summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#timeline tbody tr")).to_have_count(mine)  # a table is filled just after it is opened
    page.select_option("#end", "killed")
    assert page.locator("#timeline svg rect").count() == 0
    page.select_option("#who", "")
    assert page.locator("#timeline svg rect").count() == 1
    page.locator("#curves summary").first.click()
    expect(page.locator("#curves details tbody tr").nth(5)).to_be_visible()


def test_the_pace_is_marked_in_even_numbers(address: str, visit: Any) -> None:
    page = visit().open(address)
    assert page.evaluate("Relay.marks(32068)") == [0, 10_000, 20_000, 30_000]
    every = [*(n * 10**power for power in range(6) for n in range(1, 100)), 0.3, 2.4]
    for most, marks in zip(every, page.evaluate("every => every.map(Relay.marks)", every), strict=True):
        step = marks[1]
        assert f"{step:e}"[0] in "125" and marks == pytest.approx([step * place for place in range(len(marks))])
        assert 3 <= len(marks) <= 6 and marks[-1] <= most < marks[-1] + step, most
    marks = page.locator("#pace figure").first.locator("svg text[text-anchor=end].tick").all_text_contents()
    assert page.evaluate("Relay.marks(Math.max(...Relay.data.sessions.map((row) => row.steps_per_hour)))") == [
        float(mark.replace(",", "")) for mark in marks if "session" not in mark
    ]


def test_no_room_is_lost_between_a_curve_and_its_legend(address: str, visit: Any) -> None:
    page = visit().open(address)
    lowest = "(plot.bbox.top + plot.bbox.height) / devicePixelRatio"
    below = f"[...Relay.plots.values()].map(({{ plot }}) => plot.height - {lowest})"
    assert max(page.evaluate(below)) <= 40
    page.get_by_label("time", exact=True).check()
    assert min(page.evaluate(below)) > 50, "the day stands below the hour"


def test_the_number_of_the_last_step_has_room_and_a_lone_value_has_a_dot(address: str, visit: Any) -> None:
    page = visit().open(address)
    room = """({ plot }) => { plot.ctx.font = plot.axes[0].font[0];
        const half = plot.ctx.measureText(Relay.int(Relay.data.header.target)).width / 2;
        return plot.ctx.canvas.width - plot.bbox.left - plot.bbox.width - half }"""
    assert min(page.evaluate(f"[...Relay.plots.values()].map({room})")) >= 0
    dots = """(known) => { const values = Array(100).fill(null).fill(0.5, 0, known);
        return Relay.apart({ data: [[], values], over: { clientWidth: 300 } }, 1, 0, 99) }"""
    assert [page.evaluate(dots, known) for known in (1, 18, 19, 100)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("width", "scheme", "tags"), [(360, "light", EVERYTHING), (1200, "dark", COLORS), (1200, "light", ())]
)
def test_nothing_hinders_anybody(address: str, visit: Any, width: int, scheme: str, tags: tuple[str, ...]) -> None:
    """Colors do not depend on the width."""
    page = visit(width, color_scheme=scheme, reduced_motion="reduce").open(address)
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.getAnimations().length") == 0
    wide = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
    beyond = page.evaluate(f"{wide} && !e.closest('.scroll')).map(e => e.outerHTML.slice(0, 80))")
    assert beyond == []
    if tags:
        assert troubles(page, tags) == []


def test_dark_and_light_follow_the_system_or_a_choice_that_is_remembered(address: str, visit: Any) -> None:
    page = visit(color_scheme="dark").open(address)

    def paper() -> list[int]:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in re.findall(r"\d+", color)]

    assert max(paper()) < 60
    page.select_option("#theme", "light")
    assert min(paper()) > 200
    page.reload()
    until_drawn(page)
    assert min(paper()) > 200
    page.select_option("#theme", "auto")
    assert max(paper()) < 60


def test_the_file_needs_nothing_and_obeys_nobody(tmp_path: Path, visit: Any) -> None:
    export(hostile(), tmp_path / "run.html")
    page = visit(360).open((tmp_path / "run.html").as_uri())
    assert not [panel for panel in PANELS if len(text(page, panel)) < 5]
    assert "alert(1)" in text(page, "incidents"), "it is shown as what it is: text"
    assert page.locator("main img, main script").count() == 0
    assert page.locator("#live").inner_text()
    assert troubles(page) == []
    export(document(Seen(view(None, missing="nothing is there"))), tmp_path / "empty.html")
    page = visit().open((tmp_path / "empty.html").as_uri())
    assert "nothing is there" in text(page, "notices") and "unknown" in text(page, "overview")
    assert json.loads(page.evaluate("JSON.stringify(Relay.data.sessions)")) == []
