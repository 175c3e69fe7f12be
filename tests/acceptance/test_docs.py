"""Every command the documents show is executed, in the order it is shown, in a fresh working folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.pages import Block, blocks, differing, write
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
STEPS = re.compile(r"(?:(?<=--target-steps )|(?<=--until-step ))[1-9]\d\d+|(?<=--checkpoint-every )50\b")
"""Numbers of steps of which a test takes a tenth; output is written with all of them."""
RAISED = "--target-steps 1600 --until-step 1200", "--target-steps 20"
"""The README's second session raises the target of a run whose first session reached the test's 20 steps."""
KILLED = re.compile(r"timeout --signal=KILL \d+ ")
"""A kill after so many seconds; in the test it comes with a commit (warm.py)."""
HELPERS = """
ended() { case $1 in 0|75|137) ;; *) echo "$at: ended with $1"; exit 1 ;; esac; }
killed() { DIES_AFTER_COMMIT=1 "$@" || echo Killed; }
"""
"""Exit codes that a page may show: the target is reached, handed off, killed."""


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
    environment = relay.environment("newcomer")
    del environment["RELAY_STORE"], environment["RELAY_EPHEMERAL"], environment["PYTHONPATH"]
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


def tenth(found: re.Match[str]) -> str:
    return str(int(found[0]) // 10)


def script(shown: list[Block], after_first: dict[str, str] | None, whole: bool) -> str:
    """Bash that runs the blocks one after the other, the output of each to a file `block-N`.

    after_first: variables of all commands but the first. whole: take all steps that the page shows.
    """
    lines = [HELPERS]
    commands = 0
    for number, block in enumerate(shown):
        lines.append(f"exec >block-{number} 2>&1")
        for command in block.commands:
            if command in BY_CI_ITSELF:
                continue
            shorter = command.replace(*RAISED)
            typed = KILLED.sub("killed ", shorter if whole else STEPS.sub(tenth, shorter))
            if after_first and commands:
                typed = forked(typed, after_first)
            commands += 1
            lines.append(f"at={shlex.quote(command)}; {typed} || ended $?")
    return "\n".join(lines)


def ran(page: Path, desk: tuple[Path, dict[str, str]], warm: Warm, binaries: Path, writes: bool) -> list[str]:
    """What each block of the page prints, in a new clone and home.

    Raises AssertionError for a command that fails.
    """
    folder, environment = desk
    found = blocks(page.read_text(encoding="utf-8"))
    with (folder / "config_multi_account.yaml").open("a") as settings:
        settings.write(SMALLER)
    environment = environment | {"RELAY_TARGET_STEPS": "20"}
    forking = warmed(environment, warm, binaries)
    cold = page.name == FROM_COLD and not writes
    samples = ROOT / "tests" / "data"
    for name, game in (("train.csv", "sudoku"), ("test.csv", "sudoku"), ("maze.csv", "maze")):
        shutil.copy(samples / game / "good.csv", folder / name)
    run = subprocess.run(
        ["bash", "-uc", script(found, forking if cold else None, whole=writes)],
        cwd=folder,
        env=(environment if cold else forking)
        | ({"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0"} if any(block.svg for block in found) else {}),
        timeout=None if writes else 900,
    )
    files = (folder / f"block-{number}" for number in range(len(found)))
    outputs = [anywhere(file.read_text(encoding="utf-8"), desk) for file in files if file.exists()]
    assert run.returncode == 0, f"{page.name}: {outputs[-1][-3000:]}"
    return outputs


def anywhere(text: str, desk: tuple[Path, dict[str, str]]) -> str:
    """The output as a reader's clone in their home prints it."""
    return text.replace(str(desk[0]), "/home/ana/trm-relay").replace(desk[1]["HOME"], "/home/ana")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_output_of_the_page_are_real(
    page: Path, desk: tuple[Path, dict[str, str]], warm: Warm, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`make snapshots` writes output and recordings again; both come from a smaller model than the reader's."""
    writes = bool(request.config.option.update_snapshots)
    outputs = ran(page, desk, warm, tmp_path / "bin", writes)
    if writes:
        write(page, outputs)
    told = blocks(page.read_text(encoding="utf-8"))
    wrong = [differing(block, raw, page.parent) for block, raw in zip(told, outputs, strict=True)]
    assert not any(wrong), f"{page.name}: {next(filter(None, wrong))}\nIf that is right: make snapshots"


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    commands = [command for block in blocks((ROOT / "README.md").read_text()) for command in block.commands]
    assert "make ci" in commands
    assert (ROOT / ".ci" / "run").read_text().split()[-3:] == ["exec", "make", "ci"]
