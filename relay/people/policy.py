"""Provider rules as dated data, and their limit of accounts per person (77). Verifies no identity."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from relay.core.errors import PolicyRefused
from relay.core.ledger.canonical import digest
from relay.core.names import check_name
from relay.people.periods import Reset

NOTEBOOKS = ("colab", "kaggle")
"""Providers whose machines always use an account there."""
STALE_DAYS = 180
"""Records older than this should be read again."""
LONG = 5
"""A provider's name with at least this many letters is not part of another name by chance."""
READ_AS = {
    "page": "read",
    "transcribed": "as others transcribed it, read",
    "secondary": "as others report, read",
    "unread": "looked for",
    "own": "as of",
}
"""How a record's date is introduced, by its evidence."""


class Provider(BaseModel):
    """One provider's rules as they were read on a date."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    words: tuple[str, ...] = ()
    """Regular expressions that name it in a label."""
    accounts_per_owner: Annotated[int, Field(gt=0)] | None
    """None for no limit."""
    session_limit_minutes: Annotated[float, Field(gt=0)] | None = None
    idle_minutes: Annotated[float, Field(gt=0)] | None = None
    weekly_hours: Annotated[float, Field(gt=0)] | None = None
    reset: Reset | None = None
    source: str
    url: str | None = None
    """Page with the rules; None if no provider's terms apply."""
    as_of: datetime.date
    evidence: Literal["page", "transcribed", "secondary", "unread", "own"]
    automation: str = ""
    commercial: str = ""
    competitions: str = ""
    sharing: str = ""
    distributed_workers: str = ""
    may_fill_hours: bool = False
    """Whether hours that are about to expire may be a reason to propose an account."""
    coauthor: bool = False
    """Whether each participant must confirm, once for each run, that the run is their own work too."""
    clause: str = ""
    """The provider's text that they confirm."""
    unsupported: str = ""
    """Why training there is not possible; empty if it is."""
    notes: str = ""

    @property
    def clause_digest(self) -> str:
        """16 hexadecimal digits of the clause's hash, so that a changed text needs a new confirmation."""
        return digest(self.clause.encode())[:16]

    @property
    def cited(self) -> str:
        """The source, how it was read and when."""
        where = f"; {self.url}" if self.url else ""
        return f"{self.source}{where}; {READ_AS[self.evidence]} {self.as_of}"

    def stale(self, now: float) -> str:
        """A line if the record is older than STALE_DAYS at `now` (unix seconds), otherwise empty."""
        age = (datetime.datetime.fromtimestamp(now, datetime.UTC).date() - self.as_of).days
        if self.url is None or age <= STALE_DAYS:
            return ""
        return f"The rules of {self.title} were read on {self.as_of}, {age} days ago: check {self.url}"


class Providers(BaseModel):
    """The table, most specific words first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    providers: tuple[Provider, ...]

    def named(self, name: str) -> Provider:
        """The provider of that name or of a variant spelling (google-colab, colab2, lightningai).

        A provider that is not on file gets the rules of 'unknown'. Raises BadConfig (78).
        """
        written = check_name("provider", name.strip().lower())
        found = self._get(written) or self._spelled(written)
        return found or self.unknown.model_copy(update={"name": name.strip().lower(), "title": name.strip()})

    def _spelled(self, name: str) -> Provider | None:
        """A provider that limits accounts and whose name is part of `name`: a variant does not avoid its limit."""
        limited = [p for p in self.providers if p.accounts_per_owner is not None and p.words]
        found = self.in_text(re.sub(r"[_-]+", " ", name))
        return found if found in limited else next((p for p in limited if len(p.name) >= LONG and p.name in name), None)

    def in_text(self, text: str) -> Provider | None:
        """The first provider whose words occur in a label."""
        plain = text.casefold()
        return next(
            (p for p in self.providers if any(re.search(rf"(?<![a-z]){w}(?![a-z])", plain) for w in p.words)), None
        )

    @property
    def unknown(self) -> Provider:
        """The rules for providers that are not on file."""
        found = self._get("unknown")
        assert found is not None, "the table ships with 'unknown'"
        return found

    def _get(self, name: str) -> Provider | None:
        return next((p for p in self.providers if p.name == name), None)


class Unsupported(PolicyRefused):
    """Training at the provider is not possible."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(f"Training at {provider.title} is not possible: {provider.unsupported} ({provider.cited}).")
        self.provider = provider


class OneTooMany(PolicyRefused):
    """A person would have more accounts at a provider than it allows."""

    def __init__(
        self, provider: Provider, owner: str, label: str, have: Sequence[str], forgotten: Sequence[str]
    ) -> None:
        """`have`: ids that the owner has or had there, of which `forgotten` were emptied."""
        super().__init__(
            f"{label!r} would be one account too many: {owner} already has {', '.join(have)} at {provider.title}, "
            f"which allows {provider.accounts_per_owner} per person ({provider.cited})."
        )
        self.provider, self.owner, self.label = provider, owner, label
        self.have, self.forgotten = tuple(have), tuple(forgotten)


def check_supported(provider: Provider) -> None:
    """Raises Unsupported (77) for a provider where training is not possible."""
    if provider.unsupported:
        raise Unsupported(provider)


def check_accounts(
    provider: Provider, owner: str, label: str, others: Sequence[str], forgotten: Sequence[str] = ()
) -> None:
    """Raises OneTooMany (77) if the owner would have more accounts than the provider allows.

    `others` are the ids the owner already has or had there, of which `forgotten` were emptied.
    """
    if provider.accounts_per_owner is not None and len(others) >= provider.accounts_per_owner:
        raise OneTooMany(provider, owner, label, sorted(others), forgotten)
