"""`login`: signs in to a provider of storage, and keeps the credentials in one file of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.logins import Terminal, log_in
from relay.app.machine.tokenfile import forget, keep, path_of
from relay.core.errors import UsageError
from storage.kinds import SIGNED_IN


@subcommand("")
def login(
    service: Annotated[str, typer.Argument(metavar="|".join(SIGNED_IN), help="Whose storage.")],
    client: Annotated[
        Path | None,
        typer.Option("--client", metavar="FILE", help="drive: the OAuth client's file.", show_default=False),
    ] = None,
    app_key: Annotated[
        str | None, typer.Option("--app-key", metavar="KEY", help="dropbox: the app's key.", show_default=False)
    ] = None,
    keys_only: Annotated[
        bool, typer.Option("--keys-only", help="hf: ask for S3 credentials only; sign in to nothing.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write this file instead, to copy from it.", show_default=False),
    ] = None,
    removed: Annotated[bool, typer.Option("--forget", help="Remove the file of an earlier login.")] = False,
    *,
    call: Call,
) -> Answer:
    """Sign in to a store's provider: prints an address, reads a code, and prints no secret."""
    app = call.app
    if service not in SIGNED_IN:
        raise UsageError(f"There is no service {service[:40]!r} to sign in to. Known are {', '.join(SIGNED_IN)}.")
    path = app.cwd / file if file else path_of(app.environ, service)
    document = {"schema": "relay.login/1", "service": service, "file": str(path)}
    if removed:
        gone = forget(path)
        text = f"Removed {path}." if gone else f"There is no {path}."
        return Answer({**document, "variables": [], "removed": gone}, text)
    variables = log_in(service, Terminal(app.streams), app.environ, client=client, app_key=app_key, keys_only=keys_only)
    keep(path, variables)
    return Answer(
        {**document, "variables": sorted(variables), "removed": False}, outcome(service, path, not file, variables)
    )


def outcome(service: str, path: Path, read_here: bool, variables: dict[str, str]) -> str:
    """Where the credentials are, and how another machine gets them."""
    names = " and ".join(sorted(variables))
    use = f"Commands on this machine read it for {service}:// addresses." if read_here else "No command reads it."
    return (
        f"{names}: in {path}, which only you can read. {use} For another machine or a notebook, copy each value into a "
        "secret of that name; never into a notebook, a chat or the shared folder."
    )
