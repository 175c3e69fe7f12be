"""`dashboard`: shows the run as a page, served from this machine or as one file; writes nothing in the store."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say
from relay.app.redact import redact
from relay.core.errors import BadConfig, PolicyRefused, UsageError
from storage.packages import install

if TYPE_CHECKING:
    from relay.app.commands.looking.source import Source

HOSTED = ("colab", "kaggle")
"""Providers that do not lend their machines for serving pages."""


@subcommand("overrides run config redact")
def dashboard(
    call: Call,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write one file instead.", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Instead of a free one.", show_default=False)
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> Answer | None:
    """Show a run as a page: progress, people, curves, sessions, storage, incidents. Served here, or one file."""
    if export_to and (port or no_open):
        raise UsageError("--export writes a file: --port and --no-open belong to the server.")
    from relay.app.commands.looking.source import Source  # imported here so that the other commands start faster

    source = Source(call.app, call.resolved, call.redact)
    if export_to:
        from relay.app.dashboard.page import export

        found = export(source.all(), call.app.cwd / export_to)
        return Answer(found, f"{found['path']}: {found['bytes']:,} bytes. Any browser opens it, without a server.")
    if call.as_json:
        return Answer(source.all(), "")
    show(call.app, source, port, no_open)
    return None


def show(app: App, source: Source, port: int | None, no_open: bool) -> None:
    """Serve the page until an interrupt."""
    refuse_where_lent(app)
    require_packages()
    from relay.app.dashboard.server import HOST, LOCAL, REMOTE, Poller, listening, serve

    pace = LOCAL if source.local else REMOTE
    poller = Poller(source.news, source.first(), pace, app.runtime, lambda text: redact(text, app.secrets))
    with listening(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/"
        say(f"The dashboard of run {source.run} is at {address} (only from this machine). Ctrl-C ends it.")
        if not no_open and sys.stdout.isatty():
            import webbrowser

            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # an interrupt ends the server, which may have handled it already
            serve(poller, listener)
        say("Ended. The run goes on without it.")


def refuse_where_lent(app: App) -> None:
    """Raises PolicyRefused (77) on machines that must not serve pages."""
    if app.machine.provider in HOSTED:
        raise PolicyRefused(
            f"No page is served on {app.machine.provider}, whose machines are not lent for that. Write a file and show "
            f"it in the notebook: dashboard --export run.html"
        )


def require_packages() -> None:
    """Raises BadConfig (78) with the install command if a package is missing."""
    try:
        import starlette
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as missing:
        raise BadConfig(
            f"The dashboard's server needs two more packages: `{install('dashboard')}`. --export needs none."
        ) from missing
    assert starlette
