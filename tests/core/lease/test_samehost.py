"""A free lock proves death only on this machine and in this boot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relay.core.lease.host import FileHostLocks, read_boot_id

SESSION = "5e" * 16
HOLD = """
import sys
from pathlib import Path
from relay.core.lease.host import FileHostLocks
locks = FileHostLocks(Path(sys.argv[1]), "boot")
locks.hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path: Path) -> FileHostLocks:
    return FileHostLocks(tmp_path / "locks", "boot")


def test_a_living_process_is_not_dead_and_a_killed_one_is(locks: FileHostLocks, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "locks"), SESSION]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "held\n"
        assert not locks.is_dead(SESSION)
        child.kill()
        child.wait()
    assert locks.is_dead(SESSION)
    assert not FileHostLocks(tmp_path / "locks", "another boot").is_dead(SESSION)


def test_of_a_session_never_seen_here_nothing_is_known(locks: FileHostLocks) -> None:
    assert not locks.is_dead(SESSION)


def test_a_session_that_ended_leaves_nothing(locks: FileHostLocks, tmp_path: Path) -> None:
    locks.hold(SESSION)
    assert not locks.is_dead(SESSION)
    locks.drop(SESSION)
    assert not list((tmp_path / "locks").iterdir())


def test_without_a_boot_id_or_a_folder_there_is_no_shortcut(tmp_path: Path) -> None:
    for broken in (FileHostLocks(tmp_path, ""), FileHostLocks(Path("/proc/nowhere"), "boot")):
        broken.hold(SESSION)
        assert not broken.is_dead(SESSION)
        broken.drop(SESSION)
    assert read_boot_id(tmp_path / "none") == ""


def test_a_session_id_cannot_leave_the_folder(locks: FileHostLocks) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        locks.hold("../../x")
