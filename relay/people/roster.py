"""An account as the registry lists it, and its row; reads no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.core.errors import BadConfig
from relay.core.ledger.registry import RegistryState, Row
from relay.people.account import Account


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
