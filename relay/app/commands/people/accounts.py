"""`accounts`: lists, shows, edits, marks and removes accounts, and stores confirmations and remaining quota."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say, speaks_utf8
from relay.app.commands.people.registering import (
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
    account_document,
    details,
    refuse_secrets,
)
from relay.app.messages.admitting import terms
from relay.app.messages.wording import duration, iso, printable
from relay.app.terminal.paragraphs import terminal_width
from relay.app.views.accounts import (
    Told,
    facts,
    given_words,
    hours_left,
    listing,
    row_document,
    state_words,
    work_document,
    work_pairs,
)
from relay.core.errors import BadConfig
from relay.core.ledger.registry import Declared
from relay.people.account import Account, Reading
from relay.people.accounts import row_of
from relay.people.admission import confirm as keep_word
from relay.people.policy import Provider
from relay.people.quota import HOW, MAX_BYTES, declared, moment, official, reset_of
from relay.people.zones import local, zone
from storage.regular import regular_or_piped

SESSIONS_SHOWN = 10


@subcommand("run config redact")
def list_accounts(call: Call) -> Answer:
    """All registered accounts: state, until when, hours left and how that is known, reset in your own time zone."""
    view = call.view(of_people=True)
    shown = [row_document(row, view.now) for row in view.accounts]
    text = listing(view.accounts, view.now, terminal_width(), speaks_utf8())
    return Answer({"schema": "relay.accounts/1", "now": iso(view.now), "accounts": shown}, text)


@subcommand("run config")
def show(account: AccountId, call: Call) -> Answer:
    """All that is known of one account: fields, state, hours, sessions, GPUs, and what its provider's record says."""
    seen = call.overview(of_people=True)
    registry_row = row_of(seen.known.registry.read(), account, seen.view.store)
    found, row = seen.known.get(account), next(row for row in seen.view.accounts if row.id == account)
    provider = seen.known.providers.named(found.provider)
    told = Told(row, seen.view, seen.runs)
    whole = {
        "schema": "relay.account/1",
        **row_document(row, seen.view.now),
        "contact": printable(found.contact or "") or None,
        "reset": str(reset_of(found, provider) or "") or None,
        "competitions": sorted(found.competitions),
        "declared": registry_row.state,
        **work_document(told, SESSIONS_SHOWN),
        "record": _record(provider, seen.view.now),
    }
    return Answer(whole, text(told, found, provider))


def text(told: Told, found: Account, provider: Provider) -> str:
    """Return the account as text."""
    row, now = told.row, told.view.now
    resets = local(row.quota.resets_at) if row.quota else ""
    pairs = [
        ("owner", row.owner),
        ("provider", ", ".join(filter(None, [provider.title, row.tier and f"tier {row.tier}", row.gpu]))),
        ("state", state_words(row)),
        ("confirmed", "" if row.confirmed else f"not yet for run {told.view.run}: see `accounts confirm`"),
        ("hours left", hours_left(row.quota, now)),
        ("reset", " = ".join(filter(None, [str(reset_of(found, provider) or ""), resets]))),
        ("session", f"at most {duration(60 * row.session_minutes)}" if row.session_minutes else ""),
        ("awake", " ".join(filter(None, [row.availability, row.zone]))),
        ("contact", found.contact or ""),
        ("competitions", ", ".join(sorted(found.competitions))),
        ("given", given_words(row)),
        *work_pairs(told, SESSIONS_SHOWN),
        ("rules", provider.cited),
        ("", provider.stale(now)),
    ]
    return "\n".join([f"{row.id}: {printable(row.label)}", *facts(pairs, terminal_width())])


def _record(provider: Provider, now: float) -> dict[str, Any]:
    return {
        "provider": provider.name,
        "source": provider.source,
        "url": provider.url,
        "as_of": provider.as_of.isoformat(),
        "evidence": provider.evidence,
        "accounts_per_owner": provider.accounts_per_owner,
        "may_fill_hours": provider.may_fill_hours,
        "stale": bool(provider.stale(now)),
    }


class Mark(Enum):
    """States that a person may declare."""

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


@subcommand("run config")
def confirm(account: AccountId, call: Call) -> Answer:
    """Confirm, as the person whose account it is, to be a co-author of a run, where the provider's terms ask for it."""
    opened, _ = call.require()
    known = call.accounts()
    provider = known.providers.named(known.get(account).provider)
    if not provider.coauthor:
        raise BadConfig(f"{account} is at {provider.title}, whose record asks for no confirmation. Nothing was stored.")
    say(terms(provider))
    state = opened.view.state
    at = keep_word(known, account, state.run_id, provider)
    said = {"schema": "relay.account/1", "id": account, "run": state.run, "confirmed": True, "at": iso(at)}
    return Answer(said, f"{account}'s person is a co-author of run {state.run}, as they confirm.")


@subcommand("config")
def quota(
    account: AccountId,
    left: Annotated[float | None, typer.Option(help="Hours that are left.", show_default=False)] = None,
    of: Annotated[float | None, typer.Option(help="Hours of the whole period.", show_default=False)] = None,
    resets: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When they come back, e.g. 2026-12-05T00:00Z.", show_default=False),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Output of `kaggle quota --format json`; - is stdin.", show_default=False),
    ] = None,
    resource: Annotated[str, typer.Option(help="Which row of that output.")] = "GPU",
    *,
    call: Call,
) -> Answer:
    """Keep what is left of an account's hours, as its provider's tool prints it or as you say it; numbers only."""
    if (left is None) == (json_file is None):
        raise BadConfig(f"Give either --left or --json-file. {HOW}")
    piped = _read(call.app.cwd, json_file) if json_file else None
    known = call.accounts()
    now = known.now()
    if piped is not None:
        reading = official(piped, resource, now)
    else:
        reading = declared(left or 0.0, of, resets, now, zone(known.get(account).usable_zone))
    made = known.set_quota(account, reading)
    return Answer(_document(made, reading), _sentence(made, reading))


def _read(cwd: Path, name: str) -> bytes:
    """Read stdin or a file. Raises BadConfig (78)."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with regular_or_piped(cwd / name).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadConfig(f"Cannot read {name}: {error.strerror}. {HOW}") from error


def _document(account: Account, reading: Reading) -> dict[str, object]:
    return {
        "schema": "relay.account/1",
        "id": account.id,
        "quota": {
            "left_s": reading.left_s,
            "of_s": reading.of_s,
            "source": reading.source,
            "read_at": iso(reading.read_at),
            "resets_at": iso(reading.resets_at),
        },
    }


def _sentence(account: Account, reading: Reading) -> str:
    whole = f" of {reading.of_s / 3600:g}" if reading.of_s else ""
    until = f" until {local(reading.resets_at)}" if reading.resets_at else ""
    return f"{account.id} has {reading.left_s / 3600:g}{whole} h left{until} ({reading.source})."
