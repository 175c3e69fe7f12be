"""What git changes in a clone: the files that the program and the tests read have the same bytes there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def git(*words: str, cwd: Path = ROOT) -> str:
    return subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_a_clone_with_crlf_as_its_line_end_has_the_same_bytes(tmp_path: Path) -> None:
    """As Git for Windows sets it, for a clone that WSL uses: bash refuses a script with CRLF."""
    clone = tmp_path / "clone"
    git("clone", "-q", "--shared", "-c", "core.autocrlf=true", str(ROOT), str(clone))
    names = git("ls-files", "-z", cwd=clone).split("\0")[:-1]
    ends = [line.split(maxsplit=3) for line in git("ls-files", "--eol", cwd=clone).splitlines()]
    assert [line for line in ends if line[0].removeprefix("i/") != line[1].removeprefix("w/")] == []
    scripts = [name for name in names if name.endswith((".sh", ".sbatch"))]
    assert scripts
    for name in scripts:
        subprocess.run(["bash", "-n", name], cwd=clone, check=True)
