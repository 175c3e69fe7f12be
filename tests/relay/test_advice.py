"""Commands that people are told to run are written in one form and can be copied."""

from __future__ import annotations

import shlex
from pathlib import Path

import relay
from relay.advice import command

DOCUMENTATION = {"advice.py", "clidoc.py"}


def test_a_command_can_be_copied_into_a_shell() -> None:
    told = command("accounts edit a", "r", "--label", "it's mine", "x=$(y)")
    assert told.startswith("python rotate_accounts.py accounts edit a --run r ")
    assert shlex.split(told)[-2:] == ["it's mine", "x=$(y)"]


def test_no_message_writes_a_command_by_hand() -> None:
    root = Path(relay.__file__).parent
    written = [
        f"{path.name}:{number}"
        for path in root.rglob("*.py")
        if path.name not in DOCUMENTATION
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "rotate_accounts.py " in line and '"""' not in line
    ]
    assert not written
