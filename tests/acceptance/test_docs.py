"""Every command the documents show is executed, in the order it is shown, in a fresh working folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import ROOT, Relay, Warm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md")), ROOT / "docs" / "concepts.md"]
FROM_COLD = "README.md"
"""The page whose first command starts as on a newcomer's machine, from nothing. All others are forked (warm.py)."""
SMALLER = """
batch_size: 8
data:
  train_rows: 1000
arch:
  hidden_size: 32
  H_cycles: 1
  L_cycles: 1
  halt_max_steps: 2
"""
"""Settings of the clone: the same commands, less arithmetic."""
LEFT_OUT = "tests/"
FIXTURE = "tests/data/trm_parity/short_puz."
"""Of the tests the clone has this one fixture to show; all are compared in tests/trm/test_parity.py."""
BY_CI_ITSELF = {"make ci"}
"""Commands this very test run is part of."""


def blocks(page: Path) -> list[str]:
    """The fenced `sh` blocks of a page, dedented."""
    found = re.findall(r"^( *)```sh\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    return ["\n".join(line[len(indent) :] for line in body.splitlines()) for indent, body in found]


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page) for line in block.splitlines() if line.strip()]


@pytest.fixture
def desk(relay: Relay) -> tuple[Path, dict[str, str]]:
    """A clone-like working folder, and the environment of a newcomer whose interpreter has the project installed."""
    folder = relay.folder / "clone"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if name.startswith(LEFT_OUT) and not name.startswith(FIXTURE):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    with (folder / "config_multi_account.yaml").open("a") as settings:
        settings.write(SMALLER)
    environment = relay.environment("newcomer")
    del environment["RELAY_STORE"], environment["RELAY_EPHEMERAL"], environment["PYTHONPATH"]
    environment["RELAY_TARGET_STEPS"] = "20"  # the same commands, a shorter training
    binaries = Path(sys.executable).parent
    return folder, environment | {"PATH": f"{binaries}:{environment['PATH']}", "VIRTUAL_ENV": str(binaries.parent)}


def warmed(environment: dict[str, str], warm: Warm, folder: Path) -> dict[str, str]:
    """The same environment, but its `python` forks our command line."""
    _, needed = warm.python(folder)
    return environment | needed | {"PATH": f"{folder}:{environment['PATH']}"}


def forked(line: str, forking: dict[str, str]) -> str:
    """One command under the variables by which its `python` forks."""
    variables = ("PATH", "WARM_ADDRESS", "WARM_PYTHON", "WARM_FORKING")
    return " ".join([*(f"{name}={shlex.quote(forking[name])}" for name in variables), line])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_page_runs_as_written(
    page: Path, desk: tuple[Path, dict[str, str]], warm: Warm, tmp_path: Path
) -> None:
    folder, environment = desk
    lines = [line for line in commands(page) if line not in BY_CI_ITSELF]
    forking = warmed(environment, warm, tmp_path / "bin")
    if page.name == FROM_COLD:
        lines[1:] = [forked(line, forking) for line in lines[1:]]
    else:
        environment = forking
    samples = ROOT / "tests" / "data"
    for name, game in (("train.csv", "sudoku"), ("test.csv", "sudoku"), ("maze.csv", "maze")):
        shutil.copy(samples / game / "good.csv", folder / name)
    script = "\n".join(lines).replace("--target-steps 1600 --until-step 1200", "--target-steps 20")
    run = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert run.returncode in (0, 75), f"{page.name}: {run.returncode}\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}"


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    assert "make ci" in commands(ROOT / "README.md")
    assert (ROOT / ".ci" / "run").read_text().split()[-3:] == ["exec", "make", "ci"]
