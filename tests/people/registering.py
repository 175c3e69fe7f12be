"""Registers accounts for tests, and lets two people change one at once; no threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay.app.providers import shipped
from relay.core.ledger.registry import PutAccount, Registry, Row
from relay.people.account import Account
from relay.people.accounts import Accounts
from relay.people.owners import infer
from relay.people.policy import Providers
from storage.base import Store
from tests.core.making import QuietRuntime, id_of


def accounts(store: Store, number: int = 1) -> Accounts:
    registry = Registry(store, QuietRuntime(number), session=id_of(number))
    registry.begin(id_of(5))
    return Accounts(registry, shipped())


def register(known: Accounts, account: str, label: str, login: str = "maria", **flags: Any) -> tuple[Account, bool]:
    found = infer(label, flags.pop("owner", None), flags.pop("provider", None), {}, login, shipped())
    return known.register(account, label, found, **flags)


class Meeting(Accounts):
    """Runs `meanwhile` once, between building a change and sending it."""

    meanwhile: Callable[[], object] | None = None

    def __init__(self, registry: Registry, providers: Providers) -> None:
        super().__init__(registry, providers)
        put = self.objects.put

        def interrupted(account: Account, row: Row | None, claim: str | None) -> PutAccount:
            change = put(account, row, claim)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile:
                meanwhile()
            return change

        self.objects.put = interrupted  # type: ignore[method-assign]


def meeting(store: Store) -> Meeting:
    return Meeting(Registry(store, QuietRuntime(9), session=id_of(9)), shipped())
