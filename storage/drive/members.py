"""The Drive accounts of a store: what Drive tells of ours, who takes part, and changing the way of the store's logs."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from storage.contract import BadAddress, Exists, QuotaExceeded, StoreError
from storage.drive.client import Client
from storage.drive.directory import Directory, Reserves, Table
from storage.drive.errors import NotOurs, UsedUp
from storage.retry import patiently

_ATTEMPTS = 5


class Account:
    """Asked again by itself, for no wrapper knows of it. All methods raise StoreErrors."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def quota(self) -> tuple[int, int | None]:
        """Bytes used and bytes allowed; None where nothing is said to limit it."""
        about = self._about("asking for the free space", "storageQuota")
        with self._client.telling("asking for the free space"):
            quota = about.get("storageQuota", {})
            return int(quota.get("usage", 0)), int(quota["limit"]) if "limit" in quota else None

    def digest(self) -> str:
        """Of who this is to Drive; says nothing to people and is the same on every machine."""
        about = self._about("asking who this is", "user(permissionId)")
        with self._client.telling("asking who this is"):
            return hashlib.sha256(str(about["user"]["permissionId"]).encode()).hexdigest()[:32]

    @contextmanager
    def explaining_quota(self) -> Iterator[None]:
        """A full Drive says how full it is, if it may be asked."""
        try:
            yield
        except QuotaExceeded as error:
            try:
                used, limit = self.quota()
            except StoreError:
                raise error from None
            of = f"of {limit / 1e9:.2f} GB are" if limit else "GB are"
            raise QuotaExceeded(f"{error} {used / 1e9:.2f} {of} used.") from error

    def _about(self, what: str, fields: str) -> Any:
        return patiently(
            lambda: self._client.ask(what, lambda drive: drive.about().get(fields=fields)),
            sleep=time.sleep,
            jitter=random.random,
            attempts=_ATTEMPTS,
        )


Verdict = Literal["began", "chain", "bound"]
"""began: made the store. chain: ids that another account asked for serve this one. bound: they do not."""


class Joins(Reserves, Protocol):
    """The store as one account has it."""

    directory: Directory

    def account(self) -> str: ...

    def credentials_source(self) -> str: ...


@dataclass(frozen=True)
class Membership:
    """What is known of the Drive accounts of a store."""

    way: str
    """How its logs go on: 'chain' or 'newest'."""
    accounts: dict[str, str]
    """Verdict by the digest of an account."""
    source: str
    """Where our credentials come from, never what they are."""

    @property
    def lines(self) -> list[str]:
        """For people: what holds, and what nobody has tried."""
        way = {"chain": "a chain of ids", "newest": "compare-and-set of one file"}[self.way]
        said = [f"log: {way}; {len(self.accounts)} Drive account{'s' if len(self.accounts) != 1 else ''}"]
        if len(self.accounts) > 1:
            bound = sum(verdict == "bound" for verdict in self.accounts.values())
            tried = f"ids do not serve {bound} of them" if bound else "ids of one served the others when they joined"
            said.append(f"several Drive accounts are experimental: {tried}; races between accounts are unproven")
        return said


def join(store: Joins) -> str:
    """The verdict on this account, tried now if it is new here, and recorded in the directory.

    Raises BadAddress (78) with what a member can do, if this account can write to no log.
    """
    table, me = store.directory.table(), store.account()
    if me in table.members:
        return table.members[me]
    verdict = _probe(store, table, me)
    if verdict == "bound" and store.directory.own_way == "chain":
        raise BadAddress(
            f"{store.address}: Google does not let this account write at ids that another account's client asked for, "
            f"and the store goes that way. Ask a member to run `python -m storage.drive newest {store.address}` once, "
            "then one session or command that writes; or use the members' own token."
        )

    def joined(table: Table) -> Table | None:
        if me in table.members:
            return None
        return replace(table, members={**table.members, me: verdict}, spare=store.reserve(1)[0], by=me)

    return store.directory.change(joined).members[me]


def go_on_by_newest(store: Joins) -> None:
    """From its next entry on, each log is one file replaced by compare-and-set; the directory at once."""
    store.directory.change(lambda table: None if table.way == "newest" else replace(table, way="newest"))


def membership(store: Joins) -> Membership:
    """As the directory has it. Raises StoreError."""
    table = store.directory.table()
    return Membership(table.way, dict(table.members), store.credentials_source())


def _probe(store: Joins, table: Table, me: str) -> Verdict:
    """Create a small file at the id that a member published for this; it stays for ever."""
    if table.spare is None:
        return "chain"
    try:
        store.create(table.spare, f"directory/joined-{me}", b"joined")
    except NotOurs:
        return "bound"
    except (Exists, UsedUp):
        pass  # another newcomer's, perhaps deleted since, or our own sent twice: no reason against us
    return "chain"
