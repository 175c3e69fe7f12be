"""Opens and joins a run that exists: its pinned settings are the base, given ones are compared, its data is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from relay.app.commands.common import App, say, target_of
from relay.app.commands.stores import once, open_stores
from relay.app.redact import redact, secrets_of
from relay.app.terminal.mishaps import explain
from relay.core.errors import BadData, RelayError
from relay.core.ledger.verified import mark_of
from relay.core.runs.opening import (
    CONTENT,
    Changed,
    ConfigDiffers,
    NewerSettings,
    Pair,
    RunHandle,
    check_config,
    check_given,
    difference,
    open_run,
    require_run,
)
from relay.core.runs.ownloop import OwnLoop, is_own_loop, refuse_newer
from relay.core.runs.salvage import pinned_config
from relay.core.runs.sources import DataDiffers, DataElsewhere, Source, described, read_sources, write_sources
from relay.core.settings.config import Resolved, Training, flat, leaves
from relay.core.settings.origins import BadSetting
from relay.core.wholefile import write_whole
from relay.core.workload import Workload
from storage.base import Store, StoreError

HERE = "data.json"
"""File in the run's folder on this machine: the paths of its data."""
FETCHED = "hub"
ANYWHERE = ("generated", FETCHED)
"""Sources that every machine can make or fetch."""


@dataclass(frozen=True)
class Joined:
    """The settings of a session of an existing run."""

    app: App
    run: str
    run_id: str
    resolved: Resolved[BaseModel]
    """On top of the run's pinned settings."""
    pinned: dict[str, Any]
    content: Mapping[str, str]
    """The pinned digest of each setting that names data by its content."""
    told: Mapping[str, Source] | None
    """The recorded sources of the data; None if nothing is recorded."""
    missing: Mapping[str, Source | None]
    """Data that this machine can neither make nor fetch, and that nobody named."""

    @property
    def another_task(self) -> bool:
        """Whether the settings name another task than the run's, whose other settings then fit nothing."""
        task = self.resolved.training.given.get("task")
        return task is not None and task.value != self.pinned.get("task")

    def check(self) -> None:
        """Raises ConfigDiffers or DataElsewhere (78). Compares no content of data.

        A setting that the run leaves open (the length, with constant rates) is left to `check_content`.
        """
        given, pinned = self.resolved.training.differing(), dict(flat(self.pinned))
        known = pinned.keys() | getattr(self.resolved.workload, "added", ())
        left = {key for key, (own, _) in given.items() if own is None and key not in known}
        free = {*self.content, *self.app.plugin.local, *left}
        check_given(self.run, {key: values for key, values in given.items() if key not in free})
        if self.missing:
            raise DataElsewhere(self.run, self.missing, self.resolved.variables)

    def check_content(self, config: Mapping[str, Any]) -> None:
        """Compare the configuration of the workload that was built. Raises ConfigDiffers or DataDiffers (78)."""
        data = [one for one in difference(self.pinned, config) if one.key in self.content]
        values = dict(flat(self.resolved.workload.model_dump(mode="json")))
        named = [one for one in data if one.key in self.resolved.training.given]
        if named:
            known = self.told or {}
            changed = [
                Changed(one.key, described(known[one.key]) if one.key in known else one.pinned, values[one.key])
                for one in named
            ]
            raise ConfigDiffers(self.run, changed, [f"{one.key}={one.mine}" for one in changed])
        if data:
            sources = {one.key: (self.told or {}).get(one.key) for one in data}
            raise DataDiffers(self.run, sources, self.resolved.variables)
        check_config(self.run, self.pinned, config, self.resolved.workload.model_dump(mode="json"))

    def keep(self) -> None:
        """Note on this machine where the run's data is, for sessions that do not name it. A failure is ignored."""
        values = dict(flat(self.resolved.workload.model_dump(mode="json")))
        paths = {key: str(self.resolved.path(values[key])) for key in self.content if values[key] not in ANYWHERE}
        if paths and paths != _recall(self.resolved.home, self.run_id):
            with suppress(OSError):
                self.resolved.home.mkdir(parents=True, exist_ok=True)
                text = json.dumps({"format": 1, "run_id": self.run_id, "paths": paths}, indent=1)
                write_whole(self.resolved.home / HERE, text.encode())


def require(app: App, resolved: Resolved[Any], read_only: bool = True) -> tuple[RunHandle, Pair]:
    """Return the run, with its identity checked, and its stores. Raises BadConfig (78) if it has not begun.

    With `read_only=False` it refuses (65) if this machine has read more of the run than the store now holds.
    """
    stores, settings = open_stores(app, resolved, read_only), resolved.settings
    opened = require_run(stores, settings.project, settings.run)
    if not read_only:
        opened.ledger.chain.mark = mark_of(resolved.home, opened.view.state.run_id)
    adopt(app, resolved, opened, stores.ledger)
    return opened, stores


