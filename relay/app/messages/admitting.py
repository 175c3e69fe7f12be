"""Messages about who may train under an account: the provider's terms, co-authorship, the competition team."""

from __future__ import annotations

import shlex

from relay.app.messages.advice import command
from relay.app.messages.wording import printable
from relay.people.admission import (
    AdmissionNote,
    AnotherMachine,
    AnotherOwner,
    Elsewhere,
    Marked,
    NotInTeam,
    Terms,
    Unconfirmed,
)
from relay.people.owners import account_id, account_label
from relay.people.policy import Provider
from relay.people.zones import local


def note_text(note: AdmissionNote) -> str:
    """A note for the person who starts the session."""
    match note:
        case Terms(provider):
            return terms(provider)
        case Elsewhere(account, provider, machine):
            return (
                f"{account} is registered at {provider.title}, but this machine is not theirs ({machine}). Its time "
                f"counts as {provider.title} hours."
            )
        case Marked(account, state, until):
            ends = f" until {local(until)}" if until else ""
            again = command(f"accounts mark {account} ready")
            return f"{account} is marked {state}{ends} and trains anyway. To clear the mark: `{again}`."


def terms(provider: Provider) -> str:
    """The clause that a participant confirms, and its source."""
    return f"{provider.title}: {provider.clause} ({provider.cited})"


def another_machine(error: AnotherMachine) -> str:
    """Names the account whose hours would be used, and the command that registers it."""
    name = error.machine.name
    return (
        f"{error} A session here uses the hours of the {error.machine.title} account that is logged in. Train as that "
        f"account: `{registering(error.person, name)}`, then --account ID. If {error.account} is that account, "
        f"correct it: `{command(f'accounts edit {error.account} --provider {name}')}`."
    )


def another_owner(error: AnotherOwner) -> str:
    """The command that registers the person's own account, or corrects the registration."""
    person = shlex.quote(error.person)
    return (
        f"{error} Train as your own account: `{registering(error.person, error.machine.name)}`, then --account ID. If "
        f"{error.account} is yours, correct it: `{command(f'accounts edit {error.account} --owner {person}')}`, or "
        f"unset RELAY_OWNER."
    )


def registering(person: str | None, provider: str) -> str:
    """The command that registers a person's own account at a provider; with placeholders for an unknown person."""
    if person is None:
        return f"{command('register')} ID LABEL --provider {provider}"
    account, label = account_id(person, provider), account_label(person, provider)
    return command("register", None, account, label, "--owner", person, "--provider", provider)


def unconfirmed(error: Unconfirmed) -> str:
    """The clause that an account has not confirmed, and the command that confirms it."""
    confirm = command("run", error.run, "--account", error.account, "--coauthor")
    return (
        f"{error} If you own this account and are a co-author of the run, confirm once: `{confirm}` (or "
        f"RELAY_COAUTHOR=1). Otherwise use a co-author's account, or another provider. {terms(error.provider)}."
    )


def not_in_team(error: NotInTeam) -> str:
    """The team rule of a competition, and the command that confirms it."""
    register = command(f"register {error.account}")
    slug = error.competition
    return f"{error} {one_team(slug)} If that is so: `{register} LABEL --competition {slug}`."


def one_team(slug: str) -> str:
    """The rule that a participant confirms."""
    return (
        f"Standard competition rules allow sharing code, data and models only inside one team. Every participant who "
        f"trains a model for {slug} must be in the same team, with their one account. Read the rules of {slug} "
        f"yourself; trm-relay cannot check teams."
    )


def training_as(account: str, label: str, owner: str, new: bool) -> str:
    """The first line of a session."""
    called = "" if label == account else f" ({printable(label)})"
    return f"Training as {account}{called}, owner {printable(owner)}{', a new account' if new else ''}"
