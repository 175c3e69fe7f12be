"""`exec` passes on settings, starts as many processes as asked, and returns the code of the script's session."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from relay.app.commands.common import App
from relay.app.commands.sessions.scripts import run_script
from relay.app.models.ownloop import OwnLoopPlugin
from tests.app.cli import Desk

NOTED = "import os, pathlib, sys; pathlib.Path(os.environ['RELAY_EXIT_NOTE']).write_text({!r}); sys.exit({})"


def code_of(tmp_path: Path, note: str, code: int) -> int:
    app = App(plugin=OwnLoopPlugin(), cwd=tmp_path)
    return run_script(app, [sys.executable, "-S", "-c", NOTED.format(note, code)], {})


@pytest.mark.parametrize(
    ("note", "code", "expected"),
    [
        ({"exit_code": 75}, 0, 75),
        ({"exit_code": 0}, 0, 0),
        ({"exit_code": 76}, 1, 76),
        ({"exit_code": 0}, 3, 3),
        ({"exit_code": 75}, 130, 130),
        ({}, 0, 0),
    ],
)
def test_the_session_s_code_counts(tmp_path: Path, note: dict[str, int], code: int, expected: int) -> None:
    assert code_of(tmp_path, json.dumps(note), code) == expected


def test_settings_reach_the_script(tmp_path: Path) -> None:
    told = tmp_path / "told"
    words = [sys.executable, "-S", "-c", f"import os; open({str(told)!r}, 'w').write(os.environ['ACCOUNT_ID'])"]
    assert run_script(App(plugin=OwnLoopPlugin(), cwd=tmp_path), words, {"ACCOUNT_ID": "ana"}) == 0
    assert told.read_text() == "ana"


def test_several_processes_of_a_script_know_their_places(tmp_path: Path) -> None:
    """The first one's exit code counts, and the others' output goes to a log."""
    script = (
        "import os, pathlib, socket, sys\n"
        "rank, names = os.environ['RANK'], ('WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')\n"
        "pathlib.Path(rank).write_text(' '.join(os.environ[name] for name in names))\n"
        "if rank == '0':\n"
        "    socket.create_server(('', int(os.environ['MASTER_PORT']))).close()\n"
        "print('I am', rank)\n"
        "sys.exit(7 + int(rank))\n"
    )
    words = [sys.executable, "-S", "-c", script]
    app = App(plugin=OwnLoopPlugin(), cwd=tmp_path)
    assert run_script(app, words, {}, processes=2, logs=tmp_path / "logs") == 7
    first, second = ((tmp_path / rank).read_text().split() for rank in "01")
    assert first[:3] == ["2", "0", "127.0.0.1"] and second == ["2", "1", "127.0.0.1", first[3]]
    (log,) = (tmp_path / "logs").glob("*.rank1")
    assert log.read_text() == "I am 1\n"


def test_exec_takes_the_number_from_the_settings(desk: Desk, tmp_path: Path) -> None:
    words = [sys.executable, "-S", "-c", "import os, sys; sys.exit(int(os.environ.get('WORLD_SIZE', 1)) + 10)"]
    desk("exec", "--", *words, code=11)
    desk("exec", "--", *words, code=13, RELAY_PROCESSES="3")
    desk("exec", "--", *words, code=78, RELAY_PROCESSES="three")


def test_a_script_that_fails_while_it_is_checked_is_shown_by_its_last_line(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('reading')\nraise SystemExit('no data in ./here')\n")
    message = desk("check-loop", str(script), "--json", code=78).json["message"]
    assert message.endswith("no data in ./here") and "reading" not in message
