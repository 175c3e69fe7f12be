"""`exec` passes on signals and settings, and returns the code of the script's session."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from relay.app.commands.common import App
from relay.app.commands.sessions.scripts import run_script
from relay.app.models.ownloop import OwnLoopPlugin
from relay.core.lease.children import NoSuchProgram, run_child

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


def test_a_signal_reaches_the_script_once(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(30)\n"
    )
    assert run_child([sys.executable, "-S", "-c", script], {}, tmp_path) == 7
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_end_of_a_killed_script_is_a_shell_s(tmp_path: Path) -> None:
    assert run_child([sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"], {}, tmp_path) == 137


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchProgram) as caught:
        run_child(["no-such-program"], {}, tmp_path)
    assert caught.value.program == "no-such-program" and caught.value.exit_code == 78
