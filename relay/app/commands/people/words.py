"""`accounts confirm` and `accounts quota`: a participant's own word, and what their provider told them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import say
from relay.app.commands.people.fields import AccountId
from relay.app.messages.admitting import terms
from relay.app.messages.wording import iso
from relay.core.errors import BadConfig
from relay.people.account import Account, Reading
from relay.people.admission import confirm as keep_word
from relay.people.quota import HOW, MAX_BYTES, declared, official
from relay.people.zones import local, zone


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
    """What was piped in, or a file's bytes. Raises BadConfig (78)."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with (cwd / name).open("rb") as file:
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
