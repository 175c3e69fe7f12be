"""Fetches and loads the weights that a command uses: a checkpoint of a run, or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from relay.app.commands.command import Call
from relay.app.commands.common import App, say
from relay.app.commands.joining import FETCHED, Joined, join, require
from relay.app.dashboard.curves import fold
from relay.app.dashboard.history import Commits
from relay.app.messages.advice import command
from relay.app.models.plugin import History
from relay.app.models.shared import NotFetched
from relay.app.terminal.transfers import showing
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.manifest import Manifest
from relay.core.checkpoint.restore import Damaged, Unfit, choose, fetch_unheld, load, role
from relay.core.errors import BadData
from relay.core.folders import scratch_folder
from relay.core.ledger.state import Checkpoint
from relay.core.runs.opening import Pair, RunHandle
from relay.core.runs.sources import described
from relay.core.settings.config import Resolved
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
    """Loaded weights and their description."""

    workload: Workload
    whose: str
    about: Mapping[str, Any]
    """`run`, `step` and `which`; also `file` for a file."""
    history: History = tuple


def of_run(call: Call, step: int | None, own_data: bool = True) -> Subject:
    """Load a committed checkpoint of a run. own_data: as of `workload_of`.

    Raises BadConfig, BadData, StorageUnreachable.
    """
    resolved = call.settle(joins=True)
    opened, stores = require(call.app, resolved)
    run = resolved.settings.run
    chosen = choose(opened.view.state, step)
    with scratch_folder() as scratch:
        fetched = cache(lambda: bring(call.app, chosen, opened, stores, scratch)[0])
        workload = workload_of(call, resolved, opened, stores, fetched, own_data)
        try:
            fill(workload, fetched(), chosen, run)
        except Damaged as evidence:
            raise BadData(f"Step {chosen.step:,} of run {run} is damaged: {evidence}.") from evidence
    which = role(opened.view.state, chosen)
    about = {"run": run, "step": chosen.step, "which": which}
    return Subject(workload, f"step {chosen.step:,} ({which})", about, partial(history_of, opened, chosen.step))


def history_of(opened: RunHandle, until: int) -> list[Mapping[str, float]]:
    """Read the metrics of a run's training up to a step."""
    commits = Commits(opened.ledger)
    commits.read(opened.view, lambda: True)
    line, _ = fold(commits.events)
    return [row.metrics for commit in line for row in commit.rows() if row.step <= until]


def workload_of(
    call: Call,
    resolved: Resolved[BaseModel],
    opened: RunHandle,
    stores: Pair,
    checkpoint: Callable[[], Path],
    own_data: bool,
) -> Workload:
    """Build a run's workload from its pinned settings and its data, or from other data if its own is not here.

    checkpoint: as of `join`. own_data: data of the hub that is not here is refused, otherwise made here.
    Raises BadConfig, BadData.
    """
    joined = partial(join, call.app, resolved, opened, stores.ledger, checkpoint)
    with naming_prepare(call, opened.names.run):
        try:
            return _built(call, joined())
        except NotFetched:
            if own_data:
                raise
        return _built(call, joined(fetched=False))


def _built(call: Call, joined: Joined) -> Workload:
    plugin, resolved = call.app.plugin, joined.resolved
    if joined.missing:
        listed = "; ".join(f"{key}: {described(source)}" for key, source in joined.missing.items())
        of_hub = any(source and source.kind == FETCHED for source in joined.missing.values())
        own = f"`{_prepare(call, joined.run)}` fetches its own" if of_hub else "To use its own, name them: "
        own += "." if of_hub else " ".join(f"{key}=PATH" for key in joined.missing)
        say(f"Run {joined.run} trains on data that is not on this machine ({listed}); other rows are used here. {own}")
    data = resolved.path(resolved.settings.data_dir)
    return plugin.build(plugin.pinned(joined.pinned, resolved.workload), plugin.device(resolved.settings.device), data)


@contextmanager
def naming_prepare(call: Call, run: str | None = None) -> Iterator[None]:
    """Add the command that downloads data of the hub to the error for data that is not here."""
    try:
        yield
    except NotFetched as error:
        raise BadData(
            f"{error} Type `{_prepare(call, run)}` first, or name data of your own: data.train=PATH"
        ) from error


def _prepare(call: Call, run: str | None) -> str:
    return command("prepare", run, *call.overrides or ())


def fill(workload: Workload, folder: Path, checkpoint: Checkpoint, run: str) -> None:
    """Load a checkpoint's files. Raises BadData if they do not fit the configuration, Damaged as `restore.load`."""
    try:
        load(run, workload, folder, checkpoint)
    except Unfit as error:
        raise BadData(
            f"The checkpoint of step {checkpoint.step:,} does not fit: {error.why}. Give the settings that the run was "
            f"begun with."
        ) from error


def of_file(call: Call, weights: Path) -> Subject:
    """Load a file of weights under the current settings, without reading a run. Raises BadConfig, BadData."""
    resolved, path = call.settle(store=False), call.app.cwd / weights
    plugin = call.app.plugin
    data = resolved.path(resolved.settings.data_dir)
    with naming_prepare(call):
        workload = plugin.build(resolved.workload, plugin.device(resolved.settings.device), data)
    for line in plugin.start_from(workload, path):
        say(f"{path.name}: {line}.")
    about = {"run": None, "step": None, "which": "weights only", "file": str(path)}
    return Subject(workload, f"{path.name} (weights only)", about)


def bring(app: App, checkpoint: Checkpoint, opened: RunHandle, stores: Pair, scratch: Path) -> tuple[Path, Manifest]:
    """Fetch and verify the checkpoint's files. Raises BadData (65), StorageUnreachable (69)."""
    local_folder = LocalFolder(scratch)
    with showing(say, app.runtime) as show:
        manifest = fetch_unheld(checkpoint, opened.ledger, opened.view.state, stores.checkpoints, local_folder, show)
    return local_folder.folder(checkpoint.key), manifest
