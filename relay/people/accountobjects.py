"""The objects of accounts in a store, one each, every edit under a name of its own (P12); decides nothing of them."""

from __future__ import annotations

from contextlib import suppress

from relay.core.errors import BadData, store_errors
from relay.core.ledger.canonical import digest
from relay.core.ledger.fields import Claim
from relay.core.ledger.registry import PutAccount, RegistryState, Row
from relay.people.account import MAX_BYTES, Account, decode, encode, folder_of, object_name
from relay.people.roster import row_of
from storage.base import Missing, Ref, Store, TooLong


class AccountDamaged(BadData):
    """The object of a registered account is missing, or not what the registry promised."""

    def __init__(self, address: str, account: str) -> None:
        super().__init__(f"{address}: the object of account {account} is missing or damaged.")
        self.address, self.account = address, account


class AccountObjects:
    """Reads each object once. Methods raise StoreError where nothing else is said."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._read: dict[str, Account] = {}

    def load(self, account: str, row: Row) -> Account | None:
        """The account's object; None if forgotten, missing or not what the registry promised."""
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
        """The same of one that is registered. Raises NoAccount, AccountForgotten (78) or AccountDamaged (65)."""
        found = self.load(account, row_of(state, account, self.store.address))
        if found is None:
            raise AccountDamaged(self.store.address, account)
        return found

    def put(self, account: Account, row: Row | None, claim: Claim | None) -> PutAccount:
        """Store it beside the one of `row`; the change that makes it the account's."""
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
    """Where an account's own object is."""
    return Ref(row.ref or object_name(account, row.sha256))
