"""How a package that is missing is added to the Python that runs, in words to copy; knows no package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, if this is one."""
UPGRADE = "`git pull` in the project's folder, then `bash multi_account_workflow.sh setup`"
"""How a newer version comes. No package index has the project, so pip would find a stranger's of that name, or none."""


def interpreter() -> str:
    """What a shell here calls Python: Debian and its kin have only `python3`."""
    return "python3" if shutil.which("python") is None and shutil.which("python3") else "python"


def pip() -> str:
    """The pip of the Python that runs, as typed in the checkout: the shell's own need not be that one."""
    own = Path(sys.prefix).resolve() == ROOT / ".venv"
    return f"{'.venv/bin/python' if own else interpreter()} -m pip"


def install(extra: str) -> str:
    """The command that adds what an optional part needs, asking no index for the project itself."""
    what = f"'trm-relay[{extra}]'" if _installed() else f"-e '.[{extra}]'"
    return f"{pip()} install {what}"


def _installed() -> bool:
    from importlib.metadata import PackageNotFoundError, distribution  # costs a start 10 ms, and is seldom wanted

    try:
        distribution("trm-relay")
    except PackageNotFoundError:
        return False
    return True
