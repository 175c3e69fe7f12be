"""Commands in advice are written in one form and can be copied."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import relay
from relay.app.messages.advice import command
from storage.packages import interpreter

DOCUMENTATION = {"advice.py", "clidoc.py", "modelcard.py"}


def test_a_command_can_be_copied_into_a_shell() -> None:
    told = command("accounts edit a", "r", "--label", "it's mine", "x=$(y)")
    assert told.startswith("python rotate_accounts.py accounts edit a --run r ")
    assert shlex.split(told)[-2:] == ["it's mine", "x=$(y)"]


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (("python", "python3"), "python"),
        (("python",), "python"),
        (("python3",), "python3"),
        ((), "python"),
    ],
)
def test_python_is_called_by_a_name_that_this_machine_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], told: str
) -> None:
    monkeypatch.undo()
    for name in there:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter() == told
    assert command("report") == f"{told} rotate_accounts.py report"


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
