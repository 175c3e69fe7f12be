"""`plot`: the picture shows the same as the dashboard, is the same file twice, and no label can harm it."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure

from relay.app.dashboard.curves import VALIDATION
from relay.app.dashboard.data import Seen
from relay.app.dashboard.history import CommitEvent, Event, RewindEvent
from relay.app.plots.curves import AXES, DASHES, SIGNS, draw_curves, told
from relay.app.plots.lines import DAY
from relay.app.plots.style import DARK, LIGHT, drawing, encoded, shown
from relay.app.plots.timeline import ENDS, draw_timeline
from relay.people.status import AccountRow
from tests.app.cli import Desk
from tests.app.dashboard.test_data import link, long_run
from tests.app.plots.drawn import assert_readable
from tests.app.shown import document
from tests.people.views import NOW, trained, view

HOSTILE = r"$\frac{1}{ </svg><script>alert(1)</script> _^"
FOREIGN = "用户 🤖"
PEOPLE = ("ana", "ben", "cem")


def committed(slot: int, step: int, epoch: int, at: float) -> CommitEvent:
    metrics = {"lm_loss": 2 / step, "exact_accuracy": step / 1000, "lr": 1e-4}
    if step % 200 == 0:
        metrics["sometimes"] = 1.0
    right = step / 1200 if step % 300 == 0 else None
    return CommitEvent(slot, step, epoch, NOW + at, at % 3600, "", metrics, right)


def story() -> Seen:
    """Three people; the second session's last 200 steps are damaged and trained again by the third, who was killed."""
    links = [
        link(1, account="ana", to_step=300, started=NOW, seconds=3000.0),
        link(2, account="ben", from_step=300, to_step=700, started=NOW + 10_000, seconds=3600.0),
        link(3, account="cem", from_step=500, to_step=900, started=NOW + 90_000, seconds=1800.0, end="no sign of life"),
        link(4, account="ana", from_step=900, to_step=900, started=NOW + 99_000, seconds=100.0, end="fenced"),
    ]
    events: list[Event] = [committed(step, step, 1, step) for step in (100, 200, 300)]
    events += [committed(step, step, 2, 10_000 + step) for step in (400, 500, 600, 700)]
    events += [RewindEvent(701, 500)]
    events += [committed(step + 200, step, 3, 90_000 + step) for step in (600, 700, 800, 900)]
    rows = tuple(
        AccountRow(name, label, "ready") for name, label in zip(PEOPLE, (HOSTILE, FOREIGN, "Çem"), strict=True)
    )
    return Seen(view(trained().model_copy(update={"links_total": 4}), rows), links, events=events)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return document(story())


def curves_of(page: dict[str, Any], x: str = "step") -> Figure:
    with drawing(LIGHT):
        return draw_curves(page, x, LIGHT)


def collections(figure: Figure) -> dict[str, Any]:
    return {one.get_gid(): one for axes in figure.axes for one in axes.collections if one.get_gid()}