def adopt(app: App, resolved: Resolved[Any], opened: RunHandle | None, store: Store) -> None:
    """From here on, speak of the run's own metrics, if another model or a script of its own trains it.

    A run that has all metrics of the model at hand is not asked: that would cost a read.
    Raises BadSetting (78) for settings that wait for the run's task, and that it lacks or that cannot have this value.
    """
    waits = resolved.training.waits_for_run
    if opened is None:
        _ = waits and resolved.workload
    elif waits or not set(app.plugin.measures.first) <= opened.view.state.metrics.keys():
        with suppress(BadData, NewerSettings):  # a session reports these
            pinned = pinned_config(opened.ledger)
            app.plugin = app.model_of(pinned)
            if waits and not is_own_loop(pinned):
                resolved = join(app, resolved, opened, store).resolved
            _ = waits and resolved.workload


def join(
    app: App,
    resolved: Resolved[BaseModel],
    opened: RunHandle,
    store: Store,
    checkpoint: Callable[[], Path] | None = None,
    fetched: bool = True,
) -> Joined:
    """Return the settings on top of the run's own. Raises BadData (65), NewerSettings and BadSetting (78).

    checkpoint: fetches a checkpoint of the run. Its data is used if the data here is missing or differs.
    fetched: whether data of the hub is here or may be downloaded; otherwise it is missing.
    """
    run, run_id = opened.names.run, opened.view.state.run_id
    pinned = pinned_config(opened.ledger)
    if is_own_loop(pinned):  # its settings are in its script
        refuse_newer(run, pinned)
        if any(given.origin.startswith("command line") for given in resolved.training.given.values()):
            raise OwnLoop("change its settings")
        app.plugin = app.model_of(pinned)
        alone = Training[BaseModel](app.plugin.model, {}, {}, app.plugin.default_task)
        return Joined(app, run, run_id, replace(resolved, training=alone), pinned, {}, None, {})
    plugin = app.model_of(pinned)
    if plugin.model is not resolved.training.model:
        named = "task" in resolved.training.given  # another model's: nothing else can be compared
        resolved = resolved.of(plugin.model, plugin.shorthands, plugin.default_task, ["task"] if named else None)
        app.plugin = app.plugin if named else plugin
    values = dict(flat(pinned))
    if unknown := sorted(set(values) - set(leaves(plugin.model))):
        raise NewerSettings(run, unknown)
    content = {key: str(values[key]) for key in plugin.content if str(values.get(key)).startswith(CONTENT)}
    told = read_sources(store, opened.names) if content else {}
    here = _recall(resolved.home, run_id)
    found: dict[str, str] = {}
    missing: dict[str, Source | None] = {}
    for key in content:
        source = (told or {}).get(key)
        if key in here:
            found[key] = here[key]
        elif source and source.kind in ANYWHERE and (fetched or source.kind != FETCHED):
            found[key] = source.kind
        elif source:
            missing[key] = source
    joined = resolved.on(plugin.base(pinned, found), f"run {run}")
    given = joined.training.given
    if checkpoint and (missing or any(key in given for key in content)):
        carried = {key: str(checkpoint() / name) for key, name in plugin.carried.items() if key in content}
        joined = resolved.on(plugin.base(pinned, found | carried), f"run {run}")
        missing = {key: source for key, source in missing.items() if key not in carried}
    missing = {key: source for key, source in missing.items() if key not in given}
    return Joined(app, run, run_id, joined, pinned, content, told, missing)


def record_sources(
    app: App, opened: RunHandle, store: Store, resolved: Resolved[BaseModel], workload: Workload
) -> None:
    """Record where a run's data came from, for those who join it."""
    write_sources(store, opened.names, app.plugin.sources(resolved.workload, workload))


def run_target(app: App, resolved: Resolved[BaseModel], opened: RunHandle | None, store: Store) -> int:
    """Return the run's target; before its first session, the target asked for or that of the run's own task."""
    state = opened.view.state if opened else None
    if opened and not opened.view.state.target_steps:
        with suppress(BadData):  # without the run's settings, the given ones decide
            resolved = join(app, resolved, opened, store).resolved
    return target_of(app, resolved, state)


def joined_if_there(app: App, resolved: Resolved[BaseModel]) -> Joined | None:
    """Return the settings on top of the run's own, if its store can be read and holds it.

    For commands that also work without a store: it is asked once, and a failure is only printed.
    Raises NewerSettings, and BadSetting for a setting that the run's task lacks.
    """
    settings = resolved.settings
    try:
        stores = once(app, resolved)
        opened = open_run(stores, settings.project, settings.run)
        return join(app, resolved, opened, stores.ledger) if opened else None
    except (NewerSettings, BadSetting):
        raise
    except (RelayError, StoreError) as error:
        why = redact(explain(error)[1], secrets_of(app.environ))
        say(f"The store was not read, so these are not the settings of run {settings.run}: {why}")
        return None


def _recall(home: Path, run_id: str) -> dict[str, str]:
    """The paths that an earlier session noted, if they still exist."""
    try:
        found = json.loads((home / HERE).read_text(encoding="utf-8"))
        paths = dict(found["paths"]) if found["run_id"] == run_id else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {key: path for key, path in paths.items() if isinstance(path, str) and Path(path).exists()}
