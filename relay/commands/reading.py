"""Opens a run's stores for reading only, and reads what status, report and next show; writes nothing (P1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relay.accounts import Accounts
from relay.commands.common import App
from relay.config import Resolved
from relay.errors import BadData
from relay.ledger import RunLedger
from relay.log.entry import NewerFormat
from relay.log.heartbeat import sign_of_life
from relay.log.state import RunState
from relay.machine.skew import timed
from relay.names import Names
from relay.people.standing import Standing, rows
from relay.policy import shipped
from relay.registry import Registry
from relay.runs.identity import Opened, Pair, open_run, require_run
from relay.runs.storeid import parse_address
from relay.runs.whereabouts import absent, missing
from relay.status import View, without_names
from relay.text.redact import redact
from relay.text.trouble import speaking
from storage.base import Store, open_store
from storage.retry import RetryStore

LOG = logging.getLogger("relay.session")


def open_stores(app: App, resolved: Resolved[Any], read_only: bool) -> Pair:
    """Clients that ask again when a store is silent."""
    ledger, checkpoints = parse_address(resolved.ledger_url), parse_address(resolved.checkpoint_url)
    first = connect(app, ledger.url, read_only)
    return Pair(
        first,
        first if ledger.url == checkpoints.url else connect(app, checkpoints.url, read_only),
        app.runtime,
        app.session,
        ledger.id,
        checkpoints.id,
    )


def require(app: App, resolved: Resolved[Any], read_only: bool = True) -> tuple[Opened, Pair]:
    """The run, its identity checked, and its stores. Raises BadConfig (78) if it has not begun."""
    stores, settings = open_stores(app, resolved, read_only), resolved.settings
    opened = require_run(stores, settings.project, settings.run)
    return opened, stores


@dataclass(frozen=True)
class Overview:
    """A run as people see it, and what was read for that."""

    view: View
    known: Accounts
    runs: Sequence[Standing]
    """All runs of the store; the one asked for, if it has begun, first."""


def look(app: App, resolved: Resolved[Any], redacted: bool = False) -> View:
    """The run as it is now, whether or not it or its store exists; other runs are read for what accounts gave them."""
    return overview(app, resolved, redacted).view


def overview(app: App, resolved: Resolved[Any], redacted: bool = False) -> Overview:
    """As `look`, with what was read on the way. `redacted`: the view is one that strangers may see."""
    return overview_in(open_stores(app, resolved, read_only=True), app, resolved, redacted)


def overview_in(stores: Pair, app: App, resolved: Resolved[Any], redacted: bool = False) -> Overview:
    """The same, through clients that are open already."""
    settings = resolved.settings
    opened = open_run(stores, settings.project, settings.run)
    known = accounts(stores)
    others = other_runs(known.registry, Names(settings.project, settings.run), app)
    with speaking(stores.ledger):
        now, ahead = timed(stores.ledger, stores.runtime)
        mine = [standing(opened.view.state, stores.ledger)] if opened else []
        runs = [*mine, *(standing(state, stores.ledger) for state in others)]
    run_id = opened.view.state.run_id if opened else None
    view = View(
        project=settings.project,
        run=settings.run,
        target_steps=settings.target_steps or app.kind.target(resolved.workload),
        now=now,
        state=opened.view.state if opened else None,
        sign_of_life=mine[0].heartbeat if mine else None,
        accounts=tuple(rows(known.all(), runs, known.providers, now, run_id)),
        clock_is_local=stores.ledger.clock_is_local,
        skew_s=ahead,
        store=redact(stores.ledger.address),
        missing="" if opened else missing_run(stores.ledger, known.registry, settings.project, settings.run),
    )
    return Overview(without_names(view) if redacted else view, known, runs)


def missing_run(store: Store, registry: Registry, project: str, run: str) -> str:
    """What the store holds instead of a run that has not begun in it."""
    return missing(project, run, registry.runs(), absent(store.address))


def standing(state: RunState, store: Store) -> Standing:
    """A run's state with its holder's newest sign of life. Raises StoreError."""
    names, holder = Names(state.project, state.run), state.holder
    return Standing(state, sign_of_life(store, names, holder.epoch, holder.beat) if holder else None)


def other_runs(registry: Registry, mine: Names, app: App) -> Iterator[RunState]:
    """Newest states of all other registered runs; one that is damaged or too new is its own trouble."""
    for project, run in registry.runs():
        if (project, run) == (mine.project, mine.run):
            continue
        try:
            view = RunLedger(registry.store, project, run, app.runtime).peek()
        except (BadData, NewerFormat) as error:
            LOG.warning("run %s/%s cannot be read: %s", project, run, error)
            continue
        if view is not None:
            yield view.state


def accounts(stores: Pair) -> Accounts:
    """The registered accounts."""
    return Accounts(stores.registry(), shipped())


def label_of(known: Accounts, account: str) -> str:
    """What to call it; its id for an account that nobody registered."""
    found = known.find(account)
    return found.label if found else account


def connect(app: App, url: str, read_only: bool = False) -> Store:
    """A client that asks again when the store is silent."""
    return patient(app, open_store(url, read_only=read_only))


def patient(app: App, store: Store) -> Store:
    """The store, asked again when it is silent; the back-off is spread by the runtime's chance."""
    return RetryStore(store, sleep=app.runtime.sleep, jitter=lambda: int(app.runtime.token()[:8], 16) / 2**32)
