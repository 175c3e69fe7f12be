"""multi_account_workflow.sh with a stand-in for Python: the interpreter, the installed packages, the exit code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.core.lease.signals import REASONS

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "multi_account_workflow.sh"
CONSTRAINTS = SCRIPT.parent / "constraints.txt"
STAND_IN = r"""#!/usr/bin/env bash
echo "$* [$0 ephemeral=${RELAY_EPHEMERAL:-}]" >>"$CALLS"
case "$*" in
  *"import ensurepip"*) exit "${NO_ENSUREPIP:-0}" ;;
  *"version_info[:2]"*) echo 3.12 ;;
  *"version_info <"*) exit "${TOO_OLD:-0}" ;;
  *"import einops"*) exit "${MISSING:-0}" ;;
  "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/pip ;;
  *"find_spec"*) exit "${HIDDEN_TORCH:-0}" ;;
  "-m pip list"*)
    [ -z "$PIP_BROKEN" ] || { echo "pip: no metadata" >&2; exit 1; }
    printf 'numpy==2.1.0\nrequests==2.0\n'
    [ -n "$NO_TORCH" ] || printf 'torch==2.11.0+cu128\ntorchvision==0.1\n' ;;
  "-m pip install"*)
    echo "wants ${@: -1}" >>"$CALLS"
    while [ "$1" != -c ]; do shift; done; sed 's/^/pinned /' "$2" >>"$CALLS" ;;
  *"config show"*)
    [ -z "$CONFIG_CODE" ] || exit "$CONFIG_CODE"
    echo "run = r"; echo "storage.url = ${STORE:-(not set: file:///x/relay_store)}"; echo "storage.ledger_url = " ;;
  *"rotate_accounts.py prepare") exit "${PREPARE_CODE:-0}" ;;
  *"rotate_accounts.py run --wait 5"*)
    if [ -n "$HOLD" ]; then   # a session that runs until it is told to end
      trap 'echo "got USR1" >>"$CALLS"; exit 75' USR1
      trap 'echo "got TERM" >>"$CALLS"; sleep 0.2; exit 143' TERM
      trap 'echo "got INT" >>"$CALLS"; sleep 0.3; exit 130' INT
      echo "holds" >>"$CALLS"
      for ((i = 0; i < 2000; i++)); do sleep 0.05; done   # but not for ever where a test failed
    fi
    exit "${RUN_CODE:-0}" ;;
  *"rotate_accounts.py report") exit "${REPORT_CODE:-0}" ;;
  *"rotate_accounts.py next") exit "${NEXT_CODE:-0}" ;;
