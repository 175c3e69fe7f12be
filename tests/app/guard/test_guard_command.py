"""`guard` as real processes: a session's last commit precedes the deletion, and a killed guard is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from relay.app.commands.common import App
from relay.app.commands.sessions import guarding
from relay.app.guard.commands import ByCommands
from relay.app.guard.ending import StillRuns
from relay.app.guard.notes import Note, note_session
from relay.app.guard.rented import NoMachine, StoreOnMachine
from relay.app.models.ownloop import OwnLoopPlugin
from relay.core.clock import RealRuntime, Runtime
from relay.core.errors import StoreAddressWrong
from relay.core.lease.children import NoSuchProgram
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from relay.core.settings.origins import GUARD
from storage.local import LocalStore
from tests.app.cli import Desk
from tests.app.guard.rental import KEY, Clock, Provider, limits, renting, until
from tests.processes.field import PROJECT, ROOT

LIMITS = ("--train-minutes", "5", "--total-minutes", "10", "--price", "2")
ANY = ("--end-command", "true", "--gone-command", "false")
ANY_MACHINE = ByCommands("true", "false", {}, Path("/"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--train-minutes", "0", "--total-minutes", "10", "--price", "2"), "--train-minutes"),
        (("--train-minutes", "nan", "--total-minutes", "10", "--price", "2"), "--train-minutes"),
        (("--train-minutes", "11", "--total-minutes", "10", "--price", "2"), "--total-minutes"),
        (("--train-minutes", "5", "--total-minutes", "inf", "--price", "2"), "--total-minutes"),
        (("--train-minutes", "5", "--total-minutes", "10", "--price", "-1"), "--price"),
        (("--train-minutes", "5", "--total-minutes", "10"), "--price"),
        (("--train-minutes", "5", "--total-minutes", "1e300", "--price", "2"), "--total-minutes"),
        (("--train-minutes", "5", "--total-minutes", "10", "--price", "1e300"), "--price"),
        ((*LIMITS, "--end-command", "true"), "--gone-command"),
        ((*LIMITS, "--end-command", " ", "--gone-command", "false"), "--end-command"),
        ((*LIMITS, "--end-command", "true", "--gone-command", ""), "--gone-command"),
        ((*LIMITS, *ANY, "--machine", "7"), "--machine"),
    ],
)
def test_bad_words_are_refused_before_anything_starts(desk: Desk, words: tuple[str, ...], named: str) -> None:
    done = desk("guard", *words, "--ephemeral", "--", "touch", "started", code=2)
    assert named in done.err and not (desk.folder / "started").exists()


def test_a_machine_of_no_known_provider_is_refused(desk: Desk) -> None:
    done = desk("guard", *LIMITS, "--ephemeral", "--", "touch", "started", code=78)
    assert done.raised(NoMachine) and "--end-command" in done.err and not (desk.folder / "started").exists()


def test_a_store_that_is_deleted_with_the_machine_is_refused(desk: Desk) -> None:
    done = desk("guard", *LIMITS, *ANY, "--", "touch", "started", code=78, RELAY_EPHEMERAL="")
    assert done.raised(StoreOnMachine).address.startswith("file:") and "--ephemeral" in done.err


@pytest.mark.parametrize(("address", "error"), [("memory://x", StoreOnMachine), ("zzz://x/y", StoreAddressWrong)])
def test_a_store_that_no_other_machine_sees_is_refused(desk: Desk, address: str, error: type[Exception]) -> None:
    done = desk("guard", *LIMITS, *ANY, "--", "touch", "started", code=78, RELAY_EPHEMERAL="", RELAY_STORE=address)
    done.raised(error)
    assert address.partition(":")[0] in done.err and not (desk.folder / "started").exists()


def test_a_command_that_cannot_start_leaves_the_machine_and_says_so(tmp_path: Path, desk: Desk) -> None:
    done = desk(
        "guard",
        *LIMITS,
        "--end-command",
        "touch gone",
        "--gone-command",
        "false",
        "--ephemeral",
        "--",
        "no_such_program",
        code=78,
    )
    done.raised(NoSuchProgram)
    assert "STILL RUNS" in done.err and not (desk.folder / "gone").exists()


def test_a_command_that_already_says_gone_is_refused(desk: Desk) -> None:
    words = ("--end-command", "true", "--gone-command", "true", "--ephemeral")
    desk("guard", *LIMITS, *words, "--", "touch", "started", code=78)


def test_two_commands_end_any_machine(tmp_path: Path) -> None:
    machine = ByCommands(f"echo {KEY}; touch gone", "test -e gone", {"PATH": os.environ["PATH"]}, tmp_path)
    assert machine.look().state == "there"
    assert machine.delete().state == "accepted" and machine.look().state == "gone"
    assert ByCommands("exit 3", "true", {}, tmp_path).delete().state == "failed" and KEY not in repr(machine)


def test_a_command_that_removed_its_folder_does_not_keep_the_machine(tmp_path: Path) -> None:
    machine = ByCommands("exit 0", "exit 0", {"PATH": os.environ["PATH"]}, tmp_path / "removed")
    assert (machine.delete().state, machine.look().state) == ("accepted", "gone")


def test_a_checkpoint_that_is_only_here_is_sent_before_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`push` of the session's own run, again until the store has it."""
    note_session({GUARD: str(tmp_path)}, Note("toys", "chain", "account_2", "/work"))
    codes, calls = [69, 74, 0], list[tuple[list[str], str, Path]]()

    def run_child(words: list[str], environ: dict[str, str], cwd: Path) -> int:
        calls.append((words, environ["RELAY_PROJECT"], cwd))
        clock.now += 5
        return codes.pop(0)

    monkeypatch.setattr(guarding, "run_child", run_child)
    clock = Clock()
    app = App(OwnLoopPlugin(), runtime=cast(Runtime, clock), environ={}, cwd=tmp_path, started=1000.0, session="s")
    guarding.send_unsent(app, tmp_path, clock.now + 600)
    assert len(calls) == 3 and clock.now == 1000 + 3 * 5 + 2 * guarding.AGAIN_S
    words, project, cwd = calls[0]
    assert words[-5:] == ["push", "--run", "chain", "--account", "account_2"] and (project, cwd) == (
        "toys",
        Path("/work"),
    )
    codes += [74] * 50
    guarding.send_unsent(app, tmp_path, clock.now + 100)
    assert len(calls) == 6, "the machine's time is over"


