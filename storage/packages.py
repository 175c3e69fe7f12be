"""How this program is installed, and the commands and files that exist there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

Installation = Literal["notebook", "checkout", "uvx", "wheel"]
"""A notebook's cells (whatever is under them), a clone of the project, uvx's cache, or a package (pip, pipx)."""
NAME = "trm-relay"
CODE = ""
"""Address of the project's repository, which the notebooks clone; empty until the project is published."""
IN_CELLS = "RELAY_NOTEBOOK"
"""Set for commands that a notebook's cells run. The kernel passes the secrets on, and advice names cells."""
ROOT = Path(__file__).resolve().parent.parent
"""The checkout, if this is one; otherwise the folder of installed packages."""
_CELLS: ContextVar[bool] = ContextVar("cells", default=False)


def installation() -> Installation:
    """How the person who reads our advice can run commands. Everything that advises commands or files asks this."""
    if _CELLS.get() or os.environ.get(IN_CELLS):
        return "notebook"
    if is_checkout():
        return "checkout"
    return "uvx" if "archive-v0" in ROOT.parts else "wheel"


def is_checkout() -> bool:
    """Whether the program runs from a clone of the project, which has the scripts and the documentation."""
    return (ROOT / "rotate_accounts.py").is_file()


@contextmanager
def in_cells() -> Iterator[None]:
    """Advice given inside this block is for a notebook's cells."""
    before = _CELLS.set(True)
    try:
        yield
    finally:
        _CELLS.reset(before)


def program() -> list[str]:
    """The words that start the command line in a shell here."""
    if is_checkout():
        return [interpreter(), "rotate_accounts.py"]
    if installation() == "uvx":
        return ["uvx", "--from", _source(), NAME]
    return [NAME] if _is_own(shutil.which(NAME)) else [sys.executable, "-m", "trm_relay"]


def _is_own(script: str | None) -> bool:
    """Whether the script on PATH starts this installation. It may be that of another environment."""
    users = sysconfig.get_preferred_scheme("user")
    by_user = Path(sysconfig.get_path("purelib", users)).resolve() == ROOT  # `pip install --user`
    scripts = sysconfig.get_path("scripts", users if by_user else sysconfig.get_preferred_scheme("prefix"))
    return script is not None and Path(script).resolve().parent == Path(scripts).resolve()


def interpreter() -> str:
    """The name of Python in this shell: Debian and its derivatives have only `python3`."""
    return "python3" if shutil.which("python") is None and shutil.which("python3") else "python"


def pip() -> str:
    """The pip of this Python, as typed in the checkout; the shell's `pip` may belong to another one."""
    if not is_checkout():
        return f"{shlex.quote(sys.executable)} -m pip"
    own = Path(sys.prefix).resolve() == ROOT / ".venv"
    return f"{'.venv/bin/python' if own else interpreter()} -m pip"


def install(extra: str) -> str:
    """The command that installs an optional part, without looking the project up in an index."""
    if installation() == "uvx":
        return f"uvx --from {shlex.quote(f'{NAME}[{extra}] @ {_source()}')} {NAME}"
    if _piped():
        return f"pipx install --force {shlex.quote(f'{NAME}[{extra}] @ {_source()}')}"
    what = f"'{NAME}[{extra}]'" if _installed() else f"-e '.[{extra}]'"
    return f"{pip()} install {what}"


def upgrade() -> str:
    """How to get a newer version. No index has the project: pip would find a stranger's of that name, or none."""
    if installation() == "notebook":
        return "end this machine in the notebook's menu, then run cell 1 again, which fetches the newest code"
    if is_checkout():
        return "`git pull` in the project's folder, then `bash multi_account_workflow.sh setup`"
    again = "pipx install --force" if _piped() else f"{pip()} install --upgrade"
    return f"`{again} {f'git+{CODE}' if CODE else 'WHEEL'}`{'' if CODE else ', with the newest wheel of the project'}"


def _piped() -> bool:
    return "pipx" in Path(sys.prefix).parts


def _source() -> str:
    """The address from which the package was installed; its name if the installer recorded none (PEP 610)."""
    from importlib.metadata import PackageNotFoundError, distribution

    with suppress(PackageNotFoundError, ValueError, KeyError, TypeError):
        found = json.loads(distribution(NAME).read_text("direct_url.json") or "")
        return f"{found['vcs_info']['vcs']}+{found['url']}" if "vcs_info" in found else str(found["url"])
    return f"git+{CODE}" if CODE else NAME


def _installed() -> bool:
    from importlib.metadata import PackageNotFoundError, distribution  # takes 10 ms and is rarely needed

    try:
        distribution(NAME)
    except PackageNotFoundError:
        return False
    return True


UPGRADE = upgrade()
