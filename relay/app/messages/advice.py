"""Formats the commands that messages advise."""

from __future__ import annotations

import shlex

from storage.packages import interpreter


def command(verb: str, run: str | None = None, *words: str) -> str:
    """`python rotate_accounts.py VERB --run RUN WORDS`, quoted so that it can be copied into a shell."""
    named = ["--run", run] if run else []
    return shlex.join([interpreter(), "rotate_accounts.py", *verb.split(), *named, *words])


def in_a_cell(verb: str) -> str:
    """The same as a cell magic, which runs in the notebook's own process."""
    return f"%run rotate_accounts.py {verb}"
