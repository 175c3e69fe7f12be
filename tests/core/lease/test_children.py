"""A child gets each signal once, returns its code as a shell does, and does not outlive a parent that was killed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relay.core.lease.children import NoSuchProgram, run_child, start

ROOT = Path(__file__).parents[3]
COUNTING = """
import os, signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: seen.append(number))
print("ready", flush=True)
while not seen:
    time.sleep(0.01)
time.sleep(0.5)
print(*seen, flush=True)
sys.exit(len(seen))
"""
"""Exits with the number of signals that it got."""
PARENT = f"""
import sys
from pathlib import Path
from relay.core.lease.children import run_child
sys.exit(run_child([sys.executable, "-S", "-c", {COUNTING!r}], {{}}, Path.cwd()))
"""


def test_a_signal_reaches_the_script_once(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(30)\n"
    )
    assert run_child([sys.executable, "-S", "-c", script], {}, tmp_path) == 7
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [False, True])
def test_a_signal_to_the_parent_or_to_its_group_arrives_once(number: signal.Signals, whole_group: bool) -> None:
    words = [sys.executable, "-c", PARENT]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0) as parent:
        assert parent.stdout and parent.stdout.readline() == "ready\n"
        (os.killpg if whole_group else os.kill)(parent.pid, number)
        parent.communicate(timeout=30)
        assert parent.returncode == 1


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_arrives_once() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", PARENT])
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while f"{int(signal.SIGINT)}".encode() not in said.partition(b"ready")[2]:
        said += os.read(terminal, 1000)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1, said
    os.close(terminal)


def test_the_end_of_a_killed_script_is_a_shell_s(tmp_path: Path) -> None:
    assert run_child([sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"], {}, tmp_path) == 137


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchProgram) as caught:
        run_child(["no-such-program"], {}, tmp_path)
    assert caught.value.program == "no-such-program" and caught.value.exit_code == 78


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no other system ends a child with its parent")
@pytest.mark.parametrize(("follows", "ends"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path, follows: bool, ends: int) -> None:
    """One that follows ignores the signals that end a session, and is killed; a script may still commit."""
    note = tmp_path / "note"
    script = (
        "import os, signal, sys, time\n"
        f"note = {str(note)!r}\n"
        "if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:\n"
        "    signal.signal(signal.SIGTERM, lambda *_: (open(note, 'w').write('SIGTERM'), sys.exit(0)))\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = (
        "import sys, time; from pathlib import Path; from relay.core.lease.children import start\n"
        f"start([sys.executable, '-S', '-c', {script!r}], {{}}, Path.cwd(), alone=True, follows={follows})\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        until_over(child)
    assert note.exists() is (ends == signal.SIGTERM)


def test_one_that_follows_hears_no_signal_and_reads_nothing(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "ignored = [signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]\n"
        "sys.exit(3 if all(ignored) and not sys.stdin.read() and os.getpgrp() == os.getpid() else 4)\n"
    )
    assert start([sys.executable, "-S", "-c", script], {}, tmp_path, alone=True, follows=True).wait(30) == 3


def until_over(handle: int) -> None:
    import select

    began = time.monotonic()
    assert select.select([handle], [], [], 10)[0], time.monotonic() - began
    os.close(handle)
