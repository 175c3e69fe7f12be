"""The claims of the pages hold: links, anchors, commands, and messages quoted as the program prints them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from relay.app.cli import app
from relay.app.pages import clidoc
from relay.core.settings.config import Settings, leaves
from relay.core.settings.origins import READ_ELSEWHERE, variable

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
TOLD = [*GUIDES, ROOT / "docs" / "concepts.md", *sorted((ROOT / "docs" / "reference").glob("*.md"))]
"""Where a user looks."""
LONGEST = 900
"""Words of a guide without what commands print: people finish reading it."""
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = [path for package in ("relay", "storage", "trm") for path in (ROOT / package).rglob("*.py")]
KERNELS = ROOT / "docs" / "contributing" / "kernels.md"
OF_ALL = "command-line.md"
"""Explains once the options that mean the same everywhere."""
EVERYWHERE = {"--run", "--account", "--config", "--json", "--redact"}
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


BOUNDED = re.compile(
    r"--(?:target-steps|until-step|new-target) \d|--budget-minutes \d|RELAY_TARGET_STEPS=\d|RELAY_BUDGET_MINUTES=\d"
)
TRAINS = re.compile(r"rotate_accounts\.py run\b|multi_account_workflow\.sh(?! setup)")
TRAINS_NOTHING = re.compile(r"--attach\b")
"""Looks on at a session that is under way, and ends with it."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)", FENCED.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_the_readme_is_one_page_and_leads_to_every_guide() -> None:
    readme, index = ((ROOT / name).read_text() for name in ("README.md", "docs/README.md"))
    assert len(readme.splitlines()) <= 110 and "(docs/README.md)" in readme
    assert [page.name for page in GUIDES if f"(how-to/{page.name})" not in index] == []


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_what_a_guide_trains_ends_by_itself_soon(page: Path) -> None:
    """The runner of the guides' commands gives them a target of its own, which no reader has (tests/acceptance)."""
    shown = re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    typed = [line.strip() for block in shown for line in block.splitlines() if TRAINS.search(line)]
    assert [line for line in typed if not BOUNDED.search(line) and not TRAINS_NOTHING.search(line)] == []


def options() -> list[tuple[str, str, str]]:
    """(command, option, its help) of everything that can be typed."""
    return [
        (command, clidoc.spelled(name, kind, info).split(",")[0].split()[0], info.help or "")
        for command, body in clidoc.commands(app)
        for name, kind, info, _ in clidoc.parameters(body)
    ]


def test_every_option_says_what_it_does() -> None:
    assert [row for row in options() if not row[2].strip()] == []


@pytest.mark.parametrize("command", sorted({name.split()[0] for name in dict(clidoc.commands(app))}))
def test_every_command_is_on_a_guide(command: str) -> None:
    """All its options are in the generated reference (tests/app/pages/test_clidoc.py)."""
    named = re.compile(rf"(?:rotate_accounts\.py |`){re.escape(command)}\b")
    assert [page.name for page in GUIDES if named.search(page.read_text())] != []


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_a_guide_is_read_to_its_end(page: Path) -> None:
    prose = re.sub(r"^( *)```text\n.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(prose.split()) <= LONGEST


def test_the_site_s_navigation_has_every_page() -> None:
    def pages(part: object) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from pages(inner)

    found = list(pages(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    folders = ("how-to", "reference", "contributing")
    wanted = {f"{folder}/{page.name}" for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")}
    assert wanted - set(found) == set() and len(found) == len(set(found))
    assert all((ROOT / "docs" / page).exists() or (ROOT / page).exists() for page in set(found) - {"index.md"})


def test_what_all_commands_share_is_explained_once() -> None:
    text = (ROOT / "docs" / "how-to" / OF_ALL).read_text()
    assert all(f"`{option}" in text for option in EVERYWHERE)


def test_every_variable_that_is_read_is_on_a_page_and_no_other() -> None:
    known = READ_ELSEWHERE | {variable(key) for key in [*leaves(Settings), "task"]}
    pages = [*TOLD, ROOT / "README.md"]
    named = set(re.findall(r"\bRELAY_[A-Z_]+\b", "\n".join(page.read_text() for page in pages)))
    assert named - known <= {"RELAY_MODEL"}, "the tests' own"
    assert known - named <= {"ACCOUNT_ID", "RUN_NAME", *INTERNAL}


def test_the_model_s_own_variables_are_told_too() -> None:
    read = {name for path in SOURCES for name in re.findall(r'"(TRM_[A-Z_]+)"', path.read_text())}
    assert read == {name for page in [*TOLD, KERNELS] for name in re.findall(r"\bTRM_[A-Z_]+\b", page.read_text())}


INTERNAL = {"RELAY_NOTEBOOK", "RELAY_SEED", "RELAY_EXIT_NOTE", "RELAY_CHECK", "RELAY_LEADER", "RELAY_GUARD"}
"""What our own parts tell each other, and the tests."""


@cache
def printed() -> list[str]:
    """Every text in the code except docstrings, with `…` for filled-in values."""
    found = []
    for path in SOURCES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner | prose:
                found.append(node.value)
    return found


def test_messages_are_quoted_as_the_program_prints_them() -> None:
    text = FENCED.sub("", (ROOT / "docs" / "reference" / "messages.md").read_text())
    quotes = [
        quote for bold in re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL) for quote in re.findall(r'"([^"]+)"', bold)
    ]
    assert len(quotes) > 25
    assert [quote for quote in quotes if not is_printed(quote)] == []


@pytest.mark.parametrize("page", ["notebooks", "drive-dropbox", "stores"])
def test_tables_of_messages_quote_them_too(page: str) -> None:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    tables = re.findall(r"^\| message \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    quotes = [row.split("|")[1].strip() for table in tables for row in table.splitlines()]
    assert quotes
    assert [quote for quote in quotes if not is_printed(quote)] == []


def is_printed(quote: str) -> bool:
    parts = [re.escape(part.strip()) for part in " ".join(quote.split()).split("…") if part.strip()]
    wanted = re.compile(r".{0,300}?".join(parts), re.DOTALL)
    return any(wanted.search(text) for text in printed())
