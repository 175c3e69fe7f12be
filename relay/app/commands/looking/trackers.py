"""`track`: sends a run's ledger to a tracker without training; also sets up the trackers of a session."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say
from relay.app.commands.joining import require
from relay.app.messages.advice import command
from relay.app.messages.wording import counted
from relay.app.trackers.base import SinkOff, in_a_line
from relay.app.trackers.choose import TITLES, Places
from relay.app.trackers.feed import Feed
from relay.app.trackers.follow import Trackers
from relay.core.errors import BadConfig, RelayError, StorageUnreachable, UsageError
from relay.core.ledger.ledger import RunLedger
from relay.core.settings.config import Resolved
from storage.base import Store, StoreError

LOOK_S = 15.0
"""Seconds between two looks of `--follow`."""
FOLDERS = {"trackio": "TRACKIO_DIR", "wandb": "WANDB_DIR"}
"""The environment variable that sets a tracker's folder."""


@subcommand()
def track(
    call: Call,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to", metavar="TRACKER", help="wandb, tensorboard or trackio; may be repeated.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where its files go.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C, while others train.")] = False,
) -> Answer:
    """Show a run in a tracker: everything the ledger says and the tracker lacks. Trains nothing, writes no store."""
    resolved = call.settle({"trackers": ",".join(to) if to else None})
    keys = resolved.settings.trackers
    if not keys:
        raise UsageError(f"Which tracker? Say --to {' or --to '.join(TITLES)}.")
    if folder is not None:
        resolved = placed(call.app, resolved, folder)
    feeding = Feeding(call.app, resolved, keys)
    try:
        feeding.update()
        while follow:
            feeding.wait()
            feeding.update()
    except KeyboardInterrupt:
        if not follow:
            raise
    return Answer(feeding.document(), feeding.text())


def placed(app: App, resolved: Resolved[Any], folder: Path) -> Resolved[Any]:
    """Return settings in which every tracker that writes files uses `folder`."""
    where = str((app.cwd / folder).absolute())
    told = dict.fromkeys(FOLDERS.values(), where)
    app.environ = {**app.environ, **told}
    app.export(told)
    return replace(resolved, settings=resolved.settings.model_copy(update={"tensorboard_dir": where}))


def places_of(app: App, resolved: Resolved[Any]) -> Places:
    """Return the places of the run's trackers on this machine."""
    settings = resolved.settings
    memory = resolved.home / "trackers"
    return Places(memory, resolved.path(settings.tensorboard_dir), app.environ, settings.tracker_details)


def of_session(app: App, resolved: Resolved[Any], store: Store, tell: Callable[[str], None]) -> Trackers | None:
    """Return the trackers of a session; None if the settings name none."""
    settings = resolved.settings

    def ledger() -> RunLedger:
        return RunLedger(store, settings.project, settings.run, app.runtime)

    wanted = places_of(app, resolved).wanted(settings.trackers, ledger, lambda: app.plugin.measures)
    return Trackers(app.runtime, wanted, tell) if wanted else None


class Feeding:
    """All trackers that were asked for."""

    def __init__(self, app: App, resolved: Resolved[Any], keys: Sequence[str]) -> None:
        self._app, self._resolved, self._keys = app, resolved, tuple(dict.fromkeys(keys))
        self._opened, self._stores = require(app, resolved)
        self._told: dict[str, dict[str, Any]] = {}

    def update(self) -> None:
        """Update each tracker and close it afterwards, so that it shows complete data."""
        places, settings = places_of(self._app, self._resolved), self._resolved.settings
        for key in self._keys:
            ledger = RunLedger(self._stores.ledger, settings.project, settings.run, self._app.runtime)
            feed = places.feed(key, ledger, self._app.plugin.measures)
            where = self._fed_now(key, places, feed)
            if key not in self._told:
                say(f"{TITLES[key]}: {where}")
            before = self._told.get(key, {"points": 0})["points"]
            self._told[key] = {"key": key, "where": where, "points": before + feed.told}

    def wait(self) -> None:
        """Wait until the next look."""
        self._app.runtime.sleep(LOOK_S)

    def document(self) -> dict[str, Any]:
        """Return relay.track/1."""
        state = self._opened.ledger.read().state
        return {"schema": "relay.track/1", "run": state.run, "step": state.step, "trackers": list(self._told.values())}

    def text(self) -> str:
        """Return the result as text."""
        step = self._opened.ledger.read().state.step
        lines = [
            f"{TITLES[key]} shows the run up to step {step:,} ({counted(told['points'], 'new point')}): {told['where']}"
            for key, told in self._told.items()
        ]
        return "\n".join(lines)

    def _fed_now(self, key: str, places: Places, feed: Feed) -> str:
        """Update one tracker and return its address.

        Raises BadConfig (78) if it is not available, StorageUnreachable (69) if it fails.
        """
        try:
            sink = places.sink(key, None)
            feed.update(sink)
            where = sink.where()
            sink.close()
        except SinkOff as off:
            raise BadConfig(f"{TITLES[key]} cannot be fed: {off}") from off
        except (RelayError, StoreError):
            raise
        except (Exception, SystemExit, CancelledError) as error:
            told = in_a_line(error, self._app.secrets)
            again = command("track", self._resolved.settings.run)
            raise StorageUnreachable(
                f"{TITLES[key]} could not be fed: {told}. Nothing of the run was touched. When that is mended: "
                f"{again} --to {key}"
            ) from error
        return where
