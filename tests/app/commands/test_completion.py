"""Tab completes commands, options and words to choose from, by each shell's own protocol; it opens no store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relay.app.cli import app
from trm.presets import PRESETS

ROOT = Path(__file__).parents[3]
VARIABLE = "_TRM_RELAY_COMPLETE"
CASES = {
    "trm-relay repo": ["report"],
    "trm-relay accounts pa": ["pause"],
    "trm-relay runs ": ["list", "archive", "unarchive", "delete"],
    "trm-relay run --budget": ["--budget-minutes"],
    "trm-relay export --format reference-": ["reference-plain"],
    "trm-relay run checkpoint.": [
        f"checkpoint.{key}=" for key in ("every_steps", "every_minutes", "keep_last", "keep_every")
    ],
    "trm-relay run batch_": ["batch_size=64"],
    "trm-relay run task = sudoku batch_": ["batch_size=768"],
    "trm-relay config show arch.mlp": ["arch.mlp_t=true", "arch.mlp_t=false"],
}
"""What is typed, in words as bash splits them."""
VALUES = {"task=su": [name for name in PRESETS if name.startswith("su")], "data.train=": ["generated", "hub"],
          "ema=": ["true", "false"], "arch.pos_encodings=": ["rope", "learned", "none"], "trackers=w": ["wandb"],
          "device=c": ["cpu", "cuda"], "batch_size=": [], "data.train=./fi": [], "nosuch=x": []}  # fmt: skip
"""Of a value that is being typed."""


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
    return [line.split("\t")[0] for line in out.splitlines() if line]


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


@pytest.mark.parametrize("word", VALUES)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_tab_completes_the_value_of_a_setting(
    shell: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """bash splits words at `=` and replaces only the part behind it; the others replace the whole word."""
    key, _, part = word.partition("=")
    monkeypatch.setenv(VARIABLE, f"complete_{shell}")
    line = f"trm-relay run {key} = {part}".rstrip() if shell == "bash" else f"trm-relay run {word}"
    for name, value in asked(shell, line).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        app(prog_name="trm-relay")
    lead = "" if shell == "bash" else f"{key}="
    assert answered(shell, capsys.readouterr().out) == [lead + value for value in VALUES[word]]


@pytest.mark.slow
def test_a_real_bash_completes_the_installed_command(tmp_path: Path) -> None:
    program = tmp_path / "trm-relay"
    without_torch = "import sys; sys.modules['torch'] = None"
    program.write_text(f"#!{sys.executable}\n{without_torch}\nfrom relay.app.cli import main\nmain()\n")
    program.chmod(0o755)
    script = (
        f'eval "$({VARIABLE}=source_bash trm-relay)"; COMP_WORDS=(trm-relay run --bud); COMP_CWORD=2; '
        "_trm_relay_completion trm-relay; echo ${COMPREPLY[@]}; "
        "COMP_WORDS=(trm-relay run task = m); COMP_CWORD=4; _trm_relay_completion trm-relay; echo ${COMPREPLY[@]}"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert shell.stdout.split() == ["--budget-minutes", "maze"], shell.stderr
