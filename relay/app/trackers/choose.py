"""Creates the trackers that the settings name, each with its place on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relay.app.trackers.base import Sink, SinkOff, installed
from relay.app.trackers.feed import Feed
from relay.app.trackers.follow import Wanted
from relay.core.ledger.ledger import RunLedger
from relay.core.workload import Measures
from storage.packages import install

TITLES = {"wandb": "W&B", "tensorboard": "TensorBoard", "trackio": "trackio"}


@dataclass(frozen=True)
class Places:
    """Folders and environment of one run on this machine."""

    memory: Path
    """Folder for marks."""
    tensorboard: Path
    environ: Mapping[str, str]
    details: bool = False
    """Whether trackers get everything that sessions measured of themselves."""

    def sink(self, key: str, own: int | None) -> Sink:
        """Create the tracker; imports its library. Raises SinkOff."""
        marks = self.memory / f"{key}.mark.json"
        if key == "tensorboard":
            from relay.app.trackers.tensorboard import TensorBoard

            return TensorBoard(self.tensorboard)
        if key == "trackio":
            from relay.app.trackers.trackio import Trackio

            return Trackio(marks, self.environ.get("TRACKIO_DIR"))
        from relay.app.trackers.wandb import Wandb

        return Wandb(self.environ, marks, own)

    def feed(self, key: str, ledger: RunLedger, measures: Measures, go_on: Callable[[], bool] = lambda: True) -> Feed:
        """Return the feed of one tracker."""
        return Feed(ledger, self.memory / f"{key}.json", measures, go_on, self.details)

    def wanted(
        self, keys: Sequence[str], ledger: Callable[[], RunLedger], measures: Callable[[], Measures]
    ) -> list[Wanted]:
        """Return one tracker for each key, in order; `ledger` creates a reader for each thread.

        `measures`: asked when a tracker starts, because the run brings its model.
        """

        def feed(key: str, go_on: Callable[[], bool]) -> Feed:
            return self.feed(key, ledger(), measures(), go_on)

        return [Wanted(TITLES[key], key, partial(self.sink, key), partial(feed, key)) for key in dict.fromkeys(keys)]


def described(keys: Sequence[str], places: Places) -> Iterator[tuple[str, str, str]]:
    """Yield (title, where it writes, why it cannot or "") for each tracker; starts none."""
    for key in dict.fromkeys(keys):
        yield TITLES[key], _where(key, places), _trouble(key, places.environ)


def _where(key: str, places: Places) -> str:
    if key == "tensorboard":
        return f"event files in {places.tensorboard}"
    if key == "trackio":
        return f"SQLite in {places.environ.get('TRACKIO_DIR') or '~/.cache/huggingface/trackio'}"
    if places.environ.get("WANDB_MODE") in ("offline", "dryrun"):
        return f"W&B's folder below {places.environ.get('WANDB_DIR') or 'the present folder'}, to be synced later"
    return places.environ.get("WANDB_BASE_URL") or "https://wandb.ai"


def _trouble(key: str, environ: Mapping[str, str]) -> str:
    if not installed(key):
        return f"it is not installed: `{install(key)}`"
    if key == "wandb":
        from relay.app.trackers.wandb import refuse

        try:
            refuse(environ)
        except SinkOff as off:
            return str(off)
    return ""
