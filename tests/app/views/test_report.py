"""The report's box, column for column, in UTF-8 and ASCII; hostile names change nothing but themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from relay.app.messages.wording import duration
from relay.app.views.report import INSIDE, report_document
from relay.app.views.status import status_document
from relay.core.ledger.state import Link
from relay.people.status import AccountRow, seconds_left
from tests.app.shown import draw
from tests.people.views import HASH, MACHINE, NOW, holder, state, trained, view


def test_the_eta_counts_what_a_session_gave_not_when_its_death_was_noticed() -> None:
    dead = Link(
        epoch=1, account="a", from_step=0, to_step=500, started=NOW - 9e5, seconds=500.0, ended=NOW, end="taken over"
    )
    assert seconds_left(view(state(links=(dead,), links_total=1, step=500, target_steps=1500))) == (1000.0, 1000.0)


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "a\nb\r\nc",
    "x" * 500,
    "日本語の名前がとても長い",
    "‮gnihtyna",
    "é" * 30,
    "[bold]markup[/bold]",
    "\u0000\u0007",
    "",
    "👩‍👩‍👧‍👦 family",
]


def box_of(lines: list[str]) -> list[str]:
    """The box without the lines below it."""
    return lines[: next(i for i, line in enumerate(lines) if line.startswith("Run: "))]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_box_line_is_62_columns_whatever_the_names(name: str, ascii_only: bool) -> None:
    rows = (AccountRow(name, name, "quota_exceeded", 1_234_567, 123), AccountRow("b", name, "ready"))
    lines = draw(view(trained(halted=f"loss is nan {name}"), rows), MACHINE, ascii_only).splitlines()
    assert {cell_len(line) for line in box_of(lines)} == {INSIDE + 2}
    assert "\x1b" not in "".join(lines)
    if ascii_only:
        assert "".join(lines).isascii()


def test_a_long_state_is_never_cut() -> None:
    rows = (AccountRow("account_1", "", "quota_exceeded", 3000, 2),)
    assert "|quota_exceeded║" in draw(view(trained(), rows), MACHINE)


def test_report_document_is_plain_json_with_labels_made_harmless() -> None:
    document = report_document(view(trained(holder=holder()), (AccountRow("a", "\x1b[1mx\n", "ready"),)), MACHINE)
    assert document["schema"] == "relay.report/1"
    assert document["accounts"][0]["label"] == "[1mx"
    assert document["percent"] == 23.5
    assert document["eta_training_s"] == [38250, 38780] or document["eta_training_s"][0] < document["eta_training_s"][1]
    json.dumps(document, allow_nan=False)


def test_status_document_has_exactly_the_contract() -> None:
    document = status_document(view(trained(holder=holder())))
    assert document == {
        "schema": "relay.status/1",
        "run": "sudoku_rotation",
        "step": 11_750,
        "target_steps": 50_000,
        "target_changed": None,
        "epoch": 7,
        "state": "training",
        "halted_reason": None,
        "holder": "account_2",
        "lease_expires_at": "2025-01-15T14:32:30Z",
        "head": {
            "step": 11_750,
            "epoch": 7,
            "state_hash": HASH,
            "bytes": 123_456,
            "committed_at": "2025-01-15T14:27:00Z",
        },
        "evaluation": {"newest": None, "best": None},
        "untested": [],
        "links": [
            {"epoch": 6, "account": "account_1", "from_step": 3000, "to_step": 6600, "certified": "unknown"},
            {"epoch": 7, "account": "account_2", "from_step": 6600, "to_step": 11_750, "certified": "exact"},
        ],
        "links_total": 7,
        "session": None,
    }


def test_status_before_any_run() -> None:
    document = status_document(view(None))
    assert document["step"] == 0 and document["head"] is None and document["state"] == "new"
    assert document["target_steps"] == 1600 and document["links"] == [] and document["lease_expires_at"] is None


@pytest.mark.parametrize(
    ("changes", "life", "phase"),
    [
        ({}, None, "idle"),
        ({"holder": holder()}, NOW - 30, "training"),
        ({"holder": holder()}, NOW - 500, "idle"),
        ({"holder": holder(since=NOW - 10)}, None, "training"),
        ({"target_steps": 11_750}, None, "finished"),
        ({"halted": "loss is nan", "holder": holder()}, NOW, "halted"),
        ({"head": None, "step": 0, "links": (), "links_total": 0}, None, "new"),
    ],
)
def test_phase(changes: dict[str, Any], life: float | None, phase: str) -> None:
    assert view(trained(**changes), sign_of_life=life).phase == phase


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-5, "0 s"), (89, "89 s"), (600, "10 min"), (3900, "1 h 05 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_clock_that_is_this_machine_s_is_labelled() -> None:
    told = view(trained())
    assert "clock)" not in draw(told, MACHINE) and report_document(told, MACHINE)["clock"] == "store"
    told = replace(told, clock_is_local=True)
    (line,) = [line for line in draw(told, MACHINE).splitlines() if "clock)" in line]
    assert "Wed 2025-01-15 14:30 UTC" in line
    assert report_document(told, MACHINE)["clock"] == "this machine"


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_box_fits_the_terminal_down_to_40_columns(name: str, ascii_only: bool) -> None:
    rows = (AccountRow(name, name, "quota_exceeded", 1_234_567, 123), AccountRow("b", name, "ready"))
    there = f"file:///{'x' * 90}"
    told = view(trained(halted=f"loss is nan {name}"), rows, store=there, missing="holds another")
    for columns in (1, 40, 41, 50, 61, 62, 80, 500):
        lines = draw(told, MACHINE, ascii_only, columns).splitlines()
        assert {cell_len(line) for line in box_of(lines)} == {max(40, min(62, columns))}
        assert max(cell_len(line) for line in lines) <= max(40, columns)
        assert there in "".join(line.strip() for line in lines)


@pytest.mark.slow
@given(
    columns=st.integers(60, 200),
    ascii_only=st.booleans(),
    ids=st.lists(st.text(max_size=40) | st.sampled_from(HOSTILE), max_size=4),
    state=st.sampled_from(["ready", "active", "cooling", "quota_exceeded", "forgotten"]),
    steps=st.sampled_from([0, 999_999, 10**6, 10**9]),
)
@settings(max_examples=300, deadline=None)
def test_the_box_is_even_at_every_width_whatever_stands_in_it(
    columns: int, ascii_only: bool, ids: list[str], state: str, steps: int
) -> None:
    rows = tuple(AccountRow(name, name, state, steps + n, 99 * n) for n, name in enumerate(ids))
    lines = draw(view(trained(holder=holder()), rows), MACHINE, ascii_only, columns).splitlines()
    box = box_of(lines)
    assert {cell_len(line) for line in box} == {min(62, columns)}
    sides = "|+" if ascii_only else "║╔╠╟╚"
    assert all(line[0] in sides for line in box)
    marks = [[i for i, cell in enumerate(cells(line[:-1])) if cell == "|"][-3:] for line in box[8 : 8 + len(rows)]]
    assert all(found == marks[0] for found in marks), "every account's columns begin where the others' do"
    assert all(line[:-1].rstrip().endswith(state) for line in box[8 : 8 + len(rows)]), "no state is cut"


def cells(line: str) -> list[str]:
    """One character for each column."""
    return [c if part == 0 else "" for c in line for part in range(cell_len(c))]


def test_the_report_tells_what_the_training_is_worth() -> None:
    told = trained(metrics={"lm_loss": 0.02337, "exact_accuracy": 0.5, "upload_s": 3.0})
    shown = draw(view(told), MACHINE)
    assert "Training:" in shown and "0.02337" in shown and "50.0%" in shown
    evaluated = told.head.model_copy(update={"metric": 0.9957}) if told.head else None
    told = told.model_copy(update={"head": evaluated, "retained": (evaluated,)})
    shown = draw(view(told), MACHINE)
    (line,) = [line for line in shown.splitlines() if "Validation:" in line]
    assert "99.6%" in line and "step 11,750" in line and "Training:" not in shown
