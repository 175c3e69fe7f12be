"""The weights that a command is about: a checkpoint of a run or a file, brought here and loaded; judges none."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.app.commands.common import App, say
from relay.app.commands.stores import require
from relay.app.terminal.transfers import showing
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.manifest import Manifest
from relay.core.checkpoint.restore import Damaged, Unfit, choose, fetch_unheld, load, role
from relay.core.errors import BadData
from relay.core.ledger.state import Checkpoint
from relay.core.runs.opening import Pair, RunHandle
from relay.core.workload import Workload

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
    workload = workload_of(app, overrides, config, run, opened.ledger.genesis().config)
    chosen = choose(opened.view.state, step)
    with tempfile.TemporaryDirectory(prefix="trm-relay-") as scratch:
        folder = bring(app, chosen, opened, stores, Path(scratch))[0]
        try:
            fill(workload, folder, chosen, resolved.settings.run)
        except Damaged as evidence:
            raise BadData(f"Step {chosen.step:,} of run {resolved.settings.run} is damaged: {evidence}.") from evidence
    which = role(opened.view.state, chosen)
    about = {"run": resolved.settings.run, "step": chosen.step, "which": which}
    return Subject(workload, f"step {chosen.step:,} ({which})", about)


def workload_of(
    app: App, overrides: Sequence[str] | None, config: Path | None, run: str | None, pinned: dict[str, Any]
) -> Workload:
    """A run's workload by what it pinned, with the data that is here. Raises BadConfig, BadData."""
    resolved = app.settle(overrides, config, {"run": run, **app.plugin.identity(pinned)})
    data = resolved.path(resolved.settings.data_dir)
    kept = app.plugin.pinned(pinned, resolved.workload)
    return app.plugin.build(kept, app.plugin.device(resolved.settings.device), data)


def fill(workload: Workload, folder: Path, checkpoint: Checkpoint, run: str) -> None:
    """Load a checkpoint's files. Raises BadData if they do not fit the configuration, Damaged as `restore.load`."""
    try:
        load(run, workload, folder, checkpoint)
    except Unfit as error:
        raise BadData(
            f"The checkpoint of step {checkpoint.step:,} does not fit: {error.why}. Give the settings that the run was "
            f"begun with."
        ) from error


def of_file(app: App, overrides: Sequence[str] | None, config: Path | None, weights: Path) -> Subject:
    """A file of weights under the settings as they are given; no run is looked at. Raises BadConfig, BadData."""
    resolved, path = app.settle(overrides, config, store=False), app.cwd / weights
    data = resolved.path(resolved.settings.data_dir)
    workload = app.plugin.build(resolved.workload, app.plugin.device(resolved.settings.device), data)
    for line in app.plugin.start_from(workload, path):
        say(f"{path.name}: {line}.")
    about = {"run": None, "step": None, "which": "weights only", "file": str(path)}
    return Subject(workload, f"{path.name} (weights only)", about)


def bring(app: App, checkpoint: Checkpoint, opened: RunHandle, stores: Pair, scratch: Path) -> tuple[Path, Manifest]:
    """The checkpoint's files, verified, on this machine. Raises BadData (65), StorageUnreachable (69)."""
    local_folder = LocalFolder(scratch)
    with showing(say, app.runtime) as show:
        manifest = fetch_unheld(checkpoint, opened.ledger, opened.view.state, stores.checkpoints, local_folder, show)
    return local_folder.folder(checkpoint.key), manifest
