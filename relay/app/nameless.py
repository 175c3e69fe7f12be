"""What a report for strangers shows of a run (`--redact`): ids in place of people's names; reads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay.app.redact import nameless
from relay.people.status import AccountRow, View

SHORTEST = 3
"""Letters of a name that is looked for in what people wrote: a shorter one stands in ordinary words."""


def without_names(view: View) -> View:
    """The view for a report that strangers may read (`--redact`): ids in place of labels, nothing of any person.

    A store's address may hold a user's name: only its kind stays.
    """
    names, state = names_of(view.accounts), view.state
    rows = [replace(row, label=row.id, owner="", zone=None, availability=None) for row in view.accounts]
    accounts = tuple(replace(row, tier=nameless(row.tier, names), gpu=nameless(row.gpu, names)) for row in rows)
    if state is not None and state.halted:
        state = state.model_copy(update={"halted": nameless(state.halted, names)})
    return replace(view, accounts=accounts, store=kind_of(view.store), state=state)


def names_of(accounts: Sequence[AccountRow]) -> dict[str, str]:
    """Labels and owners by the id that stands for them, as `nameless` takes them."""
    pairs = ((name, row.id) for row in accounts for name in (row.label, row.owner))
    return {name: key for name, key in pairs if len(name) >= SHORTEST and name != key}


def kind_of(address: str) -> str:
    """file:// of file:///home/ana/relay."""
    scheme, mark, _ = address.partition("://")
    return scheme + mark if mark else ""