@dataclass
class Second:
    """A second process that only counts."""

    told: int = 0

    def over(self) -> None:
        self.told += 1


@pytest.mark.parametrize(
    ("error", "kept"),
    [(KeyboardInterrupt(), True), (StillRuns(ANY_MACHINE, 6.0, "it answered 500"), True), (SystemExit(143), False)],
    ids=["a person keeps it", "given up", "SIGTERM"],
)
def test_the_second_process_stays_unless_the_guard_is_done(
    error: BaseException,
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    second = Second()

    def end(*_: object) -> None:
        raise error

    monkeypatch.setattr(guarding, "stand_by", lambda orders, environ: second)
    monkeypatch.setattr(guarding, "run_watched", lambda *_: 0)
    monkeypatch.setattr(guarding, "end", end)
    app = App(OwnLoopPlugin(), runtime=cast(Runtime, Clock()), environ={}, cwd=tmp_path, started=1000.0, session="s")
    with pytest.raises(type(error)):
        guarding.guarded(app, ["true"], limits(price=7.5), ANY_MACHINE)
    assert second.told == kept
    assert (ANY_MACHINE.console in capsys.readouterr().err) == isinstance(error, KeyboardInterrupt)


def standbys(folder: Path) -> list[int]:
    """Second processes of a test's guard, which its home folder shows."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"HOME={folder}".encode() in (path / "environ").read_bytes().split(b"\0")
            if mine and b"relay.app.guard.standby" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def state_of(folder: Path) -> RunState:
    return RunLedger(LocalStore(folder / "store"), PROJECT, "chain", RealRuntime()).read().state


@pytest.fixture(autouse=True)
def _no_process_outlives_its_machine(tmp_path: Path) -> Iterator[None]:
    yield
    for pid in standbys(tmp_path):
        os.kill(pid, signal.SIGKILL)


def started(
    folder: Path, provider: Provider, *words: str, train: str = "30", total: str = "60"
) -> subprocess.Popen[bytes]:
    """The guard with a command, as its provider's machine would run it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    own = {"RELAY_STORE": f"file://{folder}/store", "RELAY_SYNC_DIR": str(folder / "sync"), "HOME": str(folder)}
    toy = {"TOY_STEP_S": "0.05", "RELAY_PROJECT": PROJECT, "RELAY_EPHEMERAL": "1"}
    given = ("--train-minutes", train, "--total-minutes", total, "--price", "3.6", "--ephemeral")
    words = (sys.executable, "-m", "tests.processes.program", "guard", *given, "--", *words)
    environ = {**kept, **own, **toy, **provider.environ}
    with (folder / "err").open("w") as err:
        return subprocess.Popen(
            words, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True
        )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_last_commit_is_acknowledged_before_the_deletion(tmp_path: Path) -> None:
    """The time of training begins with the first commit, and the deletion finds the lease given back."""
    seen = []

    def ordered() -> None:
        state = state_of(tmp_path)
        seen.append((state.step, state.holder))
        os.killpg(guard.pid, signal.SIGKILL)  # as a machine that is deleted ends its processes

    with renting("runpod", ordered=ordered) as provider:
        session = (sys.executable, "-m", "tests.processes.program", "run", "--run", "chain", "--checkpoint-every", "20")
        guard = started(tmp_path, provider, *session, "--target-steps", "100000", train="0.05")
        guard.wait(timeout=120)
        text = (tmp_path / "err").read_text()
        (step, holder), *_ = seen
        assert step >= 20 and holder is None, text
        assert state_of(tmp_path).step == step
        assert provider.deleted and KEY not in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_guard_and_a_killed_command_leave_no_machine(tmp_path: Path) -> None:
    """The second process ends both, although nobody is left to ask it."""
    with renting("vast") as provider:
        sleeper = (
            "import os, time; open('pid', 'w').write(os.environ.get('CONTAINER_API_KEY', 'none')); time.sleep(600)"
        )
        guard = started(
            tmp_path, provider, sys.executable, "-S", "-c", f"import os; os.chdir({str(tmp_path)!r}); {sleeper}"
        )
        until((tmp_path / "pid").exists)
        os.kill(guard.pid, signal.SIGKILL)
        guard.wait()
        until(lambda: provider.deleted)
        until(lambda: ("GET", provider.calls[-1][1]) == provider.calls[-1])
        text = (tmp_path / "err").read_text()
        assert "GUARD GONE" in text and KEY not in text
        assert (tmp_path / "pid").read_text() == "none", "the command does not get the key"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_command_that_is_killed_first_ends_the_machine(tmp_path: Path) -> None:
    with renting("prime", ordered=lambda: os.killpg(guard.pid, signal.SIGKILL)) as provider:
        guard = started(tmp_path, provider, "sh", "-c", "kill -9 $$")
        guard.wait(timeout=120)
        until(lambda: provider.deleted)
        assert "exit 137" in (tmp_path / "err").read_text()
