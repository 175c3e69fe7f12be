"""How a command is written wherever people are told to run one; knows no command."""

from __future__ import annotations

import shlex
import shutil


def interpreter() -> str:
    """What a shell here calls Python: Debian and its kin have only `python3`."""
    return "python3" if shutil.which("python") is None and shutil.which("python3") else "python"


def command(verb: str, run: str | None = None, *words: str) -> str:
    """`python rotate_accounts.py VERB --run RUN WORDS`, quoted so that it can be copied into a shell."""
    named = ["--run", run] if run else []
    return shlex.join([interpreter(), "rotate_accounts.py", *verb.split(), *named, *words])


def in_a_cell(verb: str) -> str:
    """The same for a notebook's cell, where it shares the notebook's own process."""
    return f"%run rotate_accounts.py {verb}"
