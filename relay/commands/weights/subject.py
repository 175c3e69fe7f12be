"""The weights that a command is about: a checkpoint of a run or a file, brought here and loaded; judges none."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.checkpoints.choosing import choose, role
from relay.checkpoints.manifest import Manifest
from relay.checkpoints.outbox import Outbox
from relay.checkpoints.restore import fetch_unheld
from relay.commands.common import App, say
from relay.commands.stores import require
from relay.display.transfers import showing
from relay.errors import BadData
from relay.log.state import Checkpoint
from relay.runs.identity import Opened, Pair
from relay.workload import Workload

SPLITS = ("test", "valid")

StepOption = Annotated[
    int | None, typer.Option("--step", help="A retained step instead of the newest.", show_default=False)
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="A file of weights instead of a run's checkpoint.", show_default=False)
]
RawOption = Annotated[bool, typer.Option("--raw", help="Raw weights instead of the averaged ones.")]


@dataclass(frozen=True)
class Subject:
    """Weights that are loaded, and what they are called."""

    workload: Workload
    whose: str
    about: Mapping[str, Any]
    """`run`, `step` and `which`, of a file also `file`."""


def of_run(
    app: App, overrides: Sequence[str] | None, config: Path | None, run: str | None, step: int | None
) -> Subject:
    """A committed checkpoint of a run. Raises BadConfig, BadData, StorageUnreachable."""
    resolved = app.settle(overrides, config, {"run": run})
    opened, stores = require(app, resolved)
    pinned = opened.ledger.genesis().config
    data = resolved.path(resolved.settings.data_dir)
    wanted = app.settle(overrides, config, {"run": run, **app.kind.identity(pinned)}).workload
    workload = app.kind.build(app.kind.pinned(pinned, wanted), app.kind.device(resolved.settings.device), data)
    chosen = choose(opened.view.state, step)
    with tempfile.TemporaryDirectory(prefix="trm-relay-") as scratch:
        load(workload, bring(app, chosen, opened, stores, Path(scratch))[0])
    which = role(opened.view.state, chosen)
    about = {"run": resolved.settings.run, "step": chosen.step, "which": which}
    return Subject(workload, f"step {chosen.step:,} ({which})", about)


def of_file(app: App, overrides: Sequence[str] | None, config: Path | None, weights: Path) -> Subject:
    """A file of weights under the settings as they are given; no run is looked at. Raises BadConfig, BadData."""
    resolved, path = app.settle(overrides, config, store=False), app.cwd / weights
    data = resolved.path(resolved.settings.data_dir)
    workload = app.kind.build(resolved.workload, app.kind.device(resolved.settings.device), data)
    for line in app.kind.start_from(workload, path):
        say(f"{path.name}: {line}.")
    about = {"run": None, "step": None, "which": "weights only", "file": str(path)}
    return Subject(workload, f"{path.name} (weights only)", about)


def bring(app: App, checkpoint: Checkpoint, opened: Opened, stores: Pair, scratch: Path) -> tuple[Path, Manifest]:
    """The checkpoint's files, verified, on this machine. Raises BadData (65), StorageUnreachable (69)."""
    outbox = Outbox(scratch)
    with showing(say, app.runtime) as show:
        manifest = fetch_unheld(checkpoint, opened.ledger, opened.view.state, stores.checkpoints, outbox, show)
    return outbox.folder(checkpoint.key), manifest


def load(workload: Workload, folder: Path) -> None:
    """Raises BadData if the files do not fit the configuration."""
    try:
        workload.load(folder)
    except ValueError as error:
        raise BadData(f"The checkpoint does not fit: {error}. Give the settings the run was begun with.") from error
