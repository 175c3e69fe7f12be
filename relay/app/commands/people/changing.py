"""`accounts edit`, `rename`, `mark`, `pause`, `retire`, `forget`: what people change of an account; decides nothing."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.common import App, ConfigOption, JsonOption, emit, say, surroundings
from relay.app.commands.people.fields import (
    AccountId,
    AtProvider,
    Availability,
    Contact,
    Details,
    Gpu,
    Hours,
    Minutes,
    Owner,
    Tier,
    Until,
    WeekReset,
    Zone,
    details,
)
from relay.app.commands.people.registering import document, refuse_secrets
from relay.app.commands.stores import writing_accounts
from relay.app.messages.wording import iso, printable
from relay.core.errors import BadConfig
from relay.core.ledger.registry import Declared
from relay.people.quota import moment
from relay.people.zones import local, zone


class Mark(Enum):
    """States a person may declare."""

    ready = "ready"
    paused = "paused"
    quota_exceeded = "quota_exceeded"
    blocked = "blocked"
    retired = "retired"


def edit(
    context: typer.Context,
    account: AccountId,
    label: Annotated[str | None, typer.Option(help="What people call it.", show_default=False)] = None,
    owner: Owner = None,
    provider: AtProvider = None,
    tier: Tier = None,
    gpu: Gpu = None,
    session_minutes: Minutes = None,
    weekly_hours: Hours = None,
    reset: WeekReset = None,
    zone: Zone = None,
    availability: Availability = None,
    contact: Contact = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what is known of an account; an empty text or 0 clears what may be absent."""
    here = surroundings(context)
    told = details(tier, gpu, session_minutes, weekly_hours, reset, zone, availability, contact)
    wanted: Details = {"label": label, "owner": owner, "provider": provider, **told}
    changes: Details = {key: value for key, value in wanted.items() if value is not None}
    _edited(here, account, changes, config, as_json)


def rename(
    context: typer.Context,
    account: AccountId,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="What people call it from now on.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what people call an account; its id, owner and provider stay."""
    _edited(surroundings(context), account, {"label": label}, config, as_json)


def mark(
    context: typer.Context,
    account: AccountId,
    state: Annotated[Mark, typer.Argument(metavar="STATE", help="ready, paused, quota_exceeded, blocked or retired")],
    until: Until = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare an account's state, e.g. quota_exceeded when the provider refused a session."""
    _declare(surroundings(context), account, state, until, config, as_json)


def pause(
    context: typer.Context,
    account: AccountId,
    until: Until = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask an account for nothing, until it is marked ready or that time."""
    _declare(surroundings(context), account, Mark.paused, until, config, as_json)


def retire(
    context: typer.Context, account: AccountId, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Ask an account for nothing any more; it still counts as its owner's one account."""
    _declare(surroundings(context), account, Mark.retired, None, config, as_json)


def forget(
    context: typer.Context, account: AccountId, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Empty an account: label, owner and everything personal go; its id stays in the runs it trained."""
    here = surroundings(context)
    writing_accounts(here, here.settle(config=config)).forget(account)
    emit(as_json, {"schema": "relay.account/1", "id": account, "state": "forgotten"}, f"{account} is forgotten.")


def _edited(here: App, account: str, changes: Details, config: Path | None, as_json: bool) -> None:
    refuse_secrets(here, *map(str, changes.values()))
    known = writing_accounts(here, here.settle(config=config))
    before, made = known.get(account), known.edit(account, **changes)
    if (before.confirmed and not made.confirmed) or (before.competitions and not made.competitions):
        say(
            f"What {printable(before.owner)} confirmed is not {printable(made.owner)}'s word: {account} is asked again."
        )
    text = f"{made.id}: {printable(made.label)}, {printable(made.owner)} at {made.provider}."
    if others := [key.replace("_", " ") for key in changes if key not in ("label", "owner", "provider")]:
        text += f" Set: {', '.join(others)}."
    emit(as_json, document(made, False), text)


def _declare(here: App, account: str, mark: Mark, until: str | None, config: Path | None, as_json: bool) -> None:
    if until and mark in (Mark.ready, Mark.blocked, Mark.retired):
        raise BadConfig(f"{mark.value} has no end of its own: leave --until out.")
    known, state = writing_accounts(here, here.settle(config=config)), STATES[mark]
    then = moment(until, known.now(), zone(known.get(account).usable_zone)) if until else None
    ends = known.set_status(account, state, then)
    how = f" until {local(ends)}" if ends else ""
    said = {"schema": "relay.account/1", "id": account, "state": state, "until": iso(ends)}
    emit(as_json, said, f"{account} is {state}{how}.")


STATES: dict[Mark, Declared] = {
    Mark.ready: "ready",
    Mark.paused: "paused",
    Mark.quota_exceeded: "quota_exceeded",
    Mark.blocked: "blocked",
    Mark.retired: "retired",
}
