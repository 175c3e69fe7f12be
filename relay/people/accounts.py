"""Registers, edits and forgets people's accounts at providers, within their policies (P12). Stores no logins."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from relay.core.errors import BadConfig, BadData, store_errors
from relay.core.ledger.canonical import digest
from relay.core.ledger.chain import AnyChange
from relay.core.ledger.fields import Claim
from relay.core.ledger.registry import Declared, Forget, PutAccount, Registry, RegistryState, Row, SetStatus
from relay.core.names import check_name
from relay.people.account import (
    MAX_BYTES,
    Account,
    Reading,
    contradicts,
    decode,
    encode,
    folder_of,
    object_name,
    with_fields,
)
from relay.people.owners import Inference, account_id, folded, same_person
from relay.people.policy import NOTEBOOKS, Providers, check_accounts, check_supported
from relay.people.quota import AHEAD_S, reset_of
from storage.base import Missing, Ref, Store, StoreError, TooLong
from storage.parallel import in_parallel

# --- The objects of accounts in a store, one each, every edit under a name of its own (P12) -------------------------


class AccountDamaged(BadData):
    """The object of a registered account is missing, or differs from its digest in the registry."""

    def __init__(self, address: str, account: str) -> None:
        super().__init__(f"{address}: the object of account {account} is missing or damaged.")
        self.address, self.account = address, account


class AccountObjects:
    """The account objects of a store; each is read once. Methods raise StoreError unless noted otherwise."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._read: dict[str, Account] = {}

    def load(self, account: str, row: Row) -> Account | None:
        """The account's object; None if forgotten, missing, or different from its digest in the registry."""
        if row.state == "forgotten":
            return None
        found = self._read.get(row.sha256)
        if found is None:
            with suppress(Missing, TooLong):
                found = decode(self.store.get(place_of(account, row), limit=MAX_BYTES), account, row.sha256)
            if found:
                self._read[row.sha256] = found
        return found

    def existing(self, state: RegistryState | None, account: str) -> Account:
        """The object of a registered account. Raises NoAccount, AccountForgotten (78) or AccountDamaged (65)."""
        found = self.load(account, row_of(state, account, self.store.address))
        if found is None:
            raise AccountDamaged(self.store.address, account)
        return found

    def put(self, account: Account, row: Row | None, claim: Claim | None) -> PutAccount:
        """Store a new object next to the one of `row`. Returns the change that makes it the account's."""
        data = encode(account)
        name = object_name(account.id, digest(data))
        ref = self.store.put(name, data)
        replaces = row.sha256 if row else None
        return PutAccount(
            id=account.id, sha256=digest(data), ref=None if ref == name else ref, replaces=replaces, claim=claim
        )

    def clear(self, account: str) -> None:
        """Delete every object of the account. Raises StorageUnreachable (69)."""
        with store_errors(self.store):
            for stat in list(self.store.list(folder_of(account))):
                self.store.delete(stat.ref)


def place_of(account: str, row: Row) -> Ref:
    """Reference of an account's object."""
    return Ref(row.ref or object_name(account, row.sha256))


# --- Digests of owner and provider, kept in the registry when the names are gone ------------------------------------


def claim_of(store: str, provider: str, owner: str) -> Claim:
    """16 hexadecimal digits: HMAC-SHA256 of provider and folded owner under the store's random identity.

    One person has different digests in different stores. A reader of the store can test a guessed name against the
    digest: it is a pseudonym, not anonymity.
    """
    text = f"{provider}\n{folded(owner)}".encode()
    return hmac.new(store.encode(), text, hashlib.sha256).hexdigest()[:16]


# --- An account as the registry lists it, and its row ---------------------------------------------------------------


@dataclass(frozen=True)
class AccountEntry:
    """An account as the registry knows it. `account` is None if it was forgotten or its object cannot be read."""

    id: str
    row: Row
    account: Account | None

    @property
    def label(self) -> str:
        """Its label, otherwise its id."""
        return self.account.label if self.account else self.id


class NoAccount(BadConfig):
    """The store's registry holds no such account; `known` are the ids that it holds."""

    def __init__(self, account: str, address: str, known: Sequence[str]) -> None:
        super().__init__(f"No account {account} is registered in {address}.")
        self.account, self.address, self.known = account, address, tuple(known)


class AccountForgotten(BadConfig):
    """The account was emptied."""

    def __init__(self, account: str) -> None:
        super().__init__(f"Account {account} was forgotten.")
        self.account = account


def row_of(state: RegistryState | None, account: str, address: str) -> Row:
    """The row of an account that is registered and not forgotten. Raises NoAccount or AccountForgotten (78)."""
    rows = state.accounts if state else {}
    row = rows.get(account)
    if row and row.state != "forgotten":
        return row
    if row:
        raise AccountForgotten(account)
    raise NoAccount(account, address, [key for key, other in rows.items() if other.state != "forgotten"])


class IdTaken(BadConfig):
    """The id belongs to an account with another label, owner or provider."""

    def __init__(self, old: Account) -> None:
        super().__init__(f"Account {old.id} is registered as {old.label!r} of {old.owner} at {old.provider}.")
        self.account, self.label, self.owner, self.provider = old.id, old.label, old.owner, old.provider


