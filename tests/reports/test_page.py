"""docs/contributing/failure-reports.md: every test it names exists, and every kind has a test or a reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "contributing" / "failure-reports.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| kind ", "| **"))
]
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def names_of(path: str) -> frozenset[str]:
    """Names of the test functions in a file below tests/; none if there is no such file."""
    file = TESTS / path
    found = ast.walk(ast.parse(file.read_text())) if file.is_file() else ()
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef))


def test_every_test_that_is_named_exists() -> None:
    named = [found for row in ROWS for found in NAMED.findall(row[2])]
    assert len(named) > 50
    assert [f"{path}::{name}" for path, name in named if name not in names_of(path)] == []


def test_every_kind_says_what_happens_and_how_it_is_known() -> None:
    assert len(ROWS) >= 50 and len({row[0] for row in ROWS}) == len(ROWS)
    assert [row for row in ROWS if len(row) != 3 or not all(row)] == []
    bare = [row[2] for row in ROWS if not NAMED.search(row[2])]
    assert set(bare) == {"not built yet"}


def test_every_test_here_is_on_the_page() -> None:
    named = {name for row in ROWS for path, name in NAMED.findall(row[2]) if path.startswith("reports/")}
    others = ("test_page.py", "test_golden.py")  # of the page itself, and of what people see
    files = [file.name for file in TESTS.glob("reports/test_*.py") if file.name not in others]
    here = {name for file in files for name in names_of(f"reports/{file}")}
    assert {name for name in here if name.startswith("test_")} == named
