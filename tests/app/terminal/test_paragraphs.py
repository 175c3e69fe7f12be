"""Paragraphs fit a terminal, and a command in them can always be copied."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import termios
from pathlib import Path

import pytest

from relay.app.commands.looking import checks
from relay.app.terminal.paragraphs import columns, folded, folded_for, paragraph
from relay.app.views.accounts import facts
from tests.app.cli import Desk, advised

COMMAND = "`python rotate_accounts.py fork --run sudoku_rotation --to sudoku_rotation_2 --from-step 30 and more words`"


def test_later_lines_begin_where_the_text_does() -> None:
    folded = paragraph("LOOK", "word " * 40, 30).split("\n")
    assert folded[0].startswith("LOOK word") and all(line.startswith("     word") for line in folded[1:])
    assert all(len(line) <= 30 for line in folded)


@pytest.mark.parametrize("width", [40, 60, 80, 100, None])
def test_a_command_is_never_broken(width: int | None) -> None:
    amid, bare = f"Restore the file, or type {COMMAND} and go on.", COMMAND.strip("`")
    assert COMMAND in paragraph("->", amid, width)
    last = f"Run sudoku_rotation_2 begins at step 30 of another one: {bare}"
    assert bare in paragraph("->", last, width)


@pytest.mark.parametrize(
    "line",
    [
        f"  export RELAY_STORE='file:///{'a' * 70}#id=1'",
        f"  python rotate_accounts.py register account_2 '{'NAME ' * 12}'",
        f"  ACCOUNT_ID=a RELAY_STORE=file:///{'a' * 70} bash multi_account_workflow.sh",
    ],
)
def test_a_line_to_copy_stays_one(line: str) -> None:
    assert folded(f"Type:\n{line}\nDone.", 80).split("\n")[1] == line


def test_only_a_terminal_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert columns() is None, "a pipe gets one line a paragraph"
    monkeypatch.setattr(sys, "stdout", Terminal())
    for told, wide in ((80, 80), (20, 40), (300, 100)):
        monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, told=told: os.terminal_size((told, 24)))
        assert columns() == wide


def test_what_verify_and_doctor_print_fits_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path / "desk")
    for target in (3, 6):
        desk.train(target)
    plain = {command: desk(command, "--run", "r").out for command in ("verify", "doctor")}
    next((desk.folder / "relay_store").rglob(f"r/ledger/{2:020d}.json")).unlink()
    (state,) = (desk.folder / "relay_store").rglob("step_6.e2/state.json")
    state.write_bytes(b"")
    monkeypatch.setattr(checks, "columns", lambda: 80)
    for command, unfolded in plain.items():
        out = desk(command, "--run", "r", code=65).out
        fixed = re.compile(r"`[^`]*`\S*|\S*/\S*")  # a command, a path, an address
        assert all(len(fixed.sub("", line)) <= 80 for line in out.splitlines())
        assert max(map(len, unfolded.splitlines())) > 80 or command == "verify"
        assert advised(out, "fork") == [["fork", "--run", "r", "--to", "r_2", "--from-step", "3"]]


@pytest.mark.parametrize("width", [60, 200])
def test_what_is_told_on_a_terminal_is_folded_at_its_width_and_in_a_pipe_is_not(width: int) -> None:
    text = f"One account too many: {'word ' * 60}{COMMAND}\n  a short line\n"
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as terminal:
        termios.tcsetwinsize(terminal, (24, width))
        folded = folded_for(terminal, text)
    assert all(len(line) <= width or COMMAND in line for line in folded.split("\n")) and COMMAND in folded
    assert folded.endswith("\n  a short line\n") and "word\nword" in folded.replace(" \n", "\n")
    assert folded_for(io.StringIO(), text) == text
    pairs = [("rules", text), ("", "more")]
    assert all(len(line) <= max(width, 109 + 12) for fact in facts(pairs, width) for line in fact.split("\n"))
    assert list(facts([("rules", "a b")], None)) == ["  rules  a b"]
