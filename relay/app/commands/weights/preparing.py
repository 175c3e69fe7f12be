"""`prepare`: data before a session, made, read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.command import Answer, Call, subcommand


@subcommand()
def prepare(
    call: Call,
    folder: Annotated[
        Path | None, typer.Option(help="Also write it as a dataset folder of the reference.", show_default=False)
    ] = None,
) -> Answer:
    """Make, read and check the data. Needs no GPU and no store."""
    resolved = call.settle(store=False)
    target = call.app.cwd / folder if folder else None
    lines = list(call.app.plugin.prepare(resolved.workload, resolved.path(resolved.settings.data_dir), target))
    return Answer({"schema": "relay.prepare/1", "ok": True, "lines": lines}, "\n".join(lines))
