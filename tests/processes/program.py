"""The relay's whole command line with a toy in place of a model: `python -m tests.processes.program run --run r …`.

Sessions, stores, signals, locks and threads are the real ones. TOY_… variables set the cost of training and the point
where the process dies (tests/processes/points.py); the product knows nothing of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from relay.app.cli import app
from relay.app.commands import stores
from relay.app.commands.common import App
from relay.core.lease import signals
from storage.base import Store, open_store
from tests.processes.points import Points, WatchedStore
from tests.processes.trainee import Notes, Toll, TraineePlugin

COMMAND = typer.main.get_command(app)
"""Put together once, so that a fork of an interpreter that has imported this starts in milliseconds."""


def main(argv: Sequence[str]) -> None:
    """Run one command and exit with its code."""
    environ = os.environ
    signals.EARLY_S = float(environ.get("TOY_EARLY_S", signals.EARLY_S))
    signals.LAST_S = float(environ.get("TOY_LAST_S", signals.LAST_S))
    note = Notes(environ.get("TOY_NOTES", ""))
    points = Points(note, environ)
    points.everywhere()

    def opened(url: str, **more: Any) -> Store:
        return WatchedStore(open_store(url, **more), points, environ)

    stores.open_store = opened  # type: ignore[attr-defined]
    COMMAND.main(args=list(argv), obj=App(plugin=TraineePlugin(toll=Toll.of(environ), note=note, moment=points)))


if __name__ == "__main__":
    main(sys.argv[1:])
