"""The Drive accounts of a store: quota, members, and the change of how the store's logs go on."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from storage.contract import BadAddress, Exists, QuotaExceeded, StoreError
from storage.drive.client import DriveClient
from storage.drive.directory import Directory, Reserves, Table
from storage.drive.errors import NotOurs, UsedUp
from storage.retry import patiently
from storage.wording import counted

_ATTEMPTS = 5


class Account:
    """Repeats its own requests, as no wrapper does it. All methods raise StoreErrors."""

    def __init__(self, client: DriveClient) -> None:
        self._client = client

    def quota(self) -> tuple[int, int | None]:
        """Bytes used and bytes allowed; None if Drive names no limit."""
        about = self._about("asking for the free space", "storageQuota")
        with self._client.translating("asking for the free space"):
            quota = about["storageQuota"]
            return int(quota["usage"]), int(quota["limit"]) if "limit" in quota else None

    def digest(self) -> str:
        """Digest of the account's permission id; reveals no name, and is the same on every machine."""
        about = self._about("asking who this is", "user(permissionId)")
        with self._client.translating("asking who this is"):
            return hashlib.sha256(str(about["user"]["permissionId"]).encode()).hexdigest()[:32]

    @contextmanager
    def explaining_quota(self) -> Iterator[None]:
        """Adds to QuotaExceeded how full the Drive is, if that can be read."""
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
"""began: made the store. chain: it can use ids that another account requested. bound: it cannot."""


class Joins(Reserves, Protocol):
    """The store as one account uses it."""

    directory: Directory

    def account(self) -> str: ...

    def credentials_source(self) -> str: ...


@dataclass(frozen=True)
class Membership:
    """What is known of a store's Drive accounts."""

    way: str
    """How the logs go on: 'chain' or 'newest'."""
    accounts: dict[str, str]
    """Verdict by the digest of an account."""
    source: str
    """Source of our credentials, never their content."""

    @property
    def lines(self) -> list[str]:
        """Text lines: facts, and limits that are untested."""
        way = {"chain": "a chain of ids", "newest": "compare-and-set of one file"}[self.way]
        said = [f"log: {way}; {counted(len(self.accounts), 'Drive account')}"]
        if len(self.accounts) > 1:
            bound = sum(verdict == "bound" for verdict in self.accounts.values())
            tried = f"ids do not serve {bound} of them" if bound else "ids of one served the others when they joined"
            said.append(f"several Drive accounts are experimental: {tried}; races between accounts are unproven")
        return said


def join(store: Joins) -> str:
    """The verdict on this account: tested now if the account is new here, and recorded in the directory.

    Raises BadAddress (78), with advice for a member, if this account cannot write to any log.
    """
    table, me = store.directory.table(), store.account()
    if me in table.members:
        return table.members[me]
    verdict = _probe(store, table, me)
    if verdict == "bound" and store.directory.own_way == "chain":
        raise BadAddress(
            f"{store.address}: Google refuses this account ids that another account's client requested, "
            f"which this store uses. Ask a member to run `python -m storage.drive newest {store.address}` once, "
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
    """The accounts recorded in the directory. Raises StoreError."""
    table = store.directory.table()
    return Membership(table.way, dict(table.members), store.credentials_source())


def _probe(store: Joins, table: Table, me: str) -> Verdict:
    """Create a small file at the id that a member published for this; the file stays for ever."""
    if table.spare is None:
        return "chain"
    try:
        store.create(table.spare, f"directory/joined-{me}", b"joined")
    except NotOurs:
        return "bound"
    except (Exists, UsedUp):
        pass  # by another new account, perhaps deleted since, or ours sent twice: no proof against this account
    return "chain"
