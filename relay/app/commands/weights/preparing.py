"""`prepare`: data before a session, made, read and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relay.app.commands.common import ConfigOption, JsonOption, Overrides, RunOption, emit, surroundings


def prepare(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="Also write it as a dataset folder of the reference.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make, read and check the data. Needs no GPU and no store."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run}, store=False)
    target = app.cwd / folder if folder else None
    lines = list(app.plugin.prepare(resolved.workload, resolved.path(resolved.settings.data_dir), target))
    emit(as_json, {"schema": "relay.prepare/1", "ok": True, "lines": lines}, "\n".join(lines))
