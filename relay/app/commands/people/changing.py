"""`accounts edit`, `rename`, `mark`, `pause`, `retire`, `forget`: what people change of an account; decides nothing."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say
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
from relay.app.commands.people.registering import account_document, refuse_secrets
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


@subcommand("config")
def edit(
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
    *,
    call: Call,
) -> Answer:
    """Change what is known of an account; an empty text or 0 clears what may be absent."""
    told = details(tier, gpu, session_minutes, weekly_hours, reset, zone, availability, contact)
    wanted: Details = {"label": label, "owner": owner, "provider": provider, **told}
    changes: Details = {key: value for key, value in wanted.items() if value is not None}
    return _edited(call, account, changes)


@subcommand("config")
def rename(
    account: AccountId,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="What people call it from now on.")],
    call: Call,
) -> Answer:
    """Change what people call an account; its id, owner and provider stay."""
    return _edited(call, account, {"label": label})


@subcommand("config")
def mark(
    account: AccountId,
    state: Annotated[Mark, typer.Argument(metavar="STATE", help="ready, paused, quota_exceeded, blocked or retired")],
    until: Until = None,
    *,
    call: Call,
) -> Answer:
    """Declare an account's state, e.g. quota_exceeded when the provider refused a session."""
    return _declared(call, account, state, until)


@subcommand("config")
def pause(account: AccountId, until: Until = None, *, call: Call) -> Answer:
    """Ask an account for nothing, until it is marked ready or that time."""
    return _declared(call, account, Mark.paused, until)


@subcommand("config")
def retire(account: AccountId, call: Call) -> Answer:
    """Ask an account for nothing any more; it still counts as its owner's one account."""
    return _declared(call, account, Mark.retired, None)


@subcommand("config")
def forget(account: AccountId, call: Call) -> Answer:
    """Empty an account: label, owner and everything personal go; its id stays in the runs it trained."""
    call.accounts().forget(account)
    return Answer({"schema": "relay.account/1", "id": account, "state": "forgotten"}, f"{account} is forgotten.")


def _edited(call: Call, account: str, changes: Details) -> Answer:
    refuse_secrets(call.app, *map(str, changes.values()))
    known = call.accounts()
    before, made = known.get(account), known.edit(account, **changes)
    if (before.confirmed and not made.confirmed) or (before.competitions and not made.competitions):
        say(
            f"What {printable(before.owner)} confirmed is not {printable(made.owner)}'s word: {account} is asked again."
        )
    text = f"{made.id}: {printable(made.label)}, {printable(made.owner)} at {made.provider}."
    if others := [key.replace("_", " ") for key in changes if key not in ("label", "owner", "provider")]:
        text += f" Set: {', '.join(others)}."
    return Answer(account_document(made, False), text)


def _declared(call: Call, account: str, mark: Mark, until: str | None) -> Answer:
    if until and mark in (Mark.ready, Mark.blocked, Mark.retired):
        raise BadConfig(f"{mark.value} has no end of its own: leave --until out.")
    known, state = call.accounts(), STATES[mark]
    then = moment(until, known.now(), zone(known.get(account).usable_zone)) if until else None
    ends = known.set_status(account, state, then)
    how = f" until {local(ends)}" if ends else ""
    said = {"schema": "relay.account/1", "id": account, "state": state, "until": iso(ends)}
    return Answer(said, f"{account} is {state}{how}.")


STATES: dict[Mark, Declared] = {
    Mark.ready: "ready",
    Mark.paused: "paused",
    Mark.quota_exceeded: "quota_exceeded",
    Mark.blocked: "blocked",
    Mark.retired: "retired",
}
