"""Accounts of people at providers: register, edit, forget; each its own small object (P12); stores no logins."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from zoneinfo import available_timezones

from pydantic import ValidationError, ValidationInfo, field_validator

from relay.advice import command
from relay.canonical import NotCanonical, digest, dumps, loads
from relay.chain import Change
from relay.errors import BadConfig, BadData
from relay.names import REGISTRY, check_name, nearest
from relay.owners import Inference, same_person
from relay.policy import Providers, check_accounts
from relay.registry import Forget, PutAccount, Registry, RegistryState, Row, SetStatus
from relay.state import Name, Strict
from relay.trouble import speaking
from relay.wording import clean
from storage.base import Missing, Ref, StoreError, TooLong

MAX_BYTES = 1000
LENGTHS = {"label": 60, "owner": 40}
SHORT = 40
"""Characters of every other field."""

EDITABLE = ("label", "owner", "provider", "tier", "gpu", "zone", "contact", "availability")


class Account(Strict):
    """One person's own account at one provider, as they describe it."""

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

    @field_validator(*EDITABLE)
    @classmethod
    def _shown(cls, text: str | None, info: ValidationInfo) -> str | None:
        """Texts are for people, whoever wrote the object: one short harmless line each."""
        return clean(text, LENGTHS.get(info.field_name or "", SHORT)) if text else text


@dataclass(frozen=True)
class Listed:
    """An account as the registry knows it. `account` is None if it was forgotten or its object cannot be read."""

    id: str
    row: Row
    account: Account | None

    @property
    def label(self) -> str:
        """What to call it."""
        return self.account.label if self.account else self.id


class Accounts:
    """The accounts of a store. Methods raise what the registry raises."""

    def __init__(self, registry: Registry, providers: Providers) -> None:
        self.registry = registry
        self.store = registry.store
        self.providers = providers
        self._read: dict[str, Account] = {}

    def all(self) -> dict[str, Listed]:
        """Every account by id, forgotten ones too; one read each that was not read before."""
        found = self._listed()
        if any(one.account is None and one.row.state != "forgotten" for one in found.values()):
            found = self._listed()  # an edit moves the object: look where the newest entry says
        return found

    def get(self, account: str) -> Account:
        """One account. Raises BadConfig (78) with the nearest id, BadData (65) if its object is damaged."""
        with speaking(self.store):
            try:
                return self._existing(self.registry.read(), account)
            except BadData:  # an edit moves the object: look where the newest entry says
                return self._existing(self.registry.read(), account)

    def register(
        self, account: str, label: str, found: Inference, *, tier: str | None = None, gpu: str | None = None
    ) -> tuple[Account, bool]:
        """Add an account: it, and whether it is new. Registering the same again changes nothing, but puts back an
        object that was lost or damaged.

        Raises BadConfig (78) if the id is taken by another label, PolicyRefused (77) for one account too many of one
        person at one provider.
        """
        fields = {"label": label, "owner": found.owner or account, "tier": tier, "gpu": gpu}
        blank = Account(id=check_name("account", account), label=account, owner=account, provider=found.provider)
        new = _with_fields(blank, {key: text for key, text in fields.items() if text})

        def build(state: RegistryState) -> Change:
            row = state.accounts.get(account)
            if row and (row.state == "forgotten" or self._load(account, row)):
                raise _Known(self._same(state, new, found))
            self._check_policy(state, new)
            return self._put(new, replaces=row.sha256 if row else None)

        try:
            self.registry.append("account", build)
        except _Known as known:
            return known.account, False
        return new, True

    def edit(self, account: str, **fields: str | None) -> Account:
        """Change some fields; two people editing different fields at once both get their way.

        Raises BadConfig (78) for an unknown id or field, PolicyRefused (77).
        """
        edited: list[tuple[Account, Ref]] = []

        def build(state: RegistryState) -> Change:
            old = self._existing(state, account)
            new = _with_fields(old, fields).model_copy(update={"revision": old.revision + 1})
            if (new.owner, new.provider) != (old.owner, old.provider):
                self._check_policy(state, new)
            row = state.accounts[account]
            edited.append((new, _where(account, row)))
            return self._put(new, replaces=row.sha256)

        self.registry.append("account", build)
        new, old_object = edited[-1]
        with suppress(StoreError):  # advisory: `forget` removes whatever is left
            self.store.delete(old_object)
        return new

    def set_status(
        self, account: str, state: Literal["ready", "cooling", "quota_exceeded", "blocked"], until: float | None = None
    ) -> None:
        """Declare a state, e.g. `quota_exceeded` until a time (store's clock). Raises BadConfig (78)."""

        def build(current: RegistryState) -> Change:
            self._existing_row(current, account)
            return SetStatus(id=account, state=state, until=until)

        self.registry.append("status", build)

    def forget(self, account: str) -> None:
        """Empty an account: its objects go, its id stays in the runs it trained. Raises BadConfig (78).

        Repeating it removes what an edit at the same moment may have left.
        """

        def build(current: RegistryState) -> Change:
            self._existing_row(current, account)
            return Forget(id=account)

        state = self.registry.read()
        if not state or account not in state.accounts or state.accounts[account].state != "forgotten":
            self.registry.append("forget", build)
        with speaking(self.store):
            for stat in list(self.store.list(_folder(account))):
                self.store.delete(stat.ref)

    def _listed(self) -> dict[str, Listed]:
        state = self.registry.read()
        with speaking(self.store):
            return {key: Listed(key, row, self._load(key, row)) for key, row in state.accounts.items()} if state else {}

    def _check_policy(self, state: RegistryState, new: Account) -> None:
        others = (self._load(key, row) for key, row in state.accounts.items() if key != new.id)
        same = [a.id for a in others if a and a.provider == new.provider and same_person(a.owner, new.owner)]
        check_accounts(self.providers.named(new.provider), new.owner, new.label, same)

    def _same(self, state: RegistryState, new: Account, found: Inference) -> Account:
        """The registered account, if `new` says nothing else of it."""
        old = self._existing(state, new.id)
        differs = old.label != new.label
        differs |= found.owner_from == "--owner" and not same_person(old.owner, new.owner)
        differs |= found.provider_from == "--provider" and old.provider != new.provider
        if differs or (new.tier or old.tier) != old.tier or (new.gpu or old.gpu) != old.gpu:
            raise BadConfig(
                f"Account {old.id} is registered as {old.label!r} of {old.owner} at {old.provider}. Register the new "
                f"one under another id, or change this one: {command(f'accounts edit {old.id}')} "
                f"--label LABEL --owner NAME --provider PROVIDER."
            )
        return old

    def _existing(self, state: RegistryState | None, account: str) -> Account:
        row = self._existing_row(state, account)
        found = self._load(account, row)
        if found is None:
            raise BadData(
                f"{self.store.address}: the object of account {account} is missing or damaged. Nothing that it trained "
                f"is affected, and other accounts train on. Put it back with "
                f"`{command(f'register {account} LABEL')}`, or restore it from a backup of the storage."
            )
        return found

    def _existing_row(self, state: RegistryState | None, account: str) -> Row:
        rows = state.accounts if state else {}
        row = rows.get(account)
        if row and row.state != "forgotten":
            return row
        if row:
            raise BadConfig(f"Account {account} was forgotten and its id is not used again. Register another id.")
        known = [key for key, other in rows.items() if other.state != "forgotten"]
        near = nearest(account, known)
        hint = f"Did you mean {near}?" if near else f"Registered are: {', '.join(sorted(known)[:10]) or 'none'}."
        raise BadConfig(
            f"No account {account} is registered in {self.store.address}. {hint} Register it with "
            f"`{command(f'register {account} LABEL')}`."
        )

    def _load(self, account: str, row: Row) -> Account | None:
        """The account's object; None if forgotten, missing or not what the registry promised."""
        if row.state == "forgotten":
            return None
        if row.sha256 not in self._read:
            try:
                data = self.store.get(_where(account, row), limit=MAX_BYTES)
                loads(data, MAX_BYTES)
                found = Account.model_validate_json(data)
            except (Missing, TooLong, NotCanonical, ValidationError):
                return None
            if digest(data) != row.sha256 or found.id != account:
                return None
            self._read[row.sha256] = found
        return self._read[row.sha256]

    def _put(self, account: Account, replaces: str | None) -> PutAccount:
        data = _bytes(account)
        name = _name(account.id, digest(data))
        ref = self.store.put(name, data)
        return PutAccount(id=account.id, sha256=digest(data), ref=None if ref == name else ref, replaces=replaces)


