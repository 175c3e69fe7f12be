"""`dashboard`: shows runs as a page: served from this machine, as one file, or published. Appends to no ledger."""

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
    from relay.app.dashboard.server import Poller

HOSTED = ("colab", "kaggle")
"""Providers that do not lend their machines for serving pages."""


@subcommand("overrides run config redact")
def dashboard(
    call: Call,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write one file instead.", show_default=False)
    ] = None,
    push_to: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="PLACE",
            help="Publish: space:OWNER/NAME (Hugging Face) or store. Without --yes, list what becomes public.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --push: publish.")] = False,
    with_names: Annotated[
        bool, typer.Option("--with-names", help="With --push: also labels of people, notes and paths.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Instead of a free one.", show_default=False)
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> Answer | None:
    """Show a run as a page: progress, people, curves, sessions, storage, incidents; all runs side by side."""
    if (export_to or push_to) and (port or no_open):
        raise UsageError("--export and --push write a file: --port and --no-open belong to the server.")
    if export_to and push_to:
        raise UsageError("--export writes a file here and --push publishes one: give one of them.")
    if (yes or with_names) and not push_to:
        raise UsageError("--yes and --with-names belong to --push.")
    from relay.app.commands.looking.source import Source  # imported here so that the other commands start faster

    if push_to:
        from relay.app.commands.looking.publishing import publish

        source = Source(call.app, call.resolved, redacted=call.redact or not with_names)
        return publish(call, source, push_to, yes)
    source = Source(call.app, call.resolved, call.redact)
    if export_to:
        from relay.app.dashboard.page import export

        found = export(source.all(), call.app.cwd / export_to)
        return Answer(found, f"{found['path']}: {found['bytes']:,} bytes. Any browser opens it, without a server.")
    if call.as_json:
        return Answer(source.all(), "")
    show(call, source, port, no_open)
    return None


def show(call: Call, source: Source, port: int | None, no_open: bool) -> None:
    """Serve the page until an interrupt."""
    app = call.app
    refuse_where_lent(app)
    require_packages()
    from relay.app.commands.looking.comparing import Board
    from relay.app.dashboard.server import HOST, LOCAL, REMOTE, Others, Poller, listening, serve

    pace = LOCAL if source.local else REMOTE

    def poller_of(one: Source) -> Poller:
        return Poller(one.news, one.first(), pace, app.runtime, lambda text: redact(text, app.secrets))

    class Pages(Board):
        """The board, with pollers for its runs."""

        def poller(self, project: str, run: str) -> Poller:
            """Return the poller of another run, not started."""
            return poller_of(self.source_of(project, run))

    poller, others = poller_of(source), Others(Pages(app, call.resolved, call.redact), app.runtime)
    with listening(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/"
        say(
            f"The dashboard of run {source.run} is at {address} (only from this machine), all runs of the store at "
            f"{address}runs. Ctrl-C ends it."
        )
        if not no_open and sys.stdout.isatty():
            import webbrowser

            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # an interrupt ends the server, which may have handled it already
            serve(poller, listener, others)
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