esac
"""


def heed() -> None:
    """No signal is ignored from here on."""
    for number in REASONS:
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Machine:
    """A folder with the script, and a PATH whose python3 is the stand-in."""

    folder: Path

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **environ)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """The script in a process group of its own, and heeding every signal, as from a terminal.

        If `nohup` or `&` made the tests ignore a signal, the script would inherit that, and no shell can trap it then.
        """
        surroundings = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CALLS": str(self.folder / "calls")}
        return subprocess.Popen(
            [shutil.which("bash") or "bash", str(self.folder / SCRIPT.name), *words],
            cwd="/",
            env=surroundings | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed,
        )

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def called(self, words: str) -> list[str]:
        return [call for call in self.calls if words in call]

    def until(self, words: str) -> None:
        """Wait for something to be called."""
        end = time.monotonic() + 30
        while not ((self.folder / "calls").exists() and self.called(words)):
            assert time.monotonic() < end, f"no {words}"
            time.sleep(0.02)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(STAND_IN)
    (tmp_path / "bin" / "python3").chmod(0o755)
    shutil.copy(SCRIPT, tmp_path)
    shutil.copy(CONSTRAINTS, tmp_path)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    "active",
    [
        {"VIRTUAL_ENV": "/v"},
        {"CONDA_PREFIX": "/c"},
        {"COLAB_RELEASE_TAG": "x"},
        {"KAGGLE_KERNEL_RUN_TYPE": "Batch"},
    ],
)
def test_an_active_interpreter_is_used_as_it_is(machine: Machine, active: dict[str, str]) -> None:
    assert machine.run(**active).returncode == 0
    assert not machine.called("-m venv") and not machine.called("pip install")
    assert machine.called("rotate_accounts.py run")


def test_elsewhere_an_environment_is_made_once(machine: Machine) -> None:
    machine.run()
    machine.run()
    assert len(machine.called("-m venv .venv")) == 1
    assert all(".venv/bin/python" in call for call in machine.called("rotate_accounts.py"))


@pytest.mark.parametrize("environ", [{"PIP_BROKEN": "1"}, {"NO_TORCH": "1", "HIDDEN_TORCH": "1"}])
def test_where_a_torch_cannot_be_pinned_nothing_is_installed_over_it(machine: Machine, environ: dict[str, str]) -> None:
    done = machine.run(VIRTUAL_ENV="/v", MISSING="1", **environ)
    assert done.returncode == 78 and not machine.called("pip install") and "torch" in done.stderr


def test_without_ensurepip_it_names_the_package(machine: Machine) -> None:
    done = machine.run(NO_ENSUREPIP="1")
    assert done.returncode == 78 and "python3.12-venv" in done.stderr
    assert not machine.called("rotate_accounts.py")


def test_an_old_python_is_refused_with_the_fix(machine: Machine) -> None:
    done = machine.run(TOO_OLD="1", VIRTUAL_ENV="/v")
    assert done.returncode == 78 and "PYTHON=" in done.stderr


def test_installing_pins_the_torch_and_numpy_that_are_there(machine: Machine) -> None:
    machine.run(MISSING="1", VIRTUAL_ENV="/v")
    assert machine.called("pinned") == ["pinned numpy==2.1.0", "pinned torch==2.11.0+cu128"]


@pytest.mark.parametrize(("store", "ephemeral"), [("", "1"), ("file:///mnt/shared", "")])
def test_ephemeral_is_set_only_when_no_store_was_configured(machine: Machine, store: str, ephemeral: str) -> None:
    done = machine.run(STORE=store, VIRTUAL_ENV="/v")
    assert machine.called("rotate_accounts.py run")[0].endswith(f"ephemeral={ephemeral}]")
    assert ("./relay_store" in done.stderr) == bool(ephemeral)


@pytest.mark.parametrize("code", [0, 1, 65, 69, 73, 74, 75, 76, 77, 78, 130, 143])
def test_every_exit_code_comes_out_after_the_report_and_a_word_of_advice(machine: Machine, code: int) -> None:
    done = machine.run(RUN_CODE=str(code), VIRTUAL_ENV="/v")
    assert done.returncode == code
    assert machine.called("rotate_accounts.py report")
    assert bool(machine.called("rotate_accounts.py next")) == (code == 75)
    assert ("push" in done.stderr) == (code == 74)
    assert done.stderr.strip().splitlines()[-1].startswith("== ")


def test_a_failed_preparation_spends_no_session(machine: Machine) -> None:
    assert machine.run(PREPARE_CODE="65", VIRTUAL_ENV="/v").returncode == 65
    assert not machine.called("rotate_accounts.py run")


def test_a_reader_that_goes_away_changes_no_exit_code(machine: Machine) -> None:
    process = machine.start(RUN_CODE="143", VIRTUAL_ENV="/v")
    for stream in (process.stdout, process.stderr):
        assert stream
        stream.close()
    assert process.wait(60) == 143 and machine.called("rotate_accounts.py report")


def test_it_is_short_and_readable() -> None:
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 75 and max(map(len, lines)) <= 120


def test_setting_up_alone_installs_and_makes_the_data_and_needs_no_store(machine: Machine) -> None:
    done = machine.run("setup", MISSING="1", COLAB_RELEASE_TAG="x")
    assert done.returncode == 0 and "No store" not in done.stderr
    assert machine.called("pinned torch==2.11.0+cu128") and machine.called("rotate_accounts.py prepare")
    assert not machine.called("rotate_accounts.py run") and not machine.called("config show")
    assert machine.run("setup", PREPARE_CODE="65", VIRTUAL_ENV="/v").returncode == 65


@pytest.mark.parametrize(
    ("store", "extra"),
    [("", "train"), ("s3://b", "train,s3"), ("drive://F", "train,drive"), ("dropbox:///r", "train,dropbox")],
)
def test_what_the_store_needs_is_installed_too(machine: Machine, store: str, extra: str) -> None:
    machine.run("setup", MISSING="1", VIRTUAL_ENV="/v", RELAY_STORE=store)
    assert machine.called("wants") == [f"wants .[{extra}]"]


def test_other_words_are_the_sessions(machine: Machine) -> None:
    machine.run("--replace", VIRTUAL_ENV="/v")
    assert machine.called("rotate_accounts.py run --wait 5 --replace")


def test_a_long_installation_says_so_before_it_begins_and_is_not_silent(machine: Machine) -> None:
    done = machine.run(MISSING="1", VIRTUAL_ENV="/v")
    assert "some minutes" in done.stderr
    (call,) = machine.called("-m pip install")
    assert "quiet" not in call


def test_advice_calls_python_as_this_machine_does(machine: Machine) -> None:
    tools = machine.folder / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "grep", "cat", "mkdir", "cp", "mktemp", "sed"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    only_python3 = f"{machine.folder}/bin:{tools}"
    assert ": python3 rotate_accounts.py" in machine.run(PATH=only_python3, VIRTUAL_ENV="/v").stderr
    shutil.copy(machine.folder / "bin" / "python3", machine.folder / "bin" / "python")
    assert ": python rotate_accounts.py" in machine.run(PATH=only_python3, VIRTUAL_ENV="/v").stderr


def test_advice_is_for_the_run_that_was_trained(machine: Machine) -> None:
    assert machine.run(RUN_NAME="other", VIRTUAL_ENV="/v").stderr.rstrip().endswith("evaluate --run other")


def test_a_machine_without_torch_gets_the_versions_that_were_tested(machine: Machine) -> None:
    machine.run(MISSING="1", NO_TORCH="1")
    pins = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert {pin.partition("==")[0] for pin in pins} >= {"torch", "triton"}
    assert {f"pinned {pin}" for pin in pins} <= {*machine.calls}


def test_a_report_that_fails_hides_neither_the_sessions_code_nor_the_advice(machine: Machine) -> None:
    done = machine.run(RUN_CODE="69", REPORT_CODE="69")
    assert done.returncode == 69
    assert "doctor" in done.stderr


def test_a_proposal_that_fails_does_not_hide_that_the_run_goes_on(machine: Machine) -> None:
    """Tools that start jobs again look for 75."""
    assert machine.run(RUN_CODE="75", NEXT_CODE="69").returncode == 75


def test_settings_that_are_refused_are_not_taken_for_no_store(machine: Machine) -> None:
    done = machine.run(CONFIG_CODE="78")
    assert done.returncode == 78
    assert not machine.called("rotate_accounts.py run")


@pytest.mark.parametrize("whole_group", [False, True])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 75), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_reaches_the_session_once_and_its_code_comes_out_after_the_report(
    machine: Machine, number: signal.Signals, code: int, whole_group: bool
) -> None:
    """To the script alone, as from an engine, or to its whole group, as Ctrl-C in a terminal."""
    process = machine.start(HOLD="1", VIRTUAL_ENV="/v")
    machine.until("holds")
    (os.killpg if whole_group else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert machine.called("got") == [f"got {number.name.removeprefix('SIG')}"]
    assert machine.called("rotate_accounts.py report") and "Job" not in err


@pytest.mark.parametrize("number", sorted({*REASONS} - {signal.SIGINT}))
def test_every_signal_that_ends_a_session_ends_it_through_the_script(machine: Machine, number: signal.Signals) -> None:
    """Otherwise the signal kills the script, and leaves the session behind."""
    process = machine.start(HOLD="1", VIRTUAL_ENV="/v")
    machine.until("holds")
    process.send_signal(number)
    process.communicate(timeout=30)
    planned = REASONS[number] == "stop"
    assert process.returncode == (75 if planned else 143)
    assert machine.called("got") == ["got USR1" if planned else "got TERM"]


def test_settings_among_its_words_decide_the_prepared_data_too(machine: Machine) -> None:
    machine.run("task=maze", "--replace", "data.train=a b.csv", VIRTUAL_ENV="/v")
    (prepared,) = machine.called("rotate_accounts.py prepare")
    assert "prepare task=maze data.train=a b.csv [" in prepared
    assert machine.called("run --wait 5 task=maze --replace data.train=a b.csv")