class _Known(Exception):
    """The account is registered already."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.id)
        self.account = account


def _with_fields(account: Account, fields: Mapping[str, str | None]) -> Account:
    """The account with some fields replaced by cleaned texts; None clears an optional one."""
    unknown = set(fields) - set(EDITABLE)
    if unknown:
        word = min(unknown)
        raise BadConfig(f"An account has no field {word}; it has {', '.join(EDITABLE)}.")
    texts = {key: clean(text, LENGTHS.get(key, SHORT)) if text else None for key, text in fields.items()}
    if texts.get("provider"):
        texts["provider"] = check_name("provider", str(texts["provider"]).lower())
    for key in ("label", "owner", "provider"):
        if key in texts and not texts[key]:
            raise BadConfig(f"Account {account.id}: {key} cannot be empty.")
    if texts.get("zone") and texts["zone"] not in available_timezones():
        raise BadConfig(f"{texts['zone']!r} is not a time zone. Use an IANA name such as Europe/Berlin or UTC.")
    return account.model_copy(update=texts)


def _bytes(account: Account) -> bytes:
    data = dumps(account.model_dump(mode="json"))
    if len(data) > MAX_BYTES:
        raise BadConfig(
            f"Account {account.id} would take {len(data)} bytes; at most {MAX_BYTES} are allowed. Shorten its label."
        )
    return data


def _folder(account: str) -> str:
    return f"{REGISTRY}accounts/{account}/"


def _where(account: str, row: Row) -> Ref:
    """Where an account's own object is."""
    return Ref(row.ref or _name(account, row.sha256))


def _name(account: str, sha256: str) -> str:
    return f"{_folder(account)}{sha256[:32]}.json"
