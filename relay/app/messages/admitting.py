"""What people read before a session begins under an account: its provider's terms, their word, their team."""

from __future__ import annotations

from relay.app.messages.advice import command
from relay.people.admission import AnotherMachine, Elsewhere, Marked, Note, NotInTeam, Terms, Unconfirmed
from relay.people.policy import Provider
from relay.people.zones import local


def note_text(note: Note) -> str:
    """A note for the person at the machine."""
    match note:
        case Terms(provider):
            return terms(provider)
        case Elsewhere(account, provider, machine):
            return (
                f"{account} is registered at {provider.title}, and this machine is none of theirs ({machine}): its "
                f"time is counted as if it were."
            )
        case Marked(account, state, until):
            ends = f" until {local(until)}" if until else ""
            again = command(f"accounts mark {account} ready")
            return f"{account} is marked {state}{ends}; it trains all the same. If that is over: `{again}`."


def terms(provider: Provider) -> str:
    """The clause that a participant confirms, and where it stands."""
    return f"{provider.title}: {provider.clause} ({provider.cited})"


def another_machine(error: AnotherMachine) -> str:
    """Whose hours would be spent, and how to train as that account."""
    here, name = error.machine.title, error.machine.name
    return (
        f"{error} The hours used here are those of the {here} account that is logged in. Train as that account: "
        f"`{command('register')} ID LABEL --provider {name}`, then --account ID. If {error.account} is that account, "
        f"correct it: `{command(f'accounts edit {error.account} --provider {name}')}`."
    )


def unconfirmed(error: Unconfirmed) -> str:
    """Why an account may not train this run yet, and how its person says so."""
    said = command("run", error.run, "--account", error.account, "--coauthor")
    return (
        f"{terms(error.provider)}. {error.account} has not confirmed that for run {error.run}. If you, whose account "
        f"it is, are a co-author of this run, say so once: `{said}` (or RELAY_COAUTHOR=1). If you are not, do not "
        f"train it there: use an account of a co-author, or another provider."
    )


def not_in_team(error: NotInTeam) -> str:
    """Why an account may not train a competition's run."""
    said = command(f"register {error.account}")
    slug = error.competition
    return f"{error} {one_team(slug)} If that is so: `{said} LABEL --competition {slug}`."


def one_team(slug: str) -> str:
    """The rule that a participant confirms."""
    return (
        f"Standard competition rules allow sharing code, data and models only inside one team: everybody who trains a "
        f"model for {slug} must be a member of the same team, entered with their one account. Read the rules of {slug} "
        f"yourself; nothing here can check teams."
    )