class NotItsPerson(BadConfig):
    """A forgotten account is registered by another person than the one who trained as it, by its claims."""

    def __init__(self, account: str) -> None:
        super().__init__(
            f"Account {account} was forgotten; only its person may register it again. Use the same owner and provider "
            f"as before."
        )
        self.account = account


class Accounts:
    """The accounts of a store. Methods raise what the registry raises."""

    def __init__(self, registry: Registry, providers: Providers, readers: int = 1) -> None:
        """`readers`: how many accounts are read at a time, each in a thread of its own; with 1 there is no thread."""
        self.registry = registry
        self.store = registry.store
        self.providers = providers
        self._readers = readers
        self.objects = AccountObjects(registry.store)

    def now(self) -> float:
        """Unix seconds by the store's clock."""
        with store_errors(self.store):
            return self.store.now()

    def all(self) -> dict[str, AccountEntry]:
        """Every account by id, forgotten ones too. Reads each object that was not read before."""
        found = self._listed()
        if any(one.account is None and one.row.state != "forgotten" for one in found.values()):
            found = self._listed()  # an edit moves the object: use the newest entry
        return found

    def ids(self) -> list[str]:
        """Ids of all accounts that are not forgotten; reads none of them."""
        state = self.registry.read()
        return [key for key, row in state.accounts.items() if row.state != "forgotten"] if state else []

    def find(self, account: str) -> AccountEntry | None:
        """One account, forgotten or not; None if it was never registered."""
        state = self.registry.read()
        row = state.accounts.get(account) if state else None
        with store_errors(self.store):
            return AccountEntry(account, row, self.objects.load(account, row)) if row else None

    def of_person(self, owner: str, machine: str) -> str | None:
        """Id of a person's registered account that fits a machine, the one with the derived id first; None without any.

        `machine`: its kind, as relay/app/machine/env.py names it.
        """
        name = self.providers.named(machine).name
        at = {
            key: self.providers.named(one.account.provider).name
            for key, one in sorted(self.all().items())
            if one.account and same_person(one.account.owner, owner)
        }
        found = [key for key, provider in at.items() if provider == name]
        if name not in NOTEBOOKS:  # of other machines nothing is known
            found += [key for key, provider in at.items() if provider not in (name, *NOTEBOOKS)]
        derived = account_id(owner, name)
        return derived if derived in found else next(iter(found), None)

    def label_of(self, account: str) -> str:
        """Its label; its id if it is not registered."""
        found = self.find(account)
        return found.label if found else account

    def get(self, account: str) -> Account:
        """One account. Raises NoAccount or AccountForgotten (78), AccountDamaged (65)."""
        with store_errors(self.store):
            try:
                return self.objects.existing(self.registry.read(), account)
            except BadData:  # an edit moves the object: use the newest entry
                return self.objects.existing(self.registry.read(), account)

    def register(
        self, account: str, label: str, found: Inference, **details: str | float | None
    ) -> tuple[Account, bool]:
        """Add an account. Returns it, and whether it is new.

        Registering the same account again changes nothing, except that a lost or damaged object is restored. Only the
        person who trained as a forgotten account can register it again.

        Raises IdTaken (78) if the id has other fields, NotItsPerson (78), OneTooMany and Unsupported (77).
        """
        fields = {"label": label, "owner": found.owner or account, **details}
        blank = Account(id=check_name("account", account), label=account, owner=account, provider=found.provider)
        new = with_fields(blank, {key: value for key, value in fields.items() if value})

        def build(state: RegistryState) -> AnyChange:
            row = state.accounts.get(account)
            if row and row.state == "forgotten":
                return self._revived(state, new, row)
            if row and self.objects.load(account, row):
                raise _Known(self._same(state, new, found))
            self._check_policy(state, new)
            return self.objects.put(new, row, self._claim(state, new) if row and row.claims else None)

        try:
            self.registry.append("account", build)
        except _Known as known:
            return known.account, False
        return new, True

    def edit(self, account: str, **fields: str | float | None) -> Account:
        """Change some fields. Simultaneous edits of different fields are all kept.

        Raises BadConfig (78) for an unknown id or field, PolicyRefused (77).
        """
        if provider := fields.get("provider"):
            fields["provider"] = self.providers.named(str(provider)).name
        return self.change(account, lambda old: with_fields(old, fields))

    def change(self, account: str, make: Callable[[Account], Account]) -> Account:
        """Replace an account's object by `make` of the newest one. Raises as `edit` does."""
        edited: list[tuple[Account, Ref]] = []

        def build(state: RegistryState) -> AnyChange:
            old, row = self.objects.existing(state, account), state.accounts[account]
            new = make(old).model_copy(update={"revision": old.revision + 1})
            moved = (new.owner, new.provider) != (old.owner, old.provider)
            if moved:
                self._check_policy(state, new)
            edited.append((new, place_of(account, row)))
            return self.objects.put(new, row, self._claim(state, new) if moved and row.claims else None)

        self.registry.append("account", build)
        new, old_object = edited[-1]
        with suppress(StoreError):  # advisory: `forget` removes the rest
            self.store.delete(old_object)
        return new

    def claim(self, account: str) -> None:
        """Record once, before the account trains, its owner and provider.

        Raises BadConfig (78), PolicyRefused (77) if another account has trained as that person at that provider. This
        happens if it was registered while this account's object could not be read.
        """

        def build(state: RegistryState) -> AnyChange:
            found, row = self.objects.existing(state, account), state.accounts[account]
            claim = self._claim(state, found)
            if claim is None or claim in row.claims:
                raise _Known(found)
            self._check_policy(state, found, trained=True)
            return PutAccount(id=account, sha256=row.sha256, ref=row.ref, replaces=row.sha256, claim=claim)

        with suppress(_Known):
            self.registry.append("account", build)

    def set_status(self, account: str, state: Declared, until: float | None = None) -> float | None:
        """Declare a state, e.g. `quota_exceeded` until a time (store's clock).

        `quota_exceeded` without a time ends at the next known reset. Returns when the state ends, None if only by
        hand. Raises BadConfig (78).
        """
        ends: list[float | None] = []

        def build(current: RegistryState) -> AnyChange:
            row = row_of(current, account, self.store.address)
            ends.append(self._next_reset(account, row) if state == "quota_exceeded" and until is None else until)
            return SetStatus(id=account, state=state, until=ends[-1])

        self.registry.append("status", build)
        return ends[-1]

    def set_quota(self, account: str, reading: Reading) -> Account:
        """Store a quota reading. An older reading of the same minutes does not replace a newer one."""

        def newer(old: Account) -> Account:
            keep = old.quota is not None and 0 < old.quota.read_at - reading.read_at < AHEAD_S
            return old if keep else old.model_copy(update={"quota": reading})

        return self.change(account, newer)

    def forget(self, account: str) -> None:
        """Delete an account's objects. Its id stays in the runs that it trained, and its claims stay.

        Repeat it to remove an object that a simultaneous edit left. Raises BadConfig (78).
        """

        def build(current: RegistryState) -> AnyChange:
            row_of(current, account, self.store.address)
            return Forget(id=account)

        state = self.registry.read()
        if not state or account not in state.accounts or state.accounts[account].state != "forgotten":
            self.registry.append("forget", build)
        self.objects.clear(account)

    def _listed(self) -> dict[str, AccountEntry]:
        state = self.registry.read()
        rows = state.accounts if state else {}
        with store_errors(self.store):
            return {key: AccountEntry(key, rows[key], found) for key, found in self._loaded(rows).items()}

    def _loaded(self, rows: Mapping[str, Row]) -> dict[str, Account | None]:
        """The objects of several accounts, read side by side. Raises StoreError."""
        found = in_parallel(lambda item: self.objects.load(*item), rows.items(), self._readers)
        return dict(zip(rows, found, strict=True))

    def _claim(self, state: RegistryState, account: Account) -> Claim | None:
        """The claim to record; None if the provider does not limit accounts."""
        provider = self.providers.named(account.provider)
        return claim_of(state.store, provider.name, account.owner) if provider.accounts_per_owner is not None else None

    def _check_policy(self, state: RegistryState, new: Account, trained: bool = False) -> None:
        """Raises Unsupported or OneTooMany (77), by claims and present owners; `trained`: by claims only."""
        provider, claim = self.providers.named(new.provider), self._claim(state, new)
        check_supported(provider)
        if claim is None:
            return
        others = {key: row for key, row in state.accounts.items() if key != new.id}
        objects = {} if trained else self._loaded(others)
        now = {key: self._claim(state, found) for key, found in objects.items() if found}
        same = [key for key, row in others.items() if claim in row.claims or claim == now.get(key)]
        gone = [key for key in same if state.accounts[key].state == "forgotten"]
        check_accounts(provider, new.owner, new.label, same, gone)

    def _revived(self, state: RegistryState, new: Account, row: Row) -> PutAccount:
        """The change that restores a forgotten account. Raises NotItsPerson (78)."""
        claim = self._claim(state, new)
        if claim is None or claim not in row.claims:
            raise NotItsPerson(new.id)
        self._check_policy(state, new)
        return self.objects.put(new, row, claim)

    def _same(self, state: RegistryState, new: Account, found: Inference) -> Account:
        """The registered account, if `new` does not contradict it. Raises IdTaken (78)."""
        old = self.objects.existing(state, new.id)
        named = (found.owner_from == "--owner", found.provider_from == "--provider")
        if (named[0] and not same_person(old.owner, new.owner)) or contradicts(new, old, provider=named[1]):
            raise IdTaken(old)
        return old

    def _next_reset(self, account: str, row: Row) -> float | None:
        """The next reset (store's clock); None if neither the account nor its provider has one."""
        found = self.objects.load(account, row)
        reset = reset_of(found, self.providers.named(found.provider)) if found else None
        return reset.week(self.now())[1] if reset else None


class _Known(Exception):
    """There is nothing to change."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.id)
        self.account = account
