"""Checks whether an account may start a session on this machine (77), and records its person's confirmation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relay.core.errors import BadConfig, PolicyRefused
from relay.people.account import Account, confirmed
from relay.people.accounts import AccountEntry, Accounts
from relay.people.owners import is_unnamed, same_person
from relay.people.policy import NOTEBOOKS, Provider, Providers


@dataclass(frozen=True)
class Visit:
    """A session about to begin."""

    account: str
    machine: str
    """The kind of machine it is on, as relay/app/machine/env.py names it."""
    run: str
    run_id: str | None = None
    """None if the run has not begun."""
    coauthor: bool = False
    """Whether the person confirms now to be a co-author."""
    owner: str | None = None
    """The person at the machine, if they gave their name."""
    competition: str | None = None
    """Slug of the competition that the run is for."""


@dataclass(frozen=True)
class Terms:
    """The provider of this machine has terms that a participant must know."""

    provider: Provider


@dataclass(frozen=True)
class Elsewhere:
    """The account is registered at another provider than this machine's. Its time counts for that provider."""

    account: str
    provider: Provider
    machine: str


@dataclass(frozen=True)
class Marked:
    """A participant declared a state in which the account is not proposed."""

    account: str
    state: str
    until: float | None
    """When that ends by itself (store's clock)."""


AdmissionNote = Terms | Elsewhere | Marked
"""A fact that the person at the machine should know before the session begins."""


class AnotherMachine(PolicyRefused):
    """The session would count for another provider than the one whose machine this is."""

    def __init__(self, account: str, provider: Provider, machine: Provider, person: str | None = None) -> None:
        """`person`: at the machine, if known."""
        super().__init__(f"This machine belongs to {machine.title}, but {account} is registered at {provider.title}.")
        self.account, self.provider, self.machine, self.person = account, provider, machine, person


class AnotherOwner(PolicyRefused):
    """The person at the machine is not the one whose account it is."""

    def __init__(self, account: str, owner: str, person: str, machine: Provider) -> None:
        """`owner`: in the account's registration; `person`: at the machine."""
        super().__init__(f"{account} is registered as {owner}'s, but you are {person}.")
        self.account, self.owner, self.person, self.machine = account, owner, person, machine


class Unconfirmed(PolicyRefused):
    """The provider requires the person's confirmation for the run, and it is missing."""

    def __init__(self, account: str, run: str, provider: Provider) -> None:
        super().__init__(f"{account} has not confirmed the terms of {provider.title} for run {run}.")
        self.account, self.run, self.provider = account, run, provider


class NotInTeam(PolicyRefused):
    """The run is for a competition, and the account has not confirmed to be on its team."""

    def __init__(self, account: str, competition: str) -> None:
        super().__init__(
            f"This run is for the competition {competition}, and {account} has not confirmed to be on its team."
        )
        self.account, self.competition = account, competition


class AccountRetired(BadConfig):
    """The account's person has left."""

    def __init__(self, account: str) -> None:
        super().__init__(f"Account {account} is retired.")
        self.account = account


def admit(visit: Visit, listed: AccountEntry | None, providers: Providers, now: float) -> Iterator[AdmissionNote]:
    """Yields the facts to know before the session begins. `listed` is None if the session will register the account.

    Raises AnotherMachine, AnotherOwner, Unconfirmed or NotInTeam (77), AccountRetired (78).
    """
    account = listed.account if listed else None
    provider = providers.named(account.provider if account else visit.machine)
    if account is not None:
        check_fit(visit, account, providers)
    if provider.coauthor and not visit.coauthor and not _has_confirmed(account, visit, provider):
        raise Unconfirmed(visit.account, visit.run, provider)
    if visit.competition and not (account and visit.competition in account.competitions):
        raise NotInTeam(visit.account, visit.competition)
    if provider.clause and visit.machine == provider.name:
        yield Terms(provider)
    if account and account.provider in NOTEBOOKS and visit.machine != account.provider:
        yield Elsewhere(visit.account, provider, visit.machine)
    if listed is not None:
        yield from _declared(listed, now)


def enter(visit: Visit, run_id: str, known: Accounts) -> None:
    """Record the account's claim and its person's confirmation for this run, each once."""
    known.claim(visit.account)
    found = known.get(visit.account)
    provider = known.providers.named(found.provider)
    if visit.coauthor and provider.coauthor and not found.has_confirmed(run_id, provider.clause_digest):
        confirm(known, visit.account, run_id, provider)


def confirm(known: Accounts, account: str, run_id: str, provider: Provider) -> float:
    """Store its person's confirmation of a run for the provider's clause. Returns when (store's clock)."""
    now = known.now()
    known.change(account, lambda old: confirmed(old, run_id, provider.clause_digest, now))
    return now


def check_fit(visit: Visit, account: Account, providers: Providers) -> None:
    """Raises AnotherMachine or AnotherOwner (77) if machine or person do not fit the account's registration.

    A notebook always uses its own provider's hours, and a Slurm job never those of a notebook. Of other machines
    nothing is known. An owner that nobody named fits everybody.
    """
    machine, provider = providers.named(visit.machine), providers.named(account.provider)
    elsewhere = visit.machine == "slurm" and provider.name in NOTEBOOKS
    if (visit.machine in NOTEBOOKS and provider.name != visit.machine) or elsewhere:
        raise AnotherMachine(visit.account, provider, machine, visit.owner)
    if visit.owner and not is_unnamed(account.owner) and not same_person(visit.owner, account.owner):
        raise AnotherOwner(visit.account, account.owner, visit.owner, machine)


def _has_confirmed(account: Account | None, visit: Visit, provider: Provider) -> bool:
    return account is not None and account.has_confirmed(visit.run_id, provider.clause_digest)


def _declared(listed: AccountEntry, now: float) -> Iterator[AdmissionNote]:
    """Yields a declared state as a warning: its person may know better. Raises AccountRetired (78)."""
    row = listed.row
    if row.state == "retired":
        raise AccountRetired(listed.id)
    if row.state not in ("ready", "forgotten") and not (row.until is not None and row.until <= now):
        yield Marked(listed.id, row.state, row.until)
