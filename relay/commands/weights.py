"""`prepare`, `evaluate`, `export`: data before a session, and what a checkpoint is worth after one."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from relay.checkpoints.choosing import choose, role
from relay.checkpoints.manifest import Manifest
from relay.checkpoints.modelcard import CARD, Told, card
from relay.checkpoints.outbox import Outbox
from relay.checkpoints.restore import fetch_unheld
from relay.commands.common import App, ConfigOption, JsonOption, Overrides, RunOption, emit, say, surroundings
from relay.commands.stores import require
from relay.display.transfers import showing
from relay.errors import BadData, UsageError
from relay.log.state import Checkpoint, RunState
from relay.runs.identity import Opened, Pair
from relay.runs.pinned import difference
from relay.text.wording import counted, duration, metric
from relay.workload import Workload

SAMPLE, GROWTH, LONG_ENOUGH_S = 2, 4, 2.0
"""Rows timed first to foretell the rest, how many times more are timed next, and the seconds that are believed."""
SPLITS = ("test", "valid")


class Form(Enum):
    """What `export` writes."""

    safetensors = "safetensors"
    reference = "reference"
    plain = "reference-plain"
    hub = "hub"


StepOption = Annotated[
    int | None, typer.Option("--step", help="A retained step instead of the newest.", show_default=False)
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="A file of weights instead of a run's checkpoint.", show_default=False)
]
RawOption = Annotated[bool, typer.Option("--raw", help="Raw weights instead of the averaged ones.")]


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
    lines = list(app.kind.prepare(resolved.workload, resolved.path(resolved.settings.data_dir), target))
    emit(as_json, {"schema": "relay.prepare/1", "ok": True, "lines": lines}, "\n".join(lines))


def evaluate(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Only the first rows.", show_default=False)] = None,
    split: Annotated[str, typer.Option(help="test (reported) or valid (chooses the best).")] = "test",
    step: StepOption = None,
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accuracy of a committed checkpoint's averaged weights. Says first how long all rows would take."""
    if split not in SPLITS:
        raise UsageError(f"--split is one of {', '.join(SPLITS)}, not {split!r}.")
    app = surroundings(context)
    subject = of_file(app, overrides, config, weights) if weights else of_run(app, overrides, config, run, step)
    metrics = measure(app, subject.workload, split, rows)
    _show({"schema": "relay.evaluate/1", **subject.about}, subject.whose, split, metrics, as_json)


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


def _show(document: Mapping[str, Any], whose: str, split: str, metrics: Mapping[str, float], as_json: bool) -> None:
    shown = ", ".join(f"{name} {metric(name, value)}" for name, value in metrics.items())
    numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    emit(as_json, {**document, "split": split, "metrics": numbers}, f"{whose}, {split}: {shown}")


def export(
    context: typer.Context,
    overrides: Overrides = None,
    run: RunOption = None,
    config: ConfigOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default ./export.", show_default=False)] = None,
    step: StepOption = None,
    raw: RawOption = False,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            metavar="FORM",
            help="safetensors; hub: the same with a model card, ready for the Hugging Face hub; or the reference's own "
            "file step_N: reference, reference-plain.",
        ),
    ] = Form.safetensors,
    as_json: JsonOption = False,
) -> None:
    """Write a checkpoint's weights as step_N/ with safetensors under the reference's names, or as its own step_N."""
    app = surroundings(context)
    resolved = app.settle(overrides, config, {"run": run})
    opened, stores = require(app, resolved)
    chosen = choose(opened.view.state, step)
    place = app.cwd / (out or Path("export")) / f"step_{chosen.step}"
    with tempfile.TemporaryDirectory(prefix="trm-relay-") as scratch:
        folder, manifest = bring(app, chosen, opened, stores, Path(scratch))
        pinned = opened.ledger.genesis().config
        files = list(app.kind.export(folder, place, pinned, raw, "safetensors" if form is Form.hub else form.value))
    if form is Form.hub:
        files.append(str(write_card(app, opened.view.state, chosen, pinned, raw, place, manifest.metrics)))
    document = {"schema": "relay.export/1", "step": chosen.step, "files": files, "exact": False}
    note = "Weights only: training cannot go on exactly from these files; `fork` does that."
    emit(as_json, document, "\n".join([*files, note]))


def write_card(
    app: App,
    state: RunState,
    chosen: Checkpoint,
    pinned: dict[str, Any],
    raw: bool,
    place: Path,
    metrics: Mapping[str, float],
) -> Path:
    """The model card of what was exported to a folder."""
    preset = app.kind.preset(str(pinned.get("task"))).model_dump(mode="json")
    arch = [f"{c.key}={c.mine}" for c in difference(preset, pinned) if c.key.startswith("arch.")]
    overrides = [f"task={pinned.get('task')}", *arch]
    averaged = not raw and bool(pinned.get("ema", True))
    told = Told(state, chosen, role(state, chosen), pinned, averaged, metrics, overrides)
    path = place / CARD
    path.write_text(card(told), encoding="utf-8")
    return path


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


def measure(app: App, workload: Workload, split: str, rows: int | None) -> dict[str, float]:
    """Metrics of the first rows; before that, the time that all rows would take goes to stderr.

    A sample that was all of them is not evaluated once more.
    """
    total = app.kind.rows(workload, split)
    if not total:
        raise BadData(f"There are no {split} rows.")
    count = min(rows or total, total)
    done = dict[int, Mapping[str, float]]()

    def sample(number: int) -> None:
        done[number] = workload.evaluate(split, number)

    each = foretell(sample, count, app.runtime.monotonic)
    rest = f"; {counted(count, 'row')} {about(each, count)}" if count < total else ""
    say(f"All {counted(total, 'row')} would take {about(each, total)}{rest}.")
    return dict(done[count] if count in done else workload.evaluate(split, count))


def foretell(evaluate: Callable[[int], object], rows: int, monotonic: Callable[[], float]) -> tuple[float, float]:
    """Seconds a row takes at least and at most: by what more rows added, and by all that a sample took.

    The first rows warm up and do not count; samples grow until one is long enough to be believed.
    """
    size, timed = min(SAMPLE, rows), list[tuple[int, float]]()
    evaluate(size)
    while not timed or (timed[-1][1] < LONG_ENOUGH_S and timed[-1][0] < rows):
        size = min(rows, GROWTH * size) if timed else size
        began = monotonic()
        evaluate(size)
        timed.append((size, monotonic() - began))
    (before, quick), (size, took) = timed[-2] if len(timed) > 1 else (0, 0.0), timed[-1]
    each, more = took / size, (took - quick) / (size - before)
    return min(each, max(more, each / 2)), max(each, min(more, 2 * each))


def about(each: tuple[float, float], rows: int) -> str:
    """The time of that many rows."""
    least, most = (duration(seconds * rows) for seconds in each)
    return f"about {least}" if least == most else f"{least} to {most}"
