"""The commands that install a missing package for this Python."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, if this is one."""
UPGRADE = "`git pull` in the project's folder, then `bash multi_account_workflow.sh setup`"
"""How to get a newer version. No package index has the project: pip would find a stranger's of that name, or none."""


def interpreter() -> str:
    """The name of Python in this shell: Debian and its derivatives have only `python3`."""
    return "python3" if shutil.which("python") is None and shutil.which("python3") else "python"


def pip() -> str:
    """The pip of this Python, as typed in the checkout; the shell's `pip` may belong to another one."""
    own = Path(sys.prefix).resolve() == ROOT / ".venv"
    return f"{'.venv/bin/python' if own else interpreter()} -m pip"


def install(extra: str) -> str:
    """The command that installs an optional part, without looking the project up in an index."""
    what = f"'trm-relay[{extra}]'" if _installed() else f"-e '.[{extra}]'"
    return f"{pip()} install {what}"


def _installed() -> bool:
    from importlib.metadata import PackageNotFoundError, distribution  # takes 10 ms and is rarely needed

    try:
        distribution("trm-relay")
    except PackageNotFoundError:
        return False
    return True
