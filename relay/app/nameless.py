"""Replaces people's names in a report or a page by account ids (`--redact`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relay.app.messages.wording import printable
from relay.app.redact import nameless
from relay.core.ledger.frozen import NOTE
from relay.people.status import AccountRow, RunStatus

FIXED = frozenset(
    {
        "schema", "phase", "kind", "state", "group", "certified", "source", "clock", "project",
        "run", "account", "after", "next", "id", "better", "form",
    }
)  # fmt: skip
"""Fields of a page's document that hold the program's own words, ids, or names of runs: a person's label may equal one.
"""
PATH = re.compile(r"(?<![^\s\"'=:,(\[])(?:~|[A-Za-z]:)?[/\\][^\s\"',)\]]+")
"""An absolute path in a setting: it may contain a login name."""
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


def public_page(document: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a page's document without names of people, without notes, which are free text, and without paths.

    `names`: {name: replacement}, as they are stored; the page shows them without invisible characters.
    """
    shown = {printable(name): key for name, key in names.items()}
    known = {name: key for name, key in {**shown, **names}.items() if len(name) >= SHORTEST and name != key}
    found: dict[str, Any] = _walk(document, known)
    for one in found.get("notes", ()):
        one["text"] = None
    for one in found.get("incidents", ()):
        if one["cause"] == NOTE:
            one["text"] = "A note, left out here."
    for row in found.get("sessions", ()):
        if row.get("report"):
            row["report"]["incidents"] = [one for one in row["report"]["incidents"] if not one.startswith(f"{NOTE}:")]
    if "settings" in found:
        found["settings"] = [
            [key, *(PATH.sub("(a path)", text) for text in texts)] for key, *texts in found["settings"]
        ]
    for one in found.get("differences", ()):
        one["values"] = [PATH.sub("(a path)", text) for text in one["values"]]
    return found


def _walk(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: item if key in FIXED and _plain(item) else _walk(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, names) for item in value]
    return nameless(value, names)


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str)
