"""What providers allow, as dated data, and the refusal of a second account of one person; verifies nobody (77)."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

from relay.errors import PolicyRefused
from relay.names import check_name


class Reset(BaseModel):
    """When a provider's week begins, in its own IANA zone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    day: str = Field(pattern="^(mon|tue|wed|thu|fri|sat|sun)$")
    hour: Annotated[int, Field(ge=0, le=23)] = 0
    zone: str = "UTC"


class Provider(BaseModel):
    """One provider's rules as they were read on a date."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    words: tuple[str, ...] = ()
    """Regular expressions that name it in a label."""
    accounts_per_owner: Annotated[int, Field(gt=0)] | None
    """None: no limit."""
    session_limit_minutes: Annotated[float, Field(gt=0)] | None = None
    weekly_hours: Annotated[float, Field(gt=0)] | None = None
    reset: Reset | None = None
    source: str
    as_of: datetime.date
    notes: str = ""


class Providers(BaseModel):
    """The table, most specific words first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    providers: tuple[Provider, ...]

    def named(self, name: str) -> Provider:
        """The provider of that name; one that is not on file gets the rules of 'unknown'. Raises BadConfig (78)."""
        found = self._get(check_name("provider", name.strip().lower()))
        return found or self.unknown.model_copy(update={"name": name.strip().lower(), "title": name.strip()})

    def in_text(self, text: str) -> Provider | None:
        """The first provider whose words occur in a label."""
        plain = text.casefold()
        return next(
            (p for p in self.providers if any(re.search(rf"(?<![a-z]){w}(?![a-z])", plain) for w in p.words)), None
        )

    @property
    def unknown(self) -> Provider:
        """The rules of whoever is not on file."""
        found = self._get("unknown")
        assert found is not None, "the table ships with 'unknown'"
        return found

    def _get(self, name: str) -> Provider | None:
        return next((p for p in self.providers if p.name == name), None)


@cache
def shipped() -> Providers:
    """The table that comes with this version."""
    text = (files("relay") / "data" / "providers.yaml").read_text(encoding="utf-8")
    return Providers.model_validate(yaml.safe_load(text))


def check_accounts(provider: Provider, owner: str, label: str, others: Iterable[str]) -> None:
    """Refuse one account more than a provider allows. `others` are the ids the owner already has there.

    Raises PolicyRefused (77) with the reason, its source and date, and what to do instead.
    """
    have = sorted(others)
    if provider.accounts_per_owner is None or len(have) < provider.accounts_per_owner:
        return
    raise PolicyRefused(
        f"{label!r} would be one account too many: {owner} already has {', '.join(have)} at {provider.title}, which "
        f"allows {provider.accounts_per_owner} per person ({provider.source}, read {provider.as_of}). Instead: let "
        f"another person register their own account (--owner NAME if this one is theirs), use another provider, a "
        f"paid tier of the same account, or a machine of your own (--provider local, lab or slurm)."
    )
