"""Replaces people's names in a report by account ids (`--redact`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay.app.redact import nameless
from relay.people.status import AccountRow, RunStatus

SHORTEST = 3
"""Shortest name that is replaced in texts; shorter ones occur inside ordinary words."""


def without_names(view: RunStatus) -> RunStatus:
    """Return the view with ids in place of labels and without personal data (`--redact`).

    A store's address can contain a user name, so only its scheme stays.
    """
    names, state = names_of(view.accounts), view.state
    rows = [replace(row, label=row.id, owner="", zone=None, availability=None) for row in view.accounts]
    accounts = tuple(replace(row, tier=nameless(row.tier, names), gpu=nameless(row.gpu, names)) for row in rows)
    if state is not None and state.halted:
        state = state.model_copy(update={"halted": nameless(state.halted, names)})
    return replace(view, accounts=accounts, store=kind_of(view.store), state=state)


def names_of(accounts: Sequence[AccountRow]) -> dict[str, str]:
    """Return {label or owner: account id}, as `nameless` takes them."""
    pairs = ((name, row.id) for row in accounts for name in (row.label, row.owner))
    return {name: key for name, key in pairs if len(name) >= SHORTEST and name != key}


def kind_of(address: str) -> str:
    """Return the scheme of an address: file:// for file:///home/ana/relay."""
    scheme, mark, _ = address.partition("://")
    return scheme + mark if mark else ""
