"""`register`: add an account, saying what was inferred; it works unattended."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.accounts import Account
from relay.commands.common import ConfigOption, JsonOption, emit, say, surroundings
from relay.commands.opening import writing_accounts
from relay.inference import infer_account
from relay.redact import printable


def register(
    context: typer.Context,
    account: Annotated[str, typer.Argument(metavar="ID", help="e.g. account_1")],
    label: Annotated[str, typer.Argument(help='What people call it, e.g. "John\'s Colab".')],
    owner: Annotated[str | None, typer.Option(help="The person whose account it is.", show_default=False)] = None,
    provider: Annotated[str | None, typer.Option(help="colab, kaggle, local …", show_default=False)] = None,
    tier: Annotated[str | None, typer.Option(help="free, pro …", show_default=False)] = None,
    gpu: Annotated[str | None, typer.Option(help="e.g. T4.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept what is inferred without being asked.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register an account: one person's own account at one provider."""
    app = surroundings(context)
    resolved = app.settle(config=config)
    found = infer_account(label, owner, provider, app.environ, app.runtime)
    for line in found.lines:
        say(f"inferred: {line}")
    known = writing_accounts(app, resolved)
    made, fresh = known.register(account, label, found, tier=tier, gpu=gpu)
    emit(as_json, document(made, fresh), sentence(made, fresh))


def document(account: Account, fresh: bool) -> dict[str, object]:
    """relay.account/1; owner and label are shown, contacts are not."""
    return {
        "schema": "relay.account/1",
        "id": account.id,
        "label": printable(account.label),
        "owner": printable(account.owner),
        "provider": account.provider,
        "tier": account.tier,
        "gpu": account.gpu,
        "new": fresh,
    }


def sentence(account: Account, fresh: bool) -> str:
    """For people."""
    what = "Registered" if fresh else "Already registered, unchanged:"
    return f"{what} {account.id} ({printable(account.label)}): {printable(account.owner)} at {account.provider}."
