"""Opens the stores that the settings name, for reading or for writing."""

from __future__ import annotations

from typing import Any

from relay.app.commands.common import App, say
from relay.app.messages.wording import duration
from relay.app.providers import shipped
from relay.core.ledger.passing import Look
from relay.core.ledger.state import RunState
from relay.core.runs.opening import (
    Address,
    Pair,
    begin_store,
    begins_by_itself,
    ensure_tested,
    parse_address,
    read_identity,
)
from relay.core.runs.registered import READERS
from relay.core.settings.config import Resolved
from relay.people.accounts import Accounts
from storage.base import Store, open_store
from storage.retry import RetryStore


def open_stores(app: App, resolved: Resolved[Any], read_only: bool) -> Pair:
    """Return clients that retry when a store does not answer."""
    ledger, checkpoints = parse_address(resolved.ledger_url), parse_address(resolved.checkpoint_url)
    first = connect(app, ledger.url, read_only)
    return Pair(
        first,
        first if ledger.url == checkpoints.url else connect(app, checkpoints.url, read_only),
        app.runtime,
        app.session,
        ledger.id,
        checkpoints.id,
        resolved.settings.lease.ttl_s,
        _Waiting(),
    )


def once(app: App, resolved: Resolved[Any]) -> Pair:
    """Return read-only clients that ask a store once and do not retry."""
    ledger, checkpoints = parse_address(resolved.ledger_url), parse_address(resolved.checkpoint_url)
    first = open_store(ledger.url, read_only=True)
    second = first if ledger.url == checkpoints.url else open_store(checkpoints.url, read_only=True)
    return Pair(first, second, app.runtime, app.session, ledger.id, checkpoints.id)


class _Waiting:
    """Prints one line for each slot of a log that is read again while a command waits."""

    def __init__(self) -> None:
        self._told = -1

    def __call__(self, look: Look) -> None:
        if look.last != self._told:
            self._told = look.last
            say(
                f"Slot {look.last} of the log cannot be read. Reading it again for {duration(look.left_s)} before "
                f"passing over it."
            )


def accounts(stores: Pair) -> Accounts:
    """Return the registered accounts."""
    return Accounts(stores.registry(), shipped(), READERS)


def writing_accounts(app: App, resolved: Resolved[Any]) -> Accounts:
    """Return the accounts for writing; a store that may begin by itself begins now."""
    stores = open_stores(app, resolved, read_only=False)
    known = accounts(stores)
    ensure_tested(stores.ledger, app.runtime)
    if begins_by_itself(stores.ledger):
        known.registry.begin(begin_store(stores.ledger, app.runtime))
    return known


def addresses_of(resolved: Resolved[Any], state: RunState) -> tuple[str, str]:
    """Return the addresses of a run's ledger and checkpoints for other machines; each includes the id of its store."""
    ledger, checkpoints = (parse_address(url).url for url in (resolved.ledger_url, resolved.checkpoint_url))
    return str(Address(ledger, state.ledger_store)), str(Address(checkpoints, state.checkpoint_store))


def connect(app: App, url: str, read_only: bool = False) -> Store:
    """Return a client that retries when the store does not answer."""
    return patient(app, open_store(url, read_only=read_only))


def bare_client(app: App, url: str) -> Store:
    """Return a client without retries, after reading the store once with retries.

    The first write could come while a share is unmounted. A client that has never seen the store would then create a
    new one in its place.
    """
    store = open_store(url)
    read_identity(patient(app, store))
    return store


def patient(app: App, store: Store) -> Store:
    """Wrap the store so that it retries when it does not answer. The runtime's random numbers spread the back-off."""
    return RetryStore(store, sleep=app.runtime.sleep, jitter=lambda: int(app.runtime.token()[:8], 16) / 2**32)
