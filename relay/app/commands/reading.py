"""Reads a run for status, report and next; writes nothing (P1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relay.app.commands.common import App
from relay.app.commands.joining import adopt, run_target
from relay.app.commands.stores import accounts, open_stores
from relay.app.machine.skew import timed
from relay.app.messages.errors import paragraph
from relay.app.messages.whereabouts import missing
from relay.app.messages.wording import counted
from relay.app.nameless import SHORTEST, kind_of, without_names
from relay.app.redact import redact
from relay.core.errors import BadData, store_errors
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Link, RunState
from relay.core.names import Names
from relay.core.runs.opening import Pair, absent, open_run, unknown_run
from relay.core.runs.registered import Standing, other_runs, standings
from relay.core.settings.config import Resolved
from relay.people.accounts import Accounts
from relay.people.status import RunStatus
from relay.people.usage import rows


@dataclass(frozen=True)
class Overview:
    """The view of a run, and the data that were read for it."""

    view: RunStatus
    known: Accounts
    runs: Sequence[Standing]
    """All runs of the store. The run that was asked for comes first, if it has begun."""


def look(app: App, resolved: Resolved[Any], redacted: bool = False) -> RunStatus:
    """Return the current view of the run, also if the store holds no run at all or does not exist.

    Other runs are read for the steps that each account trained in them.
    """
    return overview(app, resolved, redacted).view


def overview(app: App, resolved: Resolved[Any], redacted: bool = False, of_people: bool = False) -> Overview:
    """As `look`, but also return the data that were read. `redacted`: the view contains no names of people.

    `of_people`: accounts are shown, so the run need not exist.
    """
    return overview_in(open_stores(app, resolved, read_only=True), app, resolved, redacted, of_people=of_people)


def overview_in(
    stores: Pair,
    app: App,
    resolved: Resolved[Any],
    redacted: bool = False,
    people: bool = True,
    of_people: bool = False,
) -> Overview:
    """As `overview`, with clients that are open already. Without `people` no account and no other run is read.

    Raises UnknownRun (78) if the store holds other runs but not this one, unless the caller shows only accounts.
    """
    settings = resolved.settings
    names = settings.project, settings.run
    opened = open_run(stores, *names)
    adopt(app, resolved, opened, stores.ledger)
    known = accounts(stores)
    registered = [] if opened else known.registry.runs()
    if registered and not of_people:
        raise unknown_run(stores, *names, registered)
    others = other_runs(known.registry, Names(*names), app.runtime) if people else []
    with store_errors(stores.ledger):
        now, ahead = timed(stores.ledger, stores.runtime)
        mine = standings([opened.view.state] if opened else [], stores.ledger)
        runs = [*mine, *standings(others, stores.ledger)]
    run_id = opened.view.state.run_id if opened else None
    view = RunStatus(
        project=settings.project,
        run=settings.run,
        target_steps=run_target(app, resolved, opened, stores.ledger),
        now=now,
        state=opened.view.state if opened else None,
        sign_of_life=mine[0].heartbeat if mine else None,
        accounts=tuple(rows(known.all(), runs, known.providers, now, run_id)) if people else (),
        clock_is_local=stores.ledger.clock_is_local,
        skew_s=ahead,
        store=redact(stores.ledger.address),
        by_script=app.by_script,
        missing="" if opened else missing(*names, registered, absent(stores.ledger.address)),
    )
    return Overview(without_names(view) if redacted else view, known, runs)


def names_in(stores: Pair) -> dict[str, str]:
    """Return the labels and owners of all accounts and the addresses of the stores, with their replacements."""
    names = {store.address: kind_of(store.address) for store in stores.both}
    for key, listed in accounts(stores).all().items():
        owner = listed.account.owner if listed.account else key
        names |= {name: key for name in (listed.label, owner) if len(name) >= SHORTEST and name != key}
    return names


def every_link(ledger: RunLedger, state: RunState) -> tuple[tuple[Link, ...], str]:
    """Return all sessions, oldest first, and a message if some of them cannot be read."""
    try:
        return (*ledger.archived_links(state), *state.links), ""
    except BadData as error:
        lost = state.links_total - len(state.links)
        return state.links, f"{counted(lost, 'older session')} cannot be listed: {paragraph(error)}"
