"""An account as its person describes it: checked fields in one small object (P12). Stores no logins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from relay.core.errors import BadConfig
from relay.core.ledger.canonical import NotCanonical, digest, dumps, loads
from relay.core.ledger.entry import NewerFormat, is_newer
from relay.core.ledger.fields import Claim, Sparing, Strict, Time
from relay.core.ledger.frozen import clean
from relay.core.names import REGISTRY, Name, check_name
from relay.people.availability import parse as parse_windows
from relay.people.owners import folded
from relay.people.periods import Reset, parse_reset
from relay.people.zones import is_zone, zone

MAX_BYTES = 1000
LENGTHS = {"label": 60, "owner": 40, "availability": 80}
SHORT = 40
"""Characters of every other text."""
TEXTS = ("label", "owner", "provider", "tier", "gpu", "zone", "contact", "availability", "reset")
NUMBERS: Mapping[str, tuple[float, float]] = {"session_minutes": (1.0, 14_400.0), "weekly_hours": (0.1, 168.0)}
"""Least and most."""
EDITABLE = (*TEXTS, *NUMBERS)
MAX_CONFIRMED = 8
"""Runs that an account's object remembers a confirmation for; the newest stay."""
MAX_SLUGS = 8
Hours = Annotated[float, Field(ge=0, le=1e8)]
"""A quota's hours, in seconds."""


class Reading(Strict):
    """Hours left when they were read or declared; numbers only."""

    left_s: Hours
    of_s: Hours | None = None
    source: Literal["official", "declared"]
    read_at: Time
    resets_at: Time | None = None


class Confirmed(Strict):
    """A participant's confirmation to be a co-author of one run, for one text of the provider's clause."""

    run: Claim
    """The first 16 digits of the run's id."""
    at: Time
    clause: Claim


class Account(Sparing):
    """One person's own account at one provider, as they describe it."""

    added: ClassVar[tuple[str, ...]] = (
        "session_minutes",
        "weekly_hours",
        "reset",
        "quota",
        "confirmed",
        "competitions",
    )

    format: Literal[1] = 1
    revision: int = 1
    """Grows with each edit, so that no content and no object name occurs twice."""
    id: Name
    label: str
    owner: str
    provider: Name
    tier: str | None = None
    gpu: str | None = None
    zone: str | None = None
    """IANA zone of the person."""
    contact: str | None = None
    availability: str | None = None
    session_minutes: Annotated[float, Field(ge=1, le=14_400)] | None = None
    """Longest session, if it differs from the provider's."""
    weekly_hours: Annotated[float, Field(ge=0.1, le=168)] | None = None
    reset: str | None = None
    """When its week begins, if that differs from the provider's: `sat 00:00 UTC`."""
    quota: Reading | None = None
    confirmed: Annotated[tuple[Confirmed, ...], Field(max_length=MAX_CONFIRMED)] = ()
    competitions: Annotated[dict[Name, Time], Field(max_length=MAX_SLUGS)] = Field(default={})
    """Competitions for which the person confirmed to be on the team, and when."""

    @field_validator(*TEXTS)
    @classmethod
    def _shown(cls, text: str | None, info: ValidationInfo) -> str | None:
        """Cut each text to one short harmless line: others may have written the object."""
        return clean(text, LENGTHS.get(info.field_name or "", SHORT)) if text else text

    @property
    def week(self) -> Reset | None:
        """Its own reset; None if it has none or cannot be parsed."""
        try:
            return parse_reset(self.reset) if self.reset else None
        except BadConfig:
            return None

    @property
    def usable_zone(self) -> str:
        """Its person's zone; UTC if it has none or an unknown one."""
        return self.zone if self.zone and is_zone(self.zone) else "UTC"

    def has_confirmed(self, run_id: str | None, clause: str) -> bool:
        """Whether its person confirmed to be a co-author of that run for the clause with that digest."""
        return run_id is not None and any(c.run == run_id[:16] and c.clause == clause for c in self.confirmed)


