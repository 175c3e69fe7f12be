"""`demo`: kills a session, resumes it under another account, and compares the bytes with an unbroken run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from relay.app.commands.command import Call, subcommand
from relay.app.commands.common import App, emit, say, speaks_utf8
from relay.app.demo import RELAYED, UNBROKEN, Demo, place_beneath, prepare
from relay.app.messages.wording import counted, duration
from relay.app.redact import redact
from relay.core.errors import BadConfig, Exit
from relay.core.folders import scratch_folder
from storage.base import check_address, is_address, open_store


@subcommand("overrides")
def demo(
    call: Call,
    steps: Annotated[int, typer.Option(min=160, help="Steps to train.")] = 400,
    folder: Annotated[
        Path | None, typer.Option(help="Keep everything here; emptied first.", show_default=False)
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Keep the runs in a new folder beneath this address, e.g. s3://…", show_default=False),
    ] = None,
) -> None:
    """Train, kill the session between two commits, resume under another account, and compare with an unbroken run."""
    app = call.app
    with scratch_folder() as scratch:
        place = app.cwd / folder if folder else scratch / "demo"
        there = place_beneath(absolute(app, store), app.runtime.token()) if store else None
        if there is None or there.startswith("file://"):
            open_store(there or str(place))  # refuses (78) a folder where no session may train; writes nothing
        prepare(place, there)
        if there:
            say(f"The runs are kept in the new folder {redact(there)}. Nothing else there is changed.")
        elif folder is None:
            say("The demonstration works in a temporary folder and removes it at the end.")
        say(f"Two trainings of {counted(steps, 'step')}, one of them in two sessions: some minutes on a CPU.")
        began = app.runtime.monotonic()
        played = Demo(place, steps, tuple(call.overrides or ()), app.environ, say, remote=bool(there))
        found = played.play()
        say(f"All of it took {duration(app.runtime.monotonic() - began)}.")
        emit(call.as_json, found, "" if call.as_json else played.report())
    if not call.as_json:
        show(found)
    raise typer.Exit(Exit.OK if found["equal"] else Exit.BAD_DATA)


def absolute(app: App, store: str) -> str:
    """Return a plain path as an address, because the sessions of the demonstration run in another folder."""
    if not store.strip():
        raise BadConfig("--store is blank. Give an address or a folder.")
    if is_address(store):
        check_address(store)
        return store
    try:
        return (app.cwd / Path(store).expanduser()).absolute().as_uri()
    except RuntimeError as error:
        raise BadConfig(f"{store}: nobody knows that home folder. Write the whole path.") from error


def show(found: dict[str, Any]) -> None:
    """Print both hashes side by side, and whether they are equal."""
    console = Console(safe_box=not speaks_utf8(), highlight=False)
    table = Table("run", "sessions", "state hash at the end")
    sessions = f"killed at {found['killed_at_step']:,}, resumed from {found['resumed_from_step']:,}"
    table.add_row(RELAYED, sessions, _short(found["state_hash"][RELAYED]))
    table.add_row(UNBROKEN, "one, unbroken", _short(found["state_hash"][UNBROKEN]))
    console.print(table)
    if found.get("store"):
        console.print(f"Both runs stay in {redact(found['store'])}", soft_wrap=True, markup=False)
    if found["equal"]:
        console.print(
            "EQUAL: killed, handed over and resumed, the training state is the same, bit for bit.",
            style="green",
            soft_wrap=True,
        )
    else:
        console.print(
            "NOT EQUAL: the two ends differ. Please report this with the output above.", style="red", soft_wrap=True
        )


def _short(sha256: str) -> str:
    """Return the start of a hash, to fit a line. The comparison uses the whole hash, which --json prints."""
    return f"{sha256[:16]}…" if speaks_utf8() else f"{sha256[:16]}..."
