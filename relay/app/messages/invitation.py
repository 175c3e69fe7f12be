"""Writes the message that invites a participant to a run; it contains no secret."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from relay.app.messages.advice import set_up, shell
from relay.app.redact import redact
from relay.core.settings.origins import variable
from relay.people.owners import YOUR_NAME
from storage.guides import guide
from storage.kinds import KINDS

PROJECT = variable("project")
PARAMETERS = {
    PROJECT: "project",
    "RELAY_STORE": "store",
    "RELAY_LEDGER_STORE": "ledger_store",
    "RELAY_CHECKPOINT_STORE": "checkpoint_store",
}
"""Parameters of a notebook's `settings`, by variable."""


def commands(run: str, variables: Mapping[str, str]) -> list[str]:
    """Commands to type in the project's folder; `variables` hold the project, if it is not the usual one, and the
    addresses. Set-up prepares the run's data, so it needs them too. The account follows from the person's name."""
    named = {**variables, "RUN_NAME": run, variable("owner"): YOUR_NAME}
    return [
        f"export {' '.join(f'{name}={shlex.quote(redact(value))}' for name, value in named.items())}",
        set_up(),
        shell("register"),
        shell("run"),
    ]


def shell_line(words: Sequence[str]) -> str:
    """The commands as one line."""
    return " && ".join(words)


def notebook_line(run: str, variables: Mapping[str, str]) -> str:
    """The last line of a notebook's settings cell, in which the person types their name."""
    named = {"run": run, **{PARAMETERS[name]: redact(value) for name, value in variables.items()}}
    words = ["YOUR_NAME", *(f"{name}={json.dumps(value)}" for name, value in named.items())]
    return f"notebook.settings({', '.join(words)})"


def text(run: str, step: int, target: int, words: list[str], stores: Mapping[str, str]) -> str:
    """The invitation as plain text, for a chat or a mail. `words`: the shell line and the notebook line."""
    kinds = dict.fromkeys(urlsplit(address).scheme for address in stores.values())
    needs = [f"- {KINDS[kind].access} ({guide(kind)})" for kind in kinds if kind in KINDS and KINDS[kind].access]
    also = "\n".join(["You also need:", *needs]) + "\n" if needs else ""
    shell, cell = words
    return (
        f"You are invited to train the run {run} with us (step {step:,} of {target:,}). In the project's folder, on "
        f"the machine with your GPU, with your name or a pseudonym in place of {YOUR_NAME}:\n  {shell}\n"
        f"Or in the notebook of Colab or Kaggle, with your name in YOUR_NAME of cell 2 and this as its last line (on "
        f"Kaggle add coauthor=True, if you co-author this run):\n  {cell}\n{also}"
        f"A session ends by itself; Ctrl-C once commits first. What other participants can see: {guide('privacy')}"
    )


def document(run: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """relay.invite/2: relay.invite/1 proposed an account, which now follows from the name that a person types."""
    words = commands(run, variables)
    addresses = {name: redact(value) for name, value in variables.items() if name != PROJECT}
    return {
        "schema": "relay.invite/2",
        "run": run,
        "addresses": addresses,
        "commands": words,
        "shell": shell_line(words),
        "notebook": notebook_line(run, variables),
    }
