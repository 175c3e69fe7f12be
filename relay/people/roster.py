"""An account as the registry lists it; its row, or in words why there is none; reads no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.app.messages.advice import command
from relay.core.errors import BadConfig
from relay.core.ledger.registry import RegistryState, Row
from relay.core.names import nearest
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


def row_of(state: RegistryState | None, account: str, address: str) -> Row:
    """The row of an account that is registered and not forgotten. Raises BadConfig (78) with the nearest id."""
    rows = state.accounts if state else {}
    row = rows.get(account)
    if row and row.state != "forgotten":
        return row
    if row:
        raise BadConfig(
            f"Account {account} was forgotten. Whoever trained as it may register it again; everybody else registers "
            f"another id."
        )
    raise BadConfig(_unknown(rows, account, address))


def _unknown(rows: Mapping[str, Row], account: str, address: str) -> str:
    known = [key for key, other in rows.items() if other.state != "forgotten"]
    near = nearest(account, known)
    hint = f"Did you mean {near}?" if near else f"Registered are: {', '.join(sorted(known)[:10]) or 'none'}."
    return (
        f"No account {account} is registered in {address}. {hint} Register it with "
        f"`{command(f'register {account} LABEL')}`."
    )
