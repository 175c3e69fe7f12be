"""Each row of docs/contributing/damage.md names tests that exist, and each code it promises is one of the program's."""

from __future__ import annotations

import re
from pathlib import Path

from relay.core.errors import Exit
from tests.damage.scene import CODES

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "contributing" / "damage.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_row_is_whole_and_names_tests_that_exist() -> None:
    assert len(rows()) > 25
    for row in rows():
        assert len(row) == 5, row
        named = re.findall(r"`(test_\w+)::(test_\w+)`", row[4])
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (HERE / f"{file}.py").read_text(), f"{file}::{test}"


def test_every_promised_code_is_one_of_the_programs() -> None:
    known = {int(code) for code in Exit}
    promised = {int(number) for row in rows() for number in re.findall(r"\b\d+\b", row[2].replace("180 s", ""))}
    assert promised <= known
    assert promised >= CODES