def with_fields(account: Account, fields: Mapping[str, str | float | None]) -> Account:
    """The account with some fields replaced. None, an empty text and 0 clear an optional field.

    A new owner clears the confirmations of the previous one. Raises BadConfig (78).
    """
    unknown = set(fields) - set(EDITABLE)
    if unknown:
        raise BadConfig(f"An account has no field {min(unknown)}; it has {', '.join(EDITABLE)}.")
    numbers = {key: _number(key, value) for key, value in fields.items() if key in NUMBERS}
    texts = {key: _text(key, value) for key, value in fields.items() if key not in NUMBERS}
    if texts.get("provider"):
        texts["provider"] = check_name("provider", str(texts["provider"]).lower())
    for key in ("label", "owner", "provider"):
        if key in texts and not texts[key]:
            raise BadConfig(f"Account {account.id}: {key} cannot be empty.")
    if texts.get("zone"):
        zone(str(texts["zone"]))
    if texts.get("availability"):
        parse_windows(str(texts["availability"]))
    if texts.get("reset"):
        texts["reset"] = str(parse_reset(str(texts["reset"])))
    another = texts.get("owner") is not None and folded(str(texts["owner"])) != folded(account.owner)
    fresh: Mapping[str, object] = {"confirmed": (), "competitions": {}}  # a confirmation is personal
    return account.model_copy(update={**texts, **numbers, **(fresh if another else {})})


def encode(account: Account) -> bytes:
    """Canonical bytes. Drops the oldest confirmations if they do not fit. Raises BadConfig (78)."""
    data = dumps(account.model_dump(mode="json"))
    while len(data) > MAX_BYTES and len(account.confirmed) > 1:
        account = account.model_copy(update={"confirmed": account.confirmed[1:]})
        data = dumps(account.model_dump(mode="json"))
    if len(data) > MAX_BYTES:
        raise BadConfig(
            f"Account {account.id} would take {len(data)} bytes; at most {MAX_BYTES} are allowed. Shorten its label."
        )
    return data


def decode(data: bytes, account: str, sha256: str) -> Account | None:
    """The account in `data`; None if the data is invalid or differs from `sha256`.

    Raises NewerFormat (78) for the intact object of a later version.
    """
    try:
        plain = loads(data, MAX_BYTES)
        if digest(data) == sha256 and isinstance(plain, dict) and is_newer(plain.get("format")):
            raise NewerFormat(
                f"Account {account} was written by a newer version of trm-relay, which this one cannot read."
            )
        found = Account.model_validate_json(data)
    except (NotCanonical, ValidationError):
        return None
    return found if digest(data) == sha256 and found.id == account else None


def contradicts(new: Account, old: Account, provider: bool) -> bool:
    """Whether a field that `new` gives differs in `old`. `provider`: whether the provider was given too."""
    if new.label != old.label or (provider and new.provider != old.provider):
        return True
    given = [key for key in EDITABLE if key not in ("label", "owner", "provider") and getattr(new, key)]
    return any(getattr(new, key) != getattr(old, key) for key in given)


def folder_of(account: str) -> str:
    """Prefix of an account's objects."""
    return f"{REGISTRY}accounts/{account}/"


def object_name(account: str, sha256: str) -> str:
    """Name of the object with that digest; each edit gets a new one."""
    return f"{folder_of(account)}{sha256[:32]}.json"


def confirmed(account: Account, run_id: str, clause: str, at: float) -> Account:
    """The account with its person's confirmation, at `at`, of one run for the clause with that digest."""
    word = Confirmed(run=run_id[:16], at=at, clause=clause)
    kept = [c for c in account.confirmed if c.run != word.run][1 - MAX_CONFIRMED :]
    return account.model_copy(update={"confirmed": (*kept, word)})


def in_team(account: Account, slug: str, at: float) -> Account:
    """The account with a confirmation to be on a competition's team. Raises BadConfig (78) for a bad slug."""
    slugs = {**account.competitions, check_name("competition", slug): account.competitions.get(slug, at)}
    newest = sorted(slugs.items(), key=lambda item: item[1])[-MAX_SLUGS:]
    return account.model_copy(update={"competitions": dict(newest)})


def _text(key: str, value: str | float | None) -> str | None:
    return clean(str(value), LENGTHS.get(key, SHORT)) or None if value else None


def _number(key: str, value: str | float | None) -> float | None:
    least, most = NUMBERS[key]
    if not value:
        return None
    number = float(value)
    if not least <= number <= most:
        raise BadConfig(f"{key.replace('_', ' ')} must be between {least:g} and {most:g}, not {number:g}; 0 clears it.")
    return number
