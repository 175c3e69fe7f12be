"""Formats the commands that messages advise, as this installation knows them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from storage.packages import installation, is_checkout, program


def command(verb: str, run: str | None = None, *words: str) -> str:
    """VERB --run RUN WORDS, quoted so that it can be copied into a shell; in a notebook, the line for a cell."""
    if installation() == "notebook":
        return f"notebook.relay({json.dumps(shlex.join(_typed(verb, run, words)), ensure_ascii=False)})"
    return shell(verb, run, *words)


def shell(verb: str, run: str | None = None, *words: str) -> str:
    """The same for a shell, to send to others: `python rotate_accounts.py report`, or `trm-relay report`."""
    return shlex.join([*program(), *_typed(verb, run, words)])


def session(variables: Mapping[str, str], by_script: bool = False) -> str:
    """The line that prepares this machine and trains one session with these variables; `by_script`: of a run that its
    own script trains."""
    where = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    if by_script:
        return f"{where} {shell('exec', None, '--', 'python', 'train.py')}"
    return f"{where} {'bash multi_account_workflow.sh' if is_checkout() else shlex.join([*program(), 'run'])}"


def set_up() -> str:
    """The command that installs the packages and prepares the data, also those of the store. Trains nothing."""
    return "bash multi_account_workflow.sh setup" if is_checkout() else shlex.join([*program(), "prepare"])


def in_a_cell(verb: str) -> str:
    """The command as a line of a cell that runs it in the notebook's own process."""
    return f"%run rotate_accounts.py {verb}" if is_checkout() else f"%run -m trm_relay {verb}"


def _typed(verb: str, run: str | None, words: Sequence[str]) -> list[str]:
    return [*verb.split(), *(["--run", run] if run else []), *words]