def close(found: list[tuple[float, float]], wanted: list[tuple[float, float]]) -> bool:
    return len(found) == len(wanted) and all(
        math.isclose(a, b) for x, y in zip(found, wanted, strict=True) for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize("x", AXES)
def test_every_point_of_the_dashboard_is_drawn_once_and_no_other(page: dict[str, Any], x: str) -> None:
    drawn = collections(curves_of(page, x))
    scale = DAY if x == "time" else 1
    for number, one in enumerate(page["curves"]["series"]):
        for side in ("line", "redone"):
            curve = page["curves"][side]
            wanted = [
                (at / scale, value)
                for at, value in zip(curve[x], curve["values"][number], strict=True)
                if value is not None
            ]
            shape = drawn.get(f"{side}:{one['name']}")
            if side == "redone":
                found = [tuple(point) for point in shape.get_offsets().tolist()] if shape else []
            else:
                segments = [[tuple(point) for point in part.tolist()] for part in shape.get_segments()]
                joins = [part[0] for part in segments[1:]]
                assert close(joins, [part[-1] for part in segments[:-1]]), "stitched: no gap between sessions"
                found = [point for place, part in enumerate(segments) for point in part[1 if place else 0 :]]
            assert close(found, wanted), (side, one["name"])
    assert page["curves"]["redone"]["step"] == [600, 700]


def test_every_line_of_a_panel_can_be_told_apart_without_colour(page: dict[str, Any]) -> None:
    assert len(set(map(str, DASHES))) == len(set(SIGNS)) == len(DASHES)
    curves = page["curves"]
    more = [{"name": f"norm_{n}", "title": f"norm {n}", "group": "other"} for n in range(len(DASHES) + 3)]
    sides = {name: {**curves[name], "values": [*curves[name]["values"]]} for name in ("line", "redone")}
    for side in sides.values():
        side["values"] += [side["values"][0]] * len(more)
    drawn = collections(curves_of({**page, "curves": {**curves, **sides, "series": [*curves["series"], *more]}}))
    assert len([name for name in drawn if name.startswith(("line:norm_", "line:sometimes"))]) == len(DASHES)


def test_each_session_has_its_accounts_colour_and_handoffs_are_where_sessions_began(page: dict[str, Any]) -> None:
    drawn = collections(curves_of(page))
    colors = [matplotlib.colors.to_hex(color) for color in drawn["line:lm_loss"].get_colors()]
    assert colors == list(LIGHT.people[:3])
    assert [part[0][0] for part in drawn["handoffs"].get_segments()] == [300, 500, 900]
    hollow = drawn["redone:lm_loss"]
    assert len(hollow.get_facecolors()) == 0 and matplotlib.colors.to_hex(hollow.get_edgecolors()[0]) == LIGHT.people[1]


def test_the_best_and_the_last_point_are_marked(page: dict[str, Any]) -> None:
    marks = [one for axes in curves_of(page).axes for one in axes.collections if one.get_gid() in ("best", "last")]
    best = [tuple(one.get_offsets()[0].tolist()) for one in marks if one.get_gid() == "best"]
    assert best == [
        (900, page["curves"]["line"]["values"][[s["name"] for s in page["curves"]["series"]].index(VALIDATION)][-1])
    ]
    assert {one.get_offsets()[0][0] for one in marks if one.get_gid() == "last"} == {900, 800}
    assert (told("rate", 5e-5), told("rate", 0.0), told("accuracy", 0.7883), told("loss", 1.2345)) == (
        "5e-5",
        "0",
        "78.83 %",
        "1.23",
    )


def test_a_bar_for_each_session_where_it_was_and_a_mark_where_training_broke_off(page: dict[str, Any]) -> None:
    with drawing(LIGHT):
        figure = draw_timeline(page, LIGHT)
    (lanes,) = [axes for axes in figure.axes if axes.get_xlabel()]
    bars = {one.get_gid().removeprefix("end:"): one for one in lanes.collections if one.get_gid()}
    found = {kind: [path.get_extents() for path in one.get_paths()] for kind, one in bars.items()}
    for row in page["sessions"]:
        lane = PEOPLE.index(row["account"])
        mine = [
            bar for bar in found[row["kind"]] if math.isclose(bar.x0, row["started"] / DAY) and lane < bar.y0 < lane + 1
        ]
        assert len(mine) == 1
        assert mine[0].width * DAY >= row["seconds"] * 0.999
        assert mine[0].height == pytest.approx(0.18 if row["kind"] in ("killed", "fenced") else 0.36)
    assert {kind: len(each) for kind, each in found.items() if each} == {"planned": 2, "killed": 1, "fenced": 1}
    assert len({(end.hatch, end.mark) for end in ENDS.values()}) == len(ENDS), "told apart without color"


@pytest.mark.parametrize(
    ("draw", "suffix"),
    [
        (lambda page: draw_curves(page, "time", DARK), ".svg"),
        (lambda page: draw_timeline(page, DARK), ".svg"),
        (lambda page: draw_timeline(page, DARK), ".png"),
    ],
    ids=["curves.svg", "timeline.svg", "timeline.png"],
)
def test_the_same_picture_is_the_same_file_whatever_style_a_person_has(
    page: dict[str, Any], draw: Any, suffix: str
) -> None:
    def once() -> bytes:
        with drawing(DARK):
            return encoded(draw(page), suffix, "title")

    first = once()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.hashsalt": None, "lines.linewidth": 9}):
        assert once() == first
    assert b"dc:date" not in first


def test_labels_are_drawn_as_they_are_and_run_nothing(page: dict[str, Any]) -> None:
    for draw in (lambda: draw_curves(page, "step", LIGHT), lambda: draw_timeline(page, LIGHT)):
        with drawing(LIGHT):
            figure = draw()
            data = encoded(figure, ".svg", HOSTILE)
        texts = [text.get_text() for text in figure.findobj(matplotlib.text.Text)]
        assert [text for text in texts if "frac" in text] and "ben" in "".join(texts), "an id for letters no font has"
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(data).iter()}
        assert "script" not in tags and "a" not in tags
    with drawing(LIGHT):
        assert shown("W" * 300, "id", 1.0).endswith("…") and shown(FOREIGN, "id", 1.0) == "id"


