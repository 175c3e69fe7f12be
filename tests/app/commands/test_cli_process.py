"""The program as people start it: fast to start, torch only where it trains, ASCII where the terminal has no more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
PROGRAM = [sys.executable, str(ROOT / "rotate_accounts.py")]


def start(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RELAY_", "ACCOUNT_", "RUN_"))}
    surroundings = {**kept, "HOME": str(folder), **environ}
    return subprocess.run([*PROGRAM, *words], cwd=folder, env=surroundings, capture_output=True, timeout=120)


def test_commands_that_only_read_never_import_torch_nor_what_lays_out_markdown(tmp_path: Path) -> None:
    """And the module is the same program."""
    for name in ("torch", "markdown_it"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    out = []
    for words in (["status", "--json"], ["register", "account_1", "John's Colab"], ["config", "show"]):
        done = start(tmp_path, *words, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, done.stderr.decode()
        out.append(done.stdout)
    kept = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "relay.app.cli", "config", "show"]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, timeout=120, check=True)
    assert done.stdout == out[-1]


def test_ctrl_c_while_the_program_is_loaded_is_one_line(tmp_path: Path) -> None:
    """Sent by the import system itself as that module is found: no moment to wait for."""
    found = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests in the background of a shell ignore it
        "class Press:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'relay.app.commands.table': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
    )
    (tmp_path / "sitecustomize.py").write_text(found)
    done = start(tmp_path, "status", PYTHONPATH=str(tmp_path))
    assert done.returncode == 130 and done.stderr.count(b"\n") == 1, done.stderr.decode()


def test_a_watch_that_is_terminated_shows_the_cursor_again(tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "TTY_INTERACTIVE": "1", "TERM": "xterm"}
    words = [*PROGRAM, "report", "--watch", "--run", "not_yet"]
    with subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert watching.stdout is not None and watching.stderr is not None
        assert b"\x1b[?25l" in watching.stdout.read(6)
        watching.terminate()
        out, err = watching.communicate(timeout=60)
    assert watching.returncode == 143, err.decode()
    assert out.rfind(b"\x1b[?25h") > out.rfind(b"\x1b[?25l") and not err


def test_a_closed_stream_is_no_fault(tmp_path: Path) -> None:
    words = f"{' '.join(PROGRAM)} accounts list >&- 2>&-; exit $?"
    environ = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, env=environ, timeout=120, check=False)
    assert done.returncode == 0 and not (tmp_path / "sync").exists(), "no log of a fault"


def test_without_torch_training_names_the_install_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    done = start(tmp_path, "prepare", PYTHONPATH=str(tmp_path))
    assert done.returncode == 78
    assert b"pip install 'trm-relay[train]'" in done.stderr and b"Traceback" not in done.stderr


def test_a_fresh_checkout_names_a_set_up_that_trains_nothing(tmp_path: Path) -> None:
    shutil.copy(ROOT / "rotate_accounts.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "rotate_accounts.py", "report"], cwd=tmp_path, capture_output=True, env={}
    )
    assert done.returncode == 78 and b"`bash multi_account_workflow.sh setup`" in done.stderr


def test_the_box_falls_back_to_ascii_where_stdout_is_not_utf8(tmp_path: Path) -> None:
    """The report imports no torch either."""
    for name in ("torch", "markdown_it"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    plain = start(tmp_path, "report", PYTHONIOENCODING="ascii").stdout.decode("ascii")
    fancy = start(tmp_path, "report", PYTHONIOENCODING="utf-8", PYTHONPATH=str(tmp_path)).stdout.decode("utf-8")
    assert plain.startswith("+====") and fancy.startswith("╔════")


def test_an_error_under_json_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    done = start(tmp_path, "run", "bach_size=3", "--json")
    assert done.returncode == 78
    assert json.loads(done.stdout)["schema"] == "relay.error/1"
