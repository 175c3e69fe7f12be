"""Every command answers --help, takes --json, and is on the page of the documentation, which is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relay.app.cli import app
from relay.app.pages import clidoc
from relay.core.errors import Exit
from tests.app.cli import Desk

COMMANDS = dict(clidoc.commands(app))
REQUIRED = {"register", "report", "status", "next", "run", "prepare", "verify", "export", "config show", "doctor"}


def test_the_page_is_what_the_program_says_now() -> None:
    assert clidoc.PAGE.read_text(encoding="utf-8") == clidoc.page(app), "run python -m relay.app.pages.clidoc"


def test_the_commands_people_were_promised_are_there() -> None:
    assert set(COMMANDS) >= REQUIRED | {"init", "fork", "push", "stop", "unhalt", "evaluate", "demo", "accounts list"}


def test_every_exit_code_is_explained() -> None:
    """Once, where it also gives the remedy; a second table next to it had begun to differ."""
    guide = (clidoc.PAGE.parents[1] / "how-to" / "mend.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| exit code \|.*\n\|[-|]+\n((?:\|.*\n)+)", guide, re.MULTILINE)
    told = [code for row in table.splitlines() for code in row.split("|")[1].split(",")]
    assert [int(code) for code in told] == sorted(int(code) for code in Exit)
    assert "mend.md#exit-codes" in clidoc.page(app) and "| 65 |" not in clidoc.page(app)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_answers_help_with_every_option_of_the_page(command: str, tmp_path: Path) -> None:
    shown = Desk(tmp_path)(*command.split(), "--help", COLUMNS="200").out
    for name, kind, info, _ in clidoc.parameters(COMMANDS[command]):
        word = clidoc.spelled(name, kind, info).split(",")[0].split()[0]
        assert word in shown, (word, shown)
    assert "--json" in shown
    assert not list(tmp_path.iterdir()), "asking for help does nothing"
