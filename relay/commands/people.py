"""`register` and `accounts`: add and change accounts, saying what was inferred; they work unattended."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from relay.accounts import Account, Accounts
from relay.commands.common import App, ConfigOption, JsonOption, emit, say, surroundings
from relay.commands.opening import writing_accounts
from relay.commands.reading import accounts, open_stores
from relay.errors import BadConfig
from relay.inference import infer_account
from relay.names import check_name
from relay.owners import Inference
from relay.redact import printable, redact, secrets_of
from relay.wording import iso


class Mark(Enum):
    """States a person may declare."""

    ready = "ready"
    cooling = "cooling"
    quota_exceeded = "quota_exceeded"
    blocked = "blocked"


def register(
    context: typer.Context,
    account: Annotated[str, typer.Argument(metavar="ID", help="e.g. account_1")],
    label: Annotated[str, typer.Argument(metavar="LABEL", help='What people call it, e.g. "John\'s Colab".')],
    owner: Annotated[str | None, typer.Option(help="The person whose account it is.", show_default=False)] = None,
    provider: Annotated[str | None, typer.Option(help="colab, kaggle, local …", show_default=False)] = None,
    tier: Annotated[str | None, typer.Option(help="free, pro …", show_default=False)] = None,
    gpu: Annotated[str | None, typer.Option(help="e.g. T4.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept what is inferred without being asked.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register an account: one person's own account at one provider."""
    here = surroundings(context)
    refuse_secrets(here, label, owner)
    check_name("account", account)
    found = infer_account(label, owner, provider, here.environ, here.runtime)
    for line in found.lines:
        say(f"inferred: {line}")
    known = writing_accounts(here, here.settle(config=config))
    if automatic(known, account, label):
        say(f"{account} was registered by its first session; now it gets its label, owner and provider.")
    made, fresh = add(known, account, label, found, tier, gpu)
    emit(as_json, document(made, fresh), sentence(made, fresh))


def refuse_secrets(app: App, *texts: str | None) -> None:
    """Raises BadConfig (78) if a text that all participants will see holds a password or a key."""
    hidden = secrets_of(app.environ)
    if any(text and redact(text, hidden) != text for text in texts):
        raise BadConfig(
            "The label or owner holds what looks like a password or a key, and everybody who shares the store would "
            "see it. Nothing was stored. Use plain words; a key that was ever shared should be replaced."
        )


def add(
    known: Accounts, account: str, label: str, found: Inference, tier: str | None, gpu: str | None
) -> tuple[Account, bool]:
    """Register, or describe an account that `run` had to register by its bare id. Whether it is new."""
    if automatic(known, account, label):
        wanted = {"label": label, "owner": found.owner, "provider": found.provider, "tier": tier, "gpu": gpu}
        return known.edit(account, **{key: value for key, value in wanted.items() if value is not None}), True
    return known.register(account, label, found, tier=tier, gpu=gpu)


def automatic(known: Accounts, account: str, label: str) -> bool:
    """Whether `run` registered the account by its bare id and a person now says what to call it."""
    listed = known.all().get(account)
    return listed is not None and listed.account is not None and listed.account.label == account != label


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


app = typer.Typer(no_args_is_help=True, help="Look at and change accounts.")
AccountId = Annotated[str, typer.Argument(metavar="ID", help="Id of the account.")]


@app.command("list")
def list_accounts(context: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """All registered accounts."""
    here = surroundings(context)
    known = accounts(here, open_stores(here, here.settle(config=config), read_only=True)).all()
    shown = [
        {"id": item.id, "label": printable(item.label), "state": item.row.state, "until": iso(item.row.until)}
        for item in known.values()
    ]
    text = "\n".join(f"{row['id']}  {row['state']}  {row['label']}" for row in shown) or "No account is registered."
    emit(as_json, {"schema": "relay.accounts/1", "accounts": shown}, text)


@app.command("edit")
def edit(
    context: typer.Context,
    account: AccountId,
    label: Annotated[str | None, typer.Option(help="What people call it.", show_default=False)] = None,
    owner: Annotated[str | None, typer.Option(help="The person whose account it is.", show_default=False)] = None,
    provider: Annotated[str | None, typer.Option(help="colab, kaggle, local …", show_default=False)] = None,
    tier: Annotated[str | None, typer.Option(help="free, pro …", show_default=False)] = None,
    gpu: Annotated[str | None, typer.Option(help="e.g. T4.", show_default=False)] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what is known of an account."""
    here = surroundings(context)
    refuse_secrets(here, label, owner)
    wanted = {"label": label, "owner": owner, "provider": provider, "tier": tier, "gpu": gpu}
    changes = {key: value for key, value in wanted.items() if value is not None}
    made = writing_accounts(here, here.settle(config=config)).edit(account, **changes)
    emit(
        as_json,
        document(made, False),
        f"{made.id}: {printable(made.label)}, {printable(made.owner)} at {made.provider}.",
    )


@app.command("mark")
def mark(
    context: typer.Context,
    account: AccountId,
    state: Annotated[Mark, typer.Argument(metavar="STATE", help="ready, cooling, quota_exceeded or blocked")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare an account's state, e.g. quota_exceeded when the provider refused a session."""
    here = surroundings(context)
    writing_accounts(here, here.settle(config=config)).set_status(account, state.value)
    emit(as_json, {"schema": "relay.account/1", "id": account, "state": state.value}, f"{account} is {state.value}.")


@app.command("forget")
def forget(
    context: typer.Context, account: AccountId, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Empty an account: label, owner and everything personal go; its id stays in the runs it trained."""
    here = surroundings(context)
    writing_accounts(here, here.settle(config=config)).forget(account)
    emit(as_json, {"schema": "relay.account/1", "id": account, "state": "forgotten"}, f"{account} is forgotten.")
