"""Whether a session may begin under an account here: its provider, its person's word (77), which it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relay.app.messages.advice import command
from relay.core.errors import BadConfig, PolicyRefused
from relay.people.account import Account, confirmed
from relay.people.accounts import Accounts
from relay.people.policy import Provider, Providers
from relay.people.roster import Listed
from relay.people.zones import local

NOTEBOOKS = ("colab", "kaggle")
"""Machines that are always somebody's account at that provider."""


@dataclass(frozen=True)
class Visit:
    """A session about to begin."""

    account: str
    machine: str
    """What kind of machine it is on, as relay/app/machine/env.py names it."""
    run: str
    run_id: str | None = None
    """None: the run has not begun."""
    coauthor: bool = False
    """Whether the person said so now."""
    competition: str | None = None
    """Slug of the competition that the run is for."""


def admit(visit: Visit, listed: Listed | None, providers: Providers, now: float) -> Iterator[str]:
    """Lines to tell before the session begins. `listed` None: the session itself will register the account.

    Raises PolicyRefused (77), BadConfig (78) for a retired account.
    """
    account = listed.account if listed else None
    provider = providers.named(account.provider if account else visit.machine)
    if account is not None:
        check_machine(visit, account, provider, providers)
    if provider.coauthor and not visit.coauthor and not _has_confirmed(account, visit, provider):
        raise PolicyRefused(unconfirmed(visit, provider))
    if visit.competition and not (account and visit.competition in account.competitions):
        raise PolicyRefused(not_in_team(visit, visit.competition))
    if provider.clause and visit.machine == provider.name:
        yield f"{provider.title}: {provider.clause} ({provider.cited})"
    if account and account.provider in NOTEBOOKS and visit.machine != account.provider:
        yield (
            f"{visit.account} is registered at {provider.title}, and this machine is none of theirs ({visit.machine}): "
            f"its time is counted as if it were."
        )
    if listed is not None:
        yield from _declared(listed, now)


def enter(visit: Visit, run_id: str, known: Accounts) -> None:
    """Write down, once each, under whom the account trains and its person's word for this run."""
    known.claim(visit.account)
    found = known.get(visit.account)
    provider = known.providers.named(found.provider)
    if visit.coauthor and provider.coauthor and not found.has_confirmed(run_id, provider.clause_digest):
        confirm(known, visit.account, run_id, provider)


def confirm(known: Accounts, account: str, run_id: str, provider: Provider) -> float:
    """Keep its person's word for a run against the provider's clause; when that was (store's clock)."""
    now = known.now()
    known.change(account, lambda old: confirmed(old, run_id, provider.clause_digest, now))
    return now


def check_machine(visit: Visit, account: Account, provider: Provider, providers: Providers) -> None:
    """Raises PolicyRefused (77) where a notebook spends the hours of another account than the one that was named."""
    if visit.machine not in NOTEBOOKS or account.provider == visit.machine:
        return
    here = providers.named(visit.machine).title
    raise PolicyRefused(
        f"This machine is a notebook at {here}, but {visit.account} is registered at {provider.title}. The hours used "
        f"here are those of the {here} account that is logged in. Train as that account: "
        f"`{command('register')} ID LABEL --provider {visit.machine}`, then --account ID. If {visit.account} is that "
        f"account, correct it: `{command(f'accounts edit {visit.account} --provider {visit.machine}')}`."
    )


def unconfirmed(visit: Visit, provider: Provider) -> str:
    """Why an account may not train this run yet, and how its person says so."""
    said = command("run", visit.run, "--account", visit.account, "--coauthor")
    return (
        f"{provider.title}: {provider.clause} ({provider.cited}). {visit.account} has not confirmed that for run "
        f"{visit.run}. If you, whose account it is, are a co-author of this run, say so once: `{said}` (or "
        f"RELAY_COAUTHOR=1). If you are not, do not train it there: use an account of a co-author, or another provider."
    )


def not_in_team(visit: Visit, slug: str) -> str:
    """Why an account may not train a competition's run."""
    said = command(f"register {visit.account}")
    return (
        f"This run is for the competition {slug}, and {visit.account} has not confirmed to be of its one team. "
        f"{one_team(slug)} If that is so: `{said} LABEL --competition {slug}`."
    )


def one_team(slug: str) -> str:
    """The rule that a participant confirms."""
    return (
        f"Standard competition rules allow sharing code, data and models only inside one team: everybody who trains a "
        f"model for {slug} must be a member of the same team, entered with their one account. Read the rules of {slug} "
        f"yourself; nothing here can check teams."
    )


def _has_confirmed(account: Account | None, visit: Visit, provider: Provider) -> bool:
    return account is not None and account.has_confirmed(visit.run_id, provider.clause_digest)


def _declared(listed: Listed, now: float) -> Iterator[str]:
    """A person at the machine knows more than the registry: told, not refused, unless it was retired."""
    row = listed.row
    again = command(f"accounts mark {listed.id} ready")
    if row.state == "retired":
        raise BadConfig(f"Account {listed.id} is retired. If its person trains again: `{again}`.")
    if row.state not in ("ready", "forgotten") and not (row.until is not None and row.until <= now):
        ends = f" until {local(row.until)}" if row.until else ""
        yield f"{listed.id} is marked {row.state}{ends}; it trains all the same. If that is over: `{again}`."
