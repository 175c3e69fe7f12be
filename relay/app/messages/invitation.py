"""Writes the message that invites a participant to a run; it contains no secret."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from relay.app.messages.advice import command
from relay.app.redact import redact

CREDENTIALS = {
    "s3": "an access key of your own for this bucket, from its owner (docs/how-to/s3.md)",
    "dropbox": "the app's token, sent separately (docs/how-to/dropbox.md)",
    "hf": "S3 credentials of your own token, or the bucket owner's, sent separately (docs/how-to/huggingface.md)",
    "drive": "the storage account's token, sent separately (docs/how-to/drive.md)",
    "file": "write access to that folder, in the same group as the other participants (docs/how-to/first-run.md)",
}
"""Access that each kind of store needs in addition to its address, and the page that explains it."""
SETUP = "bash multi_account_workflow.sh setup"
"""Installs the packages, also those of the store. Without `setup` the script would train, as account_1."""


def free_id(taken: Collection[str]) -> str:
    """account_N with the smallest N that is free."""
    return next(name for n in range(1, len(taken) + 2) if (name := f"account_{n}") not in taken)


def commands(run: str, account: str, stores: Mapping[str, str]) -> list[str]:
    """Commands to type in the project's folder; `stores` are addresses by environment variable."""
    exports = [f"export {name}={shlex.quote(redact(address))}" for name, address in stores.items()]
    return [
        *exports,
        SETUP,
        command(f"register {account}", None, "YOUR NAME OR A PSEUDONYM"),
        command("run", run, "--account", account),
    ]


def text(run: str, step: int, target: int, words: list[str], stores: Mapping[str, str]) -> str:
    """The invitation as plain text, for a chat or a mail."""
    kinds = dict.fromkeys(urlsplit(address).scheme for address in stores.values())
    needs = [f"- {CREDENTIALS[kind]}" for kind in kinds if kind in CREDENTIALS]
    also = "\n".join(["You also need:", *needs]) + "\n" if needs else ""
    typed = "\n".join(f"  {line}" for line in words)
    return (
        f"You are invited to train the run {run} with us (step {step:,} of {target:,}). In the project's folder, on "
        f"the machine with your GPU:\n{typed}\n{also}"
        f"A session ends by itself; Ctrl-C once commits first. What other participants can see: docs/how-to/privacy.md"
    )


def document(run: str, account: str, words: list[str], stores: Mapping[str, str]) -> dict[str, Any]:
    """relay.invite/1."""
    addresses = {name: redact(address) for name, address in stores.items()}
    return {"schema": "relay.invite/1", "run": run, "account": account, "addresses": addresses, "commands": words}
