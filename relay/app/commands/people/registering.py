"""`register`: adds an account, and reports the inferred fields and the provider's rules; works unattended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say
from relay.app.commands.stores import accounts, open_stores
from relay.app.machine.secretchain import OWNER
from relay.app.messages.admitting import one_team, terms
from relay.app.messages.advice import command
from relay.app.messages.wording import printable
from relay.app.providers import shipped
from relay.app.redact import redact
from relay.core.errors import BadConfig, RelayError, UsageError
from relay.core.names import check_letters, check_name
from relay.core.settings.config import Resolved
from relay.people.account import Account, in_team
from relay.people.accounts import Accounts
from relay.people.admission import Visit, check_fit
from relay.people.inference import infer_account
from relay.people.owners import Inference, account_id, account_label, check_named
from relay.people.policy import NOTEBOOKS
from storage.base import StoreError

Details = dict[str, str | float | None]

AccountId = Annotated[str, typer.Argument(metavar="ID", help="Id of the account.")]
Owner = Annotated[str | None, typer.Option("--owner", help="The person whose account it is.", show_default=False)]
AtProvider = Annotated[str | None, typer.Option("--provider", help="colab, kaggle, local …", show_default=False)]
Tier = Annotated[str | None, typer.Option("--tier", help="free, pro …", show_default=False)]
Gpu = Annotated[str | None, typer.Option("--gpu", help="e.g. T4.", show_default=False)]
Minutes = Annotated[
    float | None,
    typer.Option("--session-minutes", help="Longest session, where it is not the provider's.", show_default=False),
]
Hours = Annotated[
    float | None,
    typer.Option("--weekly-hours", help="Hours a week, where it is not the provider's.", show_default=False),
]
WeekReset = Annotated[
    str | None,
    typer.Option("--reset", metavar="WHEN", help="When its week begins, e.g. 'sat 00:00 UTC'.", show_default=False),
]
Zone = Annotated[
    str | None, typer.Option("--zone", help="Time zone of the person, e.g. Europe/Berlin.", show_default=False)
]
Availability = Annotated[
    str | None,
    typer.Option(
        "--availability", help="When the person can, in that zone: 'mon-fri 18:00-23:00'.", show_default=False
    ),
]
Contact = Annotated[
    str | None,
    typer.Option("--contact", help="How to reach the person; `accounts forget` removes it.", show_default=False),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="When that ends by itself, e.g. 2026-12-05.", show_default=False),
]


def details(
    tier: str | None,
    gpu: str | None,
    session_minutes: float | None,
    weekly_hours: float | None,
    reset: str | None,
    zone: str | None,
    availability: str | None,
    contact: str | None,
) -> Details:
    """Return the values by the names of the account's fields; None if not given."""
    return {
        "tier": tier,
        "gpu": gpu,
        "session_minutes": session_minutes,
        "weekly_hours": weekly_hours,
        "reset": reset,
        "zone": zone,
        "availability": availability,
        "contact": contact,
    }


@subcommand("config")
def register(
    account: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="e.g. account_1; without one, your account here.", show_default=False),
    ] = None,
    label: Annotated[
        str | None,
        typer.Argument(metavar="[LABEL]", help='What people call it, e.g. "John\'s Colab".', show_default=False),
    ] = None,
    owner: Owner = None,
    provider: AtProvider = None,
    tier: Tier = None,
    gpu: Gpu = None,
    session_minutes: Minutes = None,
    weekly_hours: Hours = None,
    reset: WeekReset = None,
    zone: Zone = None,
    availability: Availability = None,
    contact: Contact = None,
    competition: Annotated[
        str | None,
        typer.Option(metavar="SLUG", help="Confirm to be of the one team of this competition.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Changes nothing: nothing is asked.")] = False,
    *,
    call: Call,
) -> Answer:
    """Register an account: one person's own account at one provider. Without words, that of RELAY_OWNER here."""
    told = details(tier, gpu, session_minutes, weekly_hours, reset, zone, availability, contact)
    refuse_secrets(call.app, label, owner, *map(str, told.values()))
    if account is None:
        known, made, fresh = of_person(call, owner, provider, told)
    else:
        known, made, fresh = named(call, account, label, owner, provider, told)
    if competition:
        made = join_team(known, made.id, competition)
    return Answer(account_document(made, fresh), sentence(made, fresh))


def named(
    call: Call, account: str, label: str | None, owner: str | None, provider: str | None, told: Details
) -> tuple[Accounts, Account, bool]:
    """Register an account of that id. Returns it, and whether it is new. Raises UsageError (2) without a label."""
    if label is None:
        raise UsageError(f"An account has an id and a label: {_example()}")
    check_name("account", account)
    found = inferred(call.app, label, owner, provider)
    for line in found.guesses:
        say(f"inferred: {line}")
    say_rules(call.app, found.provider)
    known = call.accounts()
    if automatic(known, account, label):
        say(f"{account} was registered by its first session; now it gets its label, owner and provider.")
        return known, described(known, account, label, found, told), True
    return known, *known.register(account, label, found, **told)


