"""Opens a run's stores for reading only, and reads what status, report and next show; writes nothing (P1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from relay.accounts import Accounts, Listed
from relay.commands.common import App
from relay.config import Resolved
from relay.heartbeat import sign_of_life
from relay.ledger import RunLedger
from relay.policy import shipped
from relay.registry import Registry
from relay.state import RunState, Usage
from relay.status import AccountRow, View
from storage.base import Store, open_store
from storage.retry import RetryStore


@dataclass(frozen=True)
class Stores:
    """Both stores of a run; one object where they are the same."""

    ledger: Store
    checkpoints: Store


def open_stores(app: App, resolved: Resolved[Any], read_only: bool) -> Stores:
    """Clients that ask again when a store is silent."""
    connect = partial(_connect, app, read_only)
    ledger = connect(resolved.ledger_url)
    same = resolved.ledger_url == resolved.checkpoint_url
    return Stores(ledger, ledger if same else connect(resolved.checkpoint_url))


def reading_ledger(app: App, resolved: Resolved[Any]) -> tuple[RunLedger, Stores]:
    """The run's ledger on stores that refuse to write."""
    stores = open_stores(app, resolved, read_only=True)
    settings = resolved.settings
    return RunLedger(stores.ledger, settings.project, settings.run, app.runtime), stores


def look(app: App, resolved: Resolved[Any]) -> View:
    """The run as it is now, whether or not it or its store exists."""
    ledger, stores = reading_ledger(app, resolved)
    found = ledger.peek()
    state = found.state if found else None
    life = sign_of_life(stores.ledger, ledger.names, state.epoch) if state and state.holder else None
    settings = resolved.settings
    return View(
        project=settings.project,
        run=settings.run,
        target_steps=settings.target_steps or app.kind.target(resolved.workload),
        now=app.runtime.wall(),
        state=state,
        sign_of_life=life,
        accounts=tuple(rows(accounts(app, stores).all(), state)),
    )


def accounts(app: App, stores: Stores) -> Accounts:
    """The registered accounts."""
    return Accounts(Registry(stores.ledger, app.runtime, session=app.runtime.token()), shipped())


def rows(listed: dict[str, Listed], state: RunState | None) -> list[AccountRow]:
    """Registered accounts, then those that trained without being registered any more; what each gave to this run."""
    usage = state.usage if state else {}
    active = state.holder.account if state and state.holder else None
    known = {key: item for key, item in listed.items() if item.row.state != "forgotten"}
    names = [*known, *(key for key in usage if key not in known)]
    return [_row(name, known.get(name), usage.get(name, Usage()), active) for name in names]


def _row(name: str, listed: Listed | None, given: Usage, active: str | None) -> AccountRow:
    state = "active" if name == active else listed.row.state if listed else "forgotten"
    label = listed.label if listed else name
    return AccountRow(name, label, state, given.steps, given.sessions, given.seconds)


def _connect(app: App, read_only: bool, url: str) -> Store:
    """Back-off is spread by chance that comes from the runtime."""
    store = open_store(url, read_only=read_only)
    return RetryStore(store, sleep=app.runtime.sleep, jitter=lambda: int(app.runtime.token()[:8], 16) / 2**32)