def test_no_text_leaves_the_picture_or_lies_on_another(page: dict[str, Any]) -> None:
    page = {**page, "run": "w" * 64, "accounts": [{**row, "label": "W" * 64} for row in page["accounts"]]}
    for draw in (lambda: draw_curves(page, "hours", LIGHT), lambda: draw_timeline(page, LIGHT)):
        with drawing(LIGHT):
            assert_readable(draw())


def test_as_much_as_a_dashboard_holds_is_drawn_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its document is bounded: 500 sessions, 4,000 points, as many of a hundred thousand steps as of five thousand."""
    monkeypatch.setattr("tests.app.dashboard.test_data.STEPS", 5_000)
    page = document(long_run())
    assert len(page["sessions"]) == 500 and len(page["curves"]["line"]["step"]) > 1_500
    began = time.process_time()
    for draw in (lambda: draw_curves(page, "step", LIGHT), lambda: draw_timeline(page, LIGHT)):
        with drawing(LIGHT):
            assert len(encoded(draw(), ".png", "title")) < 2_000_000
    assert time.process_time() - began < 15.0


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    desk("register", "account_1", "Ada Lovelace's Colab")
    desk.train(20)
    return desk


def test_the_command_writes_both_pictures_and_nothing_in_the_store(desk: Desk) -> None:
    def held() -> set[tuple[Path, int]]:
        return {(path, path.stat().st_mtime_ns) for path in (desk.folder.parent / "store").rglob("*")}

    before = held()
    said = desk("plot", "--run", "r").out
    assert "curves.png" in said and "timeline.png" in said
    assert (desk.folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    found = desk("plot", "--run", "r", "--timeline", "when.svg", "--x", "hours", "--json").json
    ((one,), schema) = found["files"], found["schema"]
    data = (desk.folder / "when.svg").read_bytes()
    assert schema == "relay.plot/1" and (one["shows"], one["bytes"]) == ("timeline", len(data))
    assert one["sha256"] == hashlib.sha256(data).hexdigest()
    assert held() == before and not list(desk.folder.glob(".*.part"))


def test_redacted_it_names_nobody(desk: Desk) -> None:
    desk("plot", "--run", "r", "--timeline", "when.svg")
    assert "Lovelace" in (desk.folder / "when.svg").read_text(), "the SVG tells its texts as comments"
    desk("plot", "--run", "r", "--timeline", "when.svg", "--out", "curves.svg", "--redact")
    assert not [file for file in desk.folder.glob("*.svg") if "Lovelace" in file.read_text()]


def test_what_cannot_be_drawn_is_said_and_writes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = desk("plot", "--run", "r", "--out", "curves.jpg", code=2).err
    assert ".svg" in refused and "curves.png" in refused
    assert ".svg" in desk("plot", "--run", "r", "--timeline", "when", code=2).err
    assert "nosuch" in desk("plot", "--run", "nosuch", code=78).err
    desk("init", "--run", "empty")
    assert "Train first" in desk("plot", "--run", "empty", code=65).err
    assert "no/such/folder.png" in desk("plot", "--run", "r", "--out", "no/such/folder.png", code=78).err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "'trm-relay[plot]'" in desk("plot", "--run", "r", code=78).err
    assert not [file for file in desk.folder.iterdir() if file.suffix in (".png", ".svg", ".jpg")]


@pytest.mark.parametrize("x", AXES)
@pytest.mark.parametrize("extreme", [1.7e308, 1e30, 5e-324])
def test_numbers_at_the_ends_of_what_a_float_holds_are_drawn(x: str, extreme: float) -> None:
    told = [{"lm_loss": extreme * sign, "exact_accuracy": extreme, "lr": 5e-324} for sign in (1, -1, 1)]
    events = [CommitEvent(n, 10 * n, 1, NOW + n, float(n), "", metrics) for n, metrics in enumerate(told, 1)]
    page = document(Seen(view(trained()), [link(1, to_step=30, started=NOW)], events=events))
    figure = curves_of(page, x)
    with drawing(LIGHT):
        assert encoded(figure, ".png", "t")


def test_a_session_far_from_all_points_has_no_number_beside_the_picture() -> None:
    """Years of lease without a commit: its number would be drawn so far away that no page could hold it."""
    events: list[Event] = [committed(step, step, 1, step) for step in (100, 200)] + [RewindEvent(201, 0)]
    links = [link(1, to_step=200, started=NOW), link(2, from_step=0, to_step=0, started=NOW + 1e6, seconds=1e9)]
    figure = curves_of(document(Seen(view(trained()), links, events=events)), "time")
    with drawing(LIGHT):
        assert encoded(figure, ".png", "t")
        assert_readable(figure)
