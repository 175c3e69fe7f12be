"""Another session of this machine is identified by its lock, boot, pid with start time, and user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.app.machine.mirror import LINES, Mirror, Now, Onlooker, read_now
from relay.core.clock import RealRuntime
from relay.core.lease.host import Earlier, FileHostLocks, MachineSessions, training_id
from relay.core.workload import Progress

ROOT = Path(__file__).parents[3]
THEIRS, MINE = "5e" * 16, "ab" * 16
TRAINING = training_id("file:///store", "p", "r")
HOLD = """
import sys
from pathlib import Path
from relay.core.lease.host import MachineSessions
from relay.core.lease.host import FileHostLocks
neighbors = MachineSessions(FileHostLocks(Path(sys.argv[1]), "boot"))
neighbors.register(*sys.argv[2:])
print("enrolled", flush=True)
sys.stdin.read()
"""


def here(tmp_path: Path, boot: str = "boot", root: Path = Path("/")) -> MachineSessions:
    return MachineSessions(FileHostLocks(tmp_path, boot), root)


def found(tmp_path: Path, training: str = TRAINING, account: str = "account_1", **more: Any) -> Earlier | None:
    """The sessions that a new session finds: this process is made to look younger than the other."""
    return here(tmp_path, **more).earlier(MINE, training, account)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A session of another process, which began before this one."""
    command = [sys.executable, "-c", HOLD, str(tmp_path), THEIRS, TRAINING, "account_1"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "enrolled\n"
        import relay.core.lease.host as module

        real = module.start_ticks
        monkeypatch.setattr(module, "start_ticks", lambda root, pid="self": 2**50 if pid == "self" else real(root, pid))
        yield child
        child.kill()


def rewrite(tmp_path: Path, **changes: Any) -> None:
    path = tmp_path / f"{THEIRS}.who"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_living_session_is_found_and_every_kind_of_stale_trace_is_not(
    other: subprocess.Popen[str], tmp_path: Path
) -> None:
    one = found(tmp_path)
    assert one is not None and (one.session, one.who.pid, one.reachable) == (THEIRS, other.pid, True)
    assert 0 <= one.age_s < 60
    assert found(tmp_path, account="account_2") is None, "another account's session is not mine to end"
    assert found(tmp_path, training=training_id("file:///store", "p", "other")) is None
    assert found(tmp_path, boot="another boot") is None
    ticks = one.who.ticks
    rewrite(tmp_path, ticks=ticks - 1)
    assert found(tmp_path) is None, "the pid was given to another process"
    rewrite(tmp_path, ticks=ticks, pid=os.getpid())
    assert found(tmp_path) is None
    for damaged in ("", "[]", '{"pid": "7"}', "\x00" * 5_000):
        (tmp_path / f"{THEIRS}.who").write_text(damaged)
        assert found(tmp_path) is None
    other.kill()
    other.wait()
    assert found(tmp_path) is None and not list(here(tmp_path).living())


def test_the_pid_of_another_container_is_never_signalled(other: subprocess.Popen[str], tmp_path: Path) -> None:
    rewrite(tmp_path, space="pid:[1]")
    one = found(tmp_path)
    assert one is not None and not one.reachable
    assert not here(tmp_path).ask_to_end(one) and other.poll() is None


@pytest.mark.parametrize("with_pidfd", [True, False])
def test_asked_to_end_it_gets_one_usr1_and_only_while_it_is_the_same_process(
    other: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_pidfd: bool
) -> None:
    if not with_pidfd:  # as in gVisor
        monkeypatch.setattr(os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError(38, "no such call")))
    one = found(tmp_path)
    assert one is not None
    reused = Earlier(one.session, one.who.model_copy(update={"ticks": one.who.ticks - 1}), 0.0, True)
    assert not here(tmp_path).ask_to_end(reused) and other.poll() is None
    assert here(tmp_path).ask_to_end(one)
    assert other.wait(10) == -signal.SIGUSR1
    assert not here(tmp_path).ask_to_end(one)


def test_of_two_that_begin_at_once_only_the_younger_finds_the_other(tmp_path: Path) -> None:
    neighbors = here(tmp_path)
    neighbors.register(THEIRS, TRAINING, "account_1")
    assert (tmp_path / f"{THEIRS}.who").exists()
    assert neighbors.earlier(MINE, TRAINING, "account_1") is None, "this very process"
    neighbors.locks.drop(THEIRS)
    assert not list(tmp_path.iterdir())


def test_without_proc_or_a_folder_nothing_is_found_and_nothing_fails(tmp_path: Path) -> None:
    for neighbors in (here(tmp_path, root=tmp_path), MachineSessions(FileHostLocks(Path("/proc/nowhere"), "boot"))):
        neighbors.register(THEIRS, TRAINING, "account_1")
        assert neighbors.earlier(MINE, TRAINING, "account_1") is None
    assert not list(tmp_path.iterdir())


def test_what_a_session_leaves_is_shown_once_and_only_what_is_new(tmp_path: Path) -> None:
    path, shown = tmp_path / f"{THEIRS}.now", list[Any]()
    mirror, view = Mirror(RealRuntime(), path), Onlooker(path, shown.append, shown.append, shown.append)
    assert view.look() is None
    mirror.aim(40)
    mirror.step(Progress(3, {"lm_loss": 1.5}))
    view.look()
    assert shown == [40, Progress(3, {"lm_loss": 1.5})], "first where it goes"
    mirror.step(Progress(4, {}))
    assert read_now(path) == Now(step=3, target=40, metrics={"lm_loss": 1.5}), "a mere step is not written each time"
    for number in range(LINES + 5):
        mirror.tell(f"line {number}")
    view.look()
    view.look()
    assert shown[2:] == [*(f"line {number}" for number in range(5, LINES + 5)), Progress(4, {})]
    mirror.step(Progress(40, {}))
    assert view.look() is not None and shown[-1] == Progress(40, {}), "the last step is always written"


def test_a_disk_that_refuses_costs_only_the_view(tmp_path: Path) -> None:
    for path in (None, tmp_path / "no" / "folder"):
        Mirror(RealRuntime(), path).tell("line")
    (tmp_path / "damaged").write_text("{")
    assert read_now(tmp_path / "damaged") is None
