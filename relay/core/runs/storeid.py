"""Which store this is: addresses that name an identity, and the object in a store that says it (P3); knows no runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from relay.core.clock import Runtime
from relay.core.errors import BadConfig, BadData, store_errors
from relay.core.ledger.canonical import NotCanonical, dumps, loads
from relay.core.ledger.fields import Id, Strict
from relay.core.names import FRAGMENT, IDENTITY
from storage.base import Exists, Missing, Store, TooLong

LIMIT = 1000


class StoreIdentity(Strict):
    """The object that says which store this is."""

    format: Literal[1] = 1
    id: Id


@dataclass(frozen=True)
class Address:
    """Where a store is and, if the address says so, which one it must be."""

    url: str
    id: str | None = None

    def __str__(self) -> str:
        return self.url + (FRAGMENT + self.id if self.id else "")


class BadIdentity(BadConfig):
    """What an address says of the store's identity cannot be one."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}: what follows {FRAGMENT} must be 32 hexadecimal digits.")
        self.text = text


class IdentityDamaged(BadData):
    """The object that says which store this is cannot be read as one."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address}: {IDENTITY} is damaged, so nobody can tell which store this is.")
        self.address = address


def parse_address(text: str) -> Address:
    """Split `file:///x#id=<32 hex>`. Raises BadIdentity (78)."""
    url, mark, identity = text.partition(FRAGMENT)
    if not mark:
        return Address(text)
    if len(identity) != 32 or set(identity) - set("0123456789abcdef"):
        raise BadIdentity(text)
    return Address(url, identity)


def read_identity(store: Store) -> str | None:
    """The store's identity, or None if nothing was begun in it. Raises IdentityDamaged (65)."""
    with store_errors(store):
        try:
            data = store.get(store.ref(IDENTITY), limit=LIMIT)
        except Missing:
            return None
        except TooLong:
            data = b""
    try:
        loads(data, LIMIT)
        return StoreIdentity.model_validate_json(data).id
    except (NotCanonical, ValidationError) as error:
        raise IdentityDamaged(store.address) from error


def begin_store(store: Store, runtime: Runtime) -> str:
    """The store's identity, given to it now if it has none."""
    found = read_identity(store)
    if found:
        return found
    with store_errors(store), suppress(Exists):  # somebody else's, or our own re-sent: the stored one counts
        store.put_if_absent(IDENTITY, dumps(StoreIdentity(id=runtime.token()).model_dump(mode="json")))
    found = read_identity(store)
    if found is None:
        raise BadData(f"{store.address}: {IDENTITY} was written and is not there. The storage loses files.")
    return found


def begins_by_itself(store: Store) -> bool:
    """Whether a run may begin without `init`: only where nobody else can have meant another store."""
    return urlsplit(store.address).scheme in ("file", "memory", "")
