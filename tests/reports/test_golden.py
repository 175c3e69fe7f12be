"""What people see is what the pinned files hold; `make snapshots` writes them again."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from rich.cells import cell_len

from relay.app.commands.looking.reports import drawn
from tests.app.cli import Desk
from tests.reports.golden_cases import CASES, shown


@pytest.mark.parametrize("name", CASES)
def test_shown(name: str, pinned: Any) -> None:
    assert shown(name) == pinned


def test_every_file_belongs_to_a_case() -> None:
    """Where tests run in parallel nobody else would tell of a file that is left over."""
    folder = Path(__file__).parent / "__snapshots__" / "test_golden"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"test_shown[{name}].txt" for name in CASES)


@pytest.mark.parametrize("name", CASES)
def test_nothing_shown_holds_what_a_terminal_obeys(name: str) -> None:
    text = shown(name)
    assert not [c for c in text if c != "\n" and category(c)[0] == "C"]
    if "_ascii" in name:
        assert text.isascii()
    if name.startswith("report_"):
        assert max(cell_len(line) for line in text.splitlines()) <= max(62, int(name.rpartition("_")[2]))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("terminal_")])
def test_nothing_in_a_terminal_is_wider_than_it_but_a_command_to_copy(name: str) -> None:
    sections = re.split(
        r"^== (\d+) columns, (UTF-8|ASCII).* ==$", shown(name).partition("== where nothing")[0], flags=re.M
    )
    assert len(sections) >= 19, "three widths in two codings"
    for width, coding, text in zip(sections[1::3], sections[2::3], sections[3::3], strict=True):
        assert coding == "UTF-8" or text.isascii()
        for line in text.splitlines():
            plain = re.sub(r"\[/?[a-z_ ]+\]", "", line)
            assert cell_len(plain) <= int(width) or re.match("`python |  ACCOUNT_ID=|  notebook", line), line


def test_the_guide_s_lines_are_there_to_the_column() -> None:
    lines = shown("report_utf8_80").splitlines()
    assert lines[0] == f"╔{'═' * 60}╗"
    title = "MULTI-ACCOUNT TRAINING PROGRESS REPORT"
    assert lines[1].strip("║").strip() == title
    assert lines[3].startswith("║Total Progress:   23.5% (11,750/50,000 ")
    assert lines[4].startswith("║Last Update: 2025-01-15T14:30:00")
    assert lines[6].startswith("║Accounts Status:") and set(lines[7][1:-1]) == {"─"}
    row = "║account_1      | Steps:   3,000 | Sessions:   2 | ready     ║"
    assert lines[8] == row
    ascii_lines = shown("report_ascii_80").splitlines()
    table = str.maketrans("╔═╗╠╣╟─╢╚╝║", "+=++++-+++|")
    assert [line.translate(table) for line in lines] == ascii_lines, "the same box in other characters"


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("session_") or name == "session"])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_session_s_report_laid_out_for_a_terminal_fits_and_loses_no_figure(name: str, width: int) -> None:
    """Not by golden files: rich draws the tables, and its versions differ in blanks."""
    text = shown(name)
    page = drawn(text, width)
    assert "\x1b" not in page and max(cell_len(line) for line in page.splitlines()) <= width
    for figure in ("account_3", "3,000 to 11,750", "NOT exact", "87.5%", "233.0 MB", "40 ms", "exit code 75"):
        assert figure in page


@pytest.mark.parametrize("words", [("report",), ("status",), ("report", "--session", "last"), ("report", "--sessions"),
                                   ("status", "--account", "account_1"), ("next",),
                                   ("accounts", "list")], ids=" ".join)  # fmt: skip
def test_with_colour_asked_for_and_without_the_same_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    desk = Desk(tmp_path / "desk", {"RELAY_STORE": f"file://{tmp_path / 'store'}"})
    desk("register", "account_1", "John's Colab")
    desk.train(10)
    monkeypatch.setattr("relay.app.commands.looking.reports.terminal_width", lambda: 80)
    seen = []
    for name in ("NO_COLOR", "FORCE_COLOR"):
        for other in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(name, "1")
        assert name in os.environ
        out = desk(*words, "--run", "r").out
        assert name == "FORCE_COLOR" or "\x1b" not in out
        plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
        seen.append(
            [line for line in plain.splitlines() if " ago" not in line and " old" not in line and "Now:" not in line]
        )
    assert seen[0] == seen[1]
