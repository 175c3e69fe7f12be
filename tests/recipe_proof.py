"""A recipe runs as on a rented machine: an empty home, installation, a spent budget, SIGKILL, SIGTERM, the target.

    python -m tests.recipe_proof [--installed]     (--installed: this environment's packages, nothing is installed)

Two processes of one host share each step (gloo, on a CPU). The run ends with the bytes of one that nobody interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from relay.core.clock import RealRuntime
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from storage.base import open_store

ROOT = Path(__file__).parents[1]
PROJECT = "sudoku_pretrain_multiaccount"
TARGET = int(os.environ.get("RELAY_RECIPE_STEPS", "600"))
BUDGET = float(os.environ.get("RELAY_RECIPE_MINUTES", "0.6"))
"""Of the first session; doubled until a step fits, on a slow machine."""
GRACE_S = 30.0
"""Between SIGTERM and the machine's end."""
WORDS = (f"target_steps={TARGET}", f"checkpoint.every_steps={max(1, TARGET // 12)}", "evaluation.every_commits=0")


class Host:
    """A machine with an empty home and the project's folder."""

    def __init__(self, folder: Path, installed: bool) -> None:
        self.folder, self.home, self.store = folder, folder / "home", (folder / "store").as_uri()
        self.home.mkdir()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / "trm-relay" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / "trm-relay" / name)
        kept = {
            name: value for name, value in os.environ.items() if name.startswith("PIP_") or name in ("PATH", "LANG")
        }
        self.environ = {**kept, "HOME": str(self.home), "ACCOUNT_ID": "ana", "RELAY_DEVICE": "cpu"}
        if installed:
            self.environ |= {
                "VIRTUAL_ENV": sys.prefix,
                "PYTHON": sys.executable,
                "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            }
        words = ["cloud", "recipe", "2xH200", "lm_tiny", *WORDS, "--to", str(folder / "train.sh"), "--ephemeral"]
        subprocess.run(
            [sys.executable, str(ROOT / "rotate_accounts.py"), *words],
            cwd=folder,
            check=True,
            env={**self.environ, "RELAY_STORE": self.store},
            stdout=subprocess.DEVNULL,
        )

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """The recipe, as a person types it; its lines go to `log`."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["bash", "train.sh"],
                cwd=self.folder,
                env={**self.environ, **more},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, **more: str) -> int:
        """Its exit code."""
        return self.start(**more).wait()

    def state(self, run: str = "lm_tiny") -> RunState | None:
        """The run's newest state."""
        if not (self.folder / "store").exists():
            return None
        view = RunLedger(open_store(self.store, read_only=True), PROJECT, run, RealRuntime()).peek()
        return view.state if view else None

    def processes(self) -> list[int]:
        """All that belong to this home."""
        mark, found = f"HOME={self.home}\0".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def step(self, run: str = "lm_tiny") -> int:
        """Committed."""
        state = self.state(run)
        return state.step if state else 0

    def hash(self, run: str = "lm_tiny") -> str:
        """Of the newest checkpoint's state."""
        state = self.state(run)
        assert state and state.head, run
        return str(state.head.state_hash)


def prove(folder: Path, installed: bool) -> str:
    """All of it; a line for the record."""
    began = time.monotonic()
    host, marks = Host(folder, installed), list[str]()

    def done(text: str) -> None:
        marks.append(f"{text} after {time.monotonic() - began:.0f} s")
        print(marks[-1], flush=True)

    if not installed:
        words = ["bash", "trm-relay/multi_account_workflow.sh", "setup"]
        with (host.folder / "log").open("ab") as log:
            ready = {**host.environ, "RELAY_TASK": "lm_tiny"}
            subprocess.run(words, cwd=folder, env=ready, check=True, stdout=log, stderr=log)
        done("installed")
    began = time.monotonic()
    minutes = BUDGET
    code = host.run(RELAY_BUDGET_MINUTES=f"{minutes:g}")
    while code == 75 and host.step() == 0 and minutes < 16:
        minutes *= 2
        code = host.run(RELAY_BUDGET_MINUTES=f"{minutes:g}")
    first = host.step()
    assert (code, 0 < first < TARGET) == (75, True), (code, first, (folder / "log").read_text()[-3000:])
    done(f"exit 75 at step {first}")
    process = host.start(RELAY_BUDGET_MINUTES="60")
    while host.step() <= first:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        time.sleep(0.1)
    for pid in host.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    killed = host.step()
    assert first < killed < TARGET, killed
    done(f"killed at step {killed}")
    process = host.start(RELAY_BUDGET_MINUTES="60")
    while host.step() <= killed:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        time.sleep(0.1)
    asked = time.monotonic()
    process.terminate()
    code, took = process.wait(), time.monotonic() - asked
    ended = host.step()
    assert code in (75, 143) and killed < ended < TARGET and took < GRACE_S, (code, ended, took)
    done(f"SIGTERM: exit {code} within {took:.0f} s at step {ended}")
    code = host.run(RELAY_BUDGET_MINUTES="60")
    assert (code, host.step()) == (0, TARGET), (code, (folder / "log").read_text()[-3000:])
    done(f"exit 0 at step {TARGET}")
    assert host.run(RELAY_BUDGET_MINUTES="60", RUN_NAME="whole") == 0
    done("unbroken run")
    assert host.hash() == host.hash("whole"), f"{host.hash()} is not the unbroken {host.hash('whole')}"
    state = host.state()
    assert state and [link.certified for link in state.links].count("not-exact") == 0
    return f"{'; '.join(marks)}; state {host.hash()[:16]} in both; {len(state.links)} sessions of two processes"


def main() -> None:
    """Prove it in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="recipe"))
    line = prove(folder, "--installed" in sys.argv[1:])
    shutil.rmtree(folder)
    print(line)


if __name__ == "__main__":
    main()
