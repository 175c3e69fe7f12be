"""What a person says of one account: its fields, each checked, as one small object (P12); stores no logins."""

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
"""Seconds, in truth: a quota's."""


class Reading(Strict):
    """What was left of the hours when somebody read or said it; numbers only."""

    left_s: Hours
    of_s: Hours | None = None
    source: Literal["official", "declared"]
    read_at: Time
    resets_at: Time | None = None


class Confirmed(Strict):
    """A participant's word to be a co-author of one run, against one text of the provider's clause."""

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
    """Grows with each edit, so that no content, and so no object's name, ever comes back."""
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
    """Longest session, where it is not the provider's."""
    weekly_hours: Annotated[float, Field(ge=0.1, le=168)] | None = None
    reset: str | None = None
    """When its week begins, where that is not the provider's: `sat 00:00 UTC`."""
    quota: Reading | None = None
    confirmed: Annotated[tuple[Confirmed, ...], Field(max_length=MAX_CONFIRMED)] = ()
    competitions: Annotated[dict[Name, Time], Field(max_length=MAX_SLUGS)] = Field(default={})
    """Competitions for which the person confirmed to be of the one team, and when."""

    @field_validator(*TEXTS)
    @classmethod
    def _shown(cls, text: str | None, info: ValidationInfo) -> str | None:
        """Texts are for people, whoever wrote the object: one short harmless line each."""
        return clean(text, LENGTHS.get(info.field_name or "", SHORT)) if text else text

    @property
    def week(self) -> Reset | None:
        """Its own reset; None if it has none or a stranger wrote nonsense."""
        try:
            return parse_reset(self.reset) if self.reset else None
        except BadConfig:
            return None

    @property
    def usable_zone(self) -> str:
        """Its person's zone; UTC if it has none or a stranger wrote one that nobody knows."""
        return self.zone if self.zone and is_zone(self.zone) else "UTC"

    def has_confirmed(self, run_id: str | None, clause: str) -> bool:
        """Whether its person confirmed to be a co-author of that run against that text (its digest)."""
        return run_id is not None and any(c.run == run_id[:16] and c.clause == clause for c in self.confirmed)


def with_fields(account: Account, fields: Mapping[str, str | float | None]) -> Account:
    """The account with some fields replaced; None, an empty text and 0 clear an optional one; what an owner has
    confirmed goes with them. Raises BadConfig (78)."""
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
    fresh: Mapping[str, object] = {"confirmed": (), "competitions": {}}  # one person's word is not another's
    return account.model_copy(update={**texts, **numbers, **(fresh if another else {})})


def encode(account: Account) -> bytes:
    """Canonical bytes; the oldest confirmations go where they do not fit. Raises BadConfig (78)."""
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
    """The account in `data`; None if that is not what the registry promised.

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


def says_otherwise(new: Account, old: Account, provider: bool) -> bool:
    """Whether `new` tells anything of an account that `old` does not; its provider only where that was named."""
    if new.label != old.label or (provider and new.provider != old.provider):
        return True
    told = [key for key in EDITABLE if key not in ("label", "owner", "provider") and getattr(new, key)]
    return any(getattr(new, key) != getattr(old, key) for key in told)


def folder_of(account: str) -> str:
    """Prefix of an account's objects."""
    return f"{REGISTRY}accounts/{account}/"


def object_name(account: str, sha256: str) -> str:
    """Where bytes of that digest lie; a new name with each edit."""
    return f"{folder_of(account)}{sha256[:32]}.json"


def confirmed(account: Account, run_id: str, clause: str, at: float) -> Account:
    """The account with its person's word for one run against one text of the clause (its digest), at `at`."""
    word = Confirmed(run=run_id[:16], at=at, clause=clause)
    kept = [c for c in account.confirmed if c.run != word.run][1 - MAX_CONFIRMED :]
    return account.model_copy(update={"confirmed": (*kept, word)})


def in_team(account: Account, slug: str, at: float) -> Account:
    """The account with its person's word to be of a competition's one team. Raises BadConfig (78) for a bad slug."""
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
