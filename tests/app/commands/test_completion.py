"""Tab completes commands, options and words to choose from, by each shell's own protocol; it opens no store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relay.app.cli import app

ROOT = Path(__file__).parents[3]
VARIABLE = "_TRM_RELAY_COMPLETE"
CASES = {
    "trm-relay repo": ["report"],
    "trm-relay accounts pa": ["pause"],
    "trm-relay runs ": ["list", "archive", "unarchive", "delete"],
    "trm-relay run --budget": ["--budget-minutes"],
    "trm-relay export --format reference-": ["reference-plain"],
}


def asked(shell: str, line: str) -> dict[str, str]:
    """The environment in which a shell asks the program for completions."""
    if shell == "bash":
        return {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}
    return {"_TYPER_COMPLETE_ARGS": line, **action}


def answered(shell: str, out: str) -> list[str]:
    """The words of an answer, without the descriptions that zsh and fish show next to them."""
    if shell == "zsh":
        return re.findall(r'^[^"]*"([^":]+)', out, re.MULTILINE)
    return [line.split("\t")[0] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("shell", "line"), [*(("bash", line) for line in CASES), ("zsh", "trm-relay runs "), ("fish", "trm-relay runs ")]
)
def test_tab_completes(
    shell: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, f"complete_{shell}")
    for name, value in asked(shell, line).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        app(prog_name="trm-relay")
    assert (end.value.code, answered(shell, capsys.readouterr().out)) == (0, CASES[line])
    assert not list(tmp_path.iterdir()), "nothing is opened or made"


@pytest.mark.slow
def test_a_real_bash_completes_the_installed_command(tmp_path: Path) -> None:
    program = tmp_path / "trm-relay"
    program.write_text(f"#!{sys.executable}\nfrom relay.app.cli import main\nmain()\n")
    program.chmod(0o755)
    script = (
        f'eval "$({VARIABLE}=source_bash trm-relay)"; COMP_WORDS=(trm-relay run --bud); COMP_CWORD=2; '
        "_trm_relay_completion trm-relay; echo ${COMPREPLY[@]}"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert shell.stdout.strip() == "--budget-minutes", shell.stderr
