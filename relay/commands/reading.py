"""Opens a run's stores for reading only, and reads what status, report and next show; writes nothing (P1)."""

from __future__ import annotations

from typing import Any

from relay.accounts import Accounts, Listed
from relay.commands.common import App
from relay.config import Resolved
from relay.heartbeat import sign_of_life
from relay.identity import Opened, Pair, open_run, parse_address, require_run
from relay.policy import shipped
from relay.registry import Registry
from relay.state import RunState, Usage
from relay.status import AccountRow, View
from storage.base import Store, open_store
from storage.retry import RetryStore


def open_stores(app: App, resolved: Resolved[Any], read_only: bool) -> Pair:
    """Clients that ask again when a store is silent."""
    ledger, checkpoints = parse_address(resolved.ledger_url), parse_address(resolved.checkpoint_url)
    first = connect(app, ledger.url, read_only)
    return Pair(first, first if ledger.url == checkpoints.url else connect(app, checkpoints.url, read_only), ledger.id)


def require(app: App, resolved: Resolved[Any], read_only: bool = True) -> tuple[Opened, Pair]:
    """The run, its identity checked, and its stores. Raises BadConfig (78) if it has not begun."""
    stores, settings = open_stores(app, resolved, read_only), resolved.settings
    opened = require_run(stores, settings.project, settings.run, app.runtime, session=app.session)
    return opened, stores


def look(app: App, resolved: Resolved[Any]) -> View:
    """The run as it is now, whether or not it or its store exists."""
    stores, settings = open_stores(app, resolved, read_only=True), resolved.settings
    opened = open_run(stores, settings.project, settings.run, app.runtime, session=app.session)
    state = opened.view.state if opened else None
    life = sign_of_life(stores.ledger, opened.names, state.epoch) if opened and state and state.holder else None
    return View(
        project=settings.project,
        run=settings.run,
        target_steps=settings.target_steps or app.kind.target(resolved.workload),
        now=app.runtime.wall(),
        state=state,
        sign_of_life=life,
        accounts=tuple(rows(accounts(app, stores).all(), state)),
    )


def accounts(app: App, stores: Pair) -> Accounts:
    """The registered accounts."""
    return Accounts(Registry(stores.ledger, app.runtime, session=app.session), shipped())


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


def connect(app: App, url: str, read_only: bool = False) -> Store:
    """A client that asks again when the store is silent; its back-off is spread by the runtime's chance."""
    store = open_store(url, read_only=read_only)
    return RetryStore(store, sleep=app.runtime.sleep, jitter=lambda: int(app.runtime.token()[:8], 16) / 2**32)