def of_person(call: Call, owner: str | None, provider: str | None, told: Details) -> tuple[Accounts, Account, bool]:
    """Register the account of the person at this machine, or find it. Raises UsageError (2), NoName (78)."""
    name = owner or call.app.environ.get(OWNER)
    if not name:
        raise UsageError(f"Whose account? {_example()}. Or set {OWNER} to your name, for your account here.")
    check_named("--owner" if owner else OWNER, name)
    machine = provider or call.app.machine.provider
    say_rules(call.app, machine)
    known = call.accounts()
    made, fresh = enrolled(known, machine, name)
    given = {key: value for key, value in told.items() if value is not None}
    return known, known.edit(made.id, **given) if given else made, fresh


def enrolled(known: Accounts, machine: str, name: str, account: str = "") -> tuple[Account, bool]:
    """The account of person `name` on that kind of machine, or `account`; registers it if it is new.

    Returns it, and whether it is new. Raises AnotherMachine, AnotherOwner, OneTooMany (77), IdTaken, NotItsPerson (78).
    """
    provider = known.providers.named(machine)
    chosen = account or known.of_person(name, provider.name) or account_id(name, provider.name)
    listed = known.find(chosen)
    if listed and listed.account:
        check_fit(Visit(chosen, provider.name, "", owner=name), listed.account, known.providers)
        return listed.account, False
    found = Inference(name, "--owner", provider.name, "--provider")
    return known.register(chosen, account_label(name, provider.name), found)[0], True


def for_person(app: App, resolved: Resolved[Any]) -> Resolved[Any]:
    """The settings with RELAY_OWNER's account on this machine, if no account is given. Raises NoName (78)."""
    name = app.environ.get(OWNER)
    if not name or resolved.given_account:
        return resolved
    check_named(OWNER, name)
    chosen = account_id(name, shipped().named(app.machine.provider).name)
    with suppress(RelayError, StoreError):  # the session reports it
        known = accounts(open_stores(app, resolved, read_only=True))
        chosen = known.of_person(name, app.machine.provider) or chosen
    settings = resolved.settings.model_copy(update={"account": chosen})
    return replace(
        resolved, settings=settings, origins={**resolved.origins, "account": f"environment variable {OWNER}"}
    )


def _example() -> str:
    return f"`{command('register', None, 'account_1', 'LABEL')}`"


def inferred(here: App, label: str, owner: str | None, provider: str | None) -> Inference:
    """Infer owner and provider. On a notebook, a label that names no provider means the notebook's provider."""
    advice = "set your name with --owner or RELAY_OWNER"
    found = infer_account(label, owner, provider, here.environ, here.runtime, shipped(), advice)
    machine = here.machine.provider
    if found.provider == "unknown" and not provider and machine in NOTEBOOKS:
        return replace(found, provider=machine, provider_from="this machine")
    return found


def say_rules(here: App, name: str) -> None:
    """Print the provider's rules that a participant must know before the first session."""
    provider = shipped().named(name)
    if provider.coauthor:
        say(terms(provider))
        say("Nobody is asked to train a run there before its person has confirmed that, once, with `run --coauthor`.")
    if line := provider.stale(here.runtime.wall()):
        say(f"{line}.")


def join_team(known: Accounts, account: str, slug: str) -> Account:
    """Store the person's confirmation to be in a competition's one team. Raises BadConfig (78) for an invalid slug."""
    check_name("competition", slug)
    say(one_team(slug))
    now = known.now()
    return known.change(account, lambda old: in_team(old, slug, now))


def refuse_secrets(app: App, *texts: str | None) -> None:
    """Raises BadConfig (78) if a shared text contains a password, a key or characters that are not allowed."""
    for text in texts:
        check_letters("The text", text or "")
    if any(text and redact(text, app.secrets) != text for text in texts):
        raise BadConfig(
            "The label or owner holds what looks like a password or a key, and everybody who shares the store would "
            "see it. Nothing was stored. Use plain words; a key that was ever shared should be replaced."
        )


def described(known: Accounts, account: str, label: str, found: Inference, more: Details) -> Account:
    """Add the known fields to an account that `run` registered by its bare id."""
    told = {key: value for key, value in {"owner": found.owner, **more}.items() if value is not None}
    return known.edit(account, label=label, provider=found.provider, **told)


def automatic(known: Accounts, account: str, label: str) -> bool:
    """Return whether `run` registered the account by its bare id and a person now gives it a label."""
    listed = known.find(account)
    return listed is not None and listed.account is not None and listed.account.label == account != label


def account_document(account: Account, fresh: bool) -> dict[str, object]:
    """Return relay.account/1 with owner and label, without contacts."""
    return {
        "schema": "relay.account/1",
        "id": account.id,
        "label": printable(account.label),
        "owner": printable(account.owner),
        "provider": account.provider,
        "tier": account.tier,
        "gpu": account.gpu,
        "session_minutes": account.session_minutes,
        "weekly_hours": account.weekly_hours,
        "reset": account.reset,
        "zone": account.zone,
        "availability": account.availability,
        "competitions": sorted(account.competitions),
        "new": fresh,
    }


def sentence(account: Account, fresh: bool) -> str:
    """Return the result as text."""
    what = "Registered" if fresh else "Already registered, unchanged:"
    return f"{what} {account.id} ({printable(account.label)}): {printable(account.owner)} at {account.provider}."
